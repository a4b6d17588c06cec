"""Terms of a simulated controller: production deciders, carried out on the tree twin.

Each term begins with what the tree says. What it sends to a broker goes one by one, again until it
is taken. Nothing stops a term that is over from going on, but the fence of its writes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

from penstock.controller import broker_changes as decide
from penstock.controller import state_loader as load
from penstock.controller.alter_partition import alter_partition
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.controller.znodes import CONTROLLER, CONTROLLER_EPOCH
from penstock.metadata_store.election import ElectionResult
from penstock.metadata_store.interface import SessionId
from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerRequest,
    ControllerRequestBody,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.testing.simulation.schedule import Action
from penstock.testing.simulation.world import World

RESEND_MS = 25

Taken = Callable[[ErrorCode], None]


class ControllerOwner(Protocol):
    """The life of a broker that a term belongs to."""

    world: World
    broker_id: BrokerId
    session: SessionId  # of now: a term may outlive the one it began with, for a moment

    def later(self, delay_ms: int, action: Action) -> None: ...
    def send_order(self, target: BrokerId, sent: ControllerRequest, taken: Taken) -> None: ...


class SimulatedActiveController:
    def __init__(self, owner: ControllerOwner, leadership: ElectionResult) -> None:
        self.owner = owner
        self.is_over = False
        self._world = owner.world
        self._leadership = leadership
        self._outboxes: dict[tuple[BrokerId, BrokerEpoch], _Outbox] = {}
        self._numbers = count(1)
        self.state: ClusterState
        self._begin(ControllerEpoch(leadership.epoch))

    def _begin(self, epoch: ControllerEpoch) -> None:
        world = self._world
        tree = world.tree.read(world.name, world.topic.configs)
        loaded = load.repair(
            tree,
            controller_id=self.owner.broker_id,
            controller_epoch=epoch,
            new_topic_id=lambda: world.topic.topic_id,
        )
        assert not loaded.writes, "the tree of a simulation is never half made"
        restarted = load.find_restarted(tree)
        self._carry_out(decide.fail_over(loaded.state, lambda topic: False, restarted))

    # -- what happens ----------------------------------------------------------------------

    def brokers_changed(self) -> None:
        brokers = self._world.tree.brokers()
        self._carry_out(decide.brokers_changed(self.state, brokers, lambda topic: False))

    def alter_partition(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, proposal: AlterPartitionProposal
    ) -> AlterPartitionResult:
        try:
            decision, (outcome,) = alter_partition(
                self.state, broker=broker, broker_epoch=broker_epoch, proposals=[proposal]
            )
        except Refusal as refusal:
            return AlterPartitionResult(refusal.code)
        return (
            outcome if self._carry_out(decision) else AlterPartitionResult(ErrorCode.NOT_CONTROLLER)
        )

    # -- how it is done --------------------------------------------------------------------

    def _carry_out(self, decision: ControllerDecision) -> bool:
        for writes in decision.writes:
            session = self.owner.session
            if self._world.write_as_controller(session, self._leadership, writes):
                self.end()
                return False
        self.state = decision.state
        self._follow_brokers()
        for addressed in decision.requests:
            epoch = self.state.brokers[addressed.broker].epoch
            self._outboxes[addressed.broker, epoch].push(addressed.request)
        return True

    def _follow_brokers(self) -> None:
        lives = {(node.id, node.epoch): None for node in self.state.brokers.values()}
        for key in [key for key in self._outboxes if key not in lives]:
            self._outboxes.pop(key).is_closed = True
        for key in lives:
            if key not in self._outboxes:
                self._outboxes[key] = _Outbox(self.owner, key, self._numbers, self.end)

    def end(self) -> None:
        self.is_over = True
        for outbox in self._outboxes.values():
            outbox.is_closed = True


class _Outbox:
    """A copy may arrive long after what was sent behind it."""

    def __init__(
        self,
        owner: ControllerOwner,
        life: tuple[BrokerId, BrokerEpoch],
        numbers: Iterator[int],
        on_stale: Action,
    ) -> None:
        self.is_closed = False
        self._owner = owner
        self._target, self._epoch = life
        self._numbers = numbers
        self._on_stale = on_stale
        self._pending: deque[ControllerRequest] = deque()
        self._attempt = 0

    def push(self, order: ControllerRequestBody) -> None:
        self._pending.append(ControllerRequest(self._epoch, order, next(self._numbers)))
        if len(self._pending) == 1:
            self._send()

    def _send(self) -> None:
        if self.is_closed or not self._pending:
            return
        self._attempt += 1
        attempt, sent = self._attempt, self._pending[0]
        self._owner.send_order(self._target, sent, lambda code: self._on_taken(sent, code))
        self._owner.later(RESEND_MS, lambda: self._again(attempt))

    def _again(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._send()

    def _on_taken(self, sent: ControllerRequest, code: ErrorCode) -> None:
        if self.is_closed or not self._pending or self._pending[0] is not sent:
            return
        if code is ErrorCode.BROKER_NOT_AVAILABLE:
            return  # it is sent again
        self._attempt += 1
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._on_stale()
        elif code is ErrorCode.STALE_BROKER_EPOCH:
            self.is_closed = True
        else:
            self._pending.popleft()
            self._send()


def try_begin(owner: ControllerOwner) -> SimulatedActiveController | None:
    """The term, if this broker wins the race for the controller's node."""
    won = owner.world.tree.try_elect(owner.session, owner.broker_id)
    if won is None:
        return None
    epoch, version = won
    leadership = ElectionResult(
        epoch=epoch,
        epoch_path=CONTROLLER_EPOCH,
        epoch_version=version,
        node_path=CONTROLLER,
        node_czxid=0,
    )
    return SimulatedActiveController(owner, leadership)
