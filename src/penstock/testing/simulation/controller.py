"""The active controller of a simulated cluster: the production's decisions, applied to its store.

It starts from the stored state. Requests to a broker are sent one by one and retried until applied.
Only fencing keeps a deposed controller from having an effect.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Protocol

from penstock.controller import broker_changes, state_loader
from penstock.controller.alter_partition import alter_partition
from penstock.controller.incomplete_replicas import settle_reports
from penstock.controller.interface import ApiError, Reassignment
from penstock.controller.leader_changes import elect_leaders
from penstock.controller.reassignment import alter_reassignments
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.controller.znodes import CONTROLLER, CONTROLLER_EPOCH
from penstock.metadata_store.election import ElectionResult
from penstock.metadata_store.interface import SessionId
from penstock.model.admin import ElectionType
from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult
from penstock.model.cluster import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerRequest,
    ControllerRequestBody,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.testing.simulated_faults import SimulatedCrash
from penstock.testing.simulation.balancing import SimulatedBalancer
from penstock.testing.simulation.schedule import Action
from penstock.testing.simulation.world import World

RESEND_MS = 25
CRASH_SHARE = 0.01  # of the writes of a controller that balances

OnAnswer = Callable[[ErrorCode], None]


class ControllerOwner(Protocol):
    """The broker process that a controller belongs to."""

    world: World
    broker_id: BrokerId
    session: SessionId  # current: a controller may briefly outlive its own

    @property
    def reaches_store(self) -> bool: ...
    def run(self, action: Action) -> None: ...
    def later(self, delay_ms: int, action: Action) -> None: ...
    def send_controller_request(
        self, target: BrokerId, request: ControllerRequest, on_answer: OnAnswer
    ) -> None: ...


class SimulatedActiveController:
    def __init__(self, owner: ControllerOwner, elected: ElectionResult) -> None:
        self.owner = owner
        self.is_over = False
        self._world = owner.world
        self._elected = elected
        self._queues: dict[tuple[BrokerId, BrokerEpoch], _RequestQueue] = {}
        self._numbers = count(1)
        self._balancer = SimulatedBalancer(self._world) if self._world.is_balanced else None
        self.state: ClusterState
        self._fail_over(ControllerEpoch(elected.epoch))

    def _fail_over(self, epoch: ControllerEpoch) -> None:
        world = self._world
        stored = world.store.read(world.tps, world.topic.configs)
        loaded = state_loader.repair(
            stored,
            controller_id=self.owner.broker_id,
            controller_epoch=epoch,
            new_topic_id=lambda: world.topic.topic_id,
        )
        assert not loaded.writes, "the stored state of a simulation is never incomplete"
        restarted = state_loader.find_restarted(stored)
        self._apply(broker_changes.fail_over(loaded.state, lambda topic: False, restarted))

    # -- events ----------------------------------------------------------------------------

    def brokers_changed(self) -> None:
        brokers, before = self._world.store.brokers(), self.state.brokers
        registered = [broker for broker in brokers if brokers[broker] != before.get(broker)]
        reports = self._world.store.reports(registered)
        self._apply(
            broker_changes.brokers_changed(self.state, brokers, lambda topic: False, reports)
        )

    def balance(self) -> None:
        """Does nothing in a cluster that does not balance."""
        if self._balancer is None or self.is_over:
            return
        reassignments = self._balancer.look(self.state)
        if reassignments:
            self._balancer.take_refused(reassignments, self._reassign(reassignments))

    def reassign_by_hand(self, reassignment: Reassignment) -> None:
        """As an operator; nothing happens if it is refused."""
        self._reassign([reassignment])

    def _reassign(self, reassignments: Sequence[Reassignment]) -> Sequence[ApiError | None]:
        decision, results = alter_reassignments(
            self.state, reassignments, allow_replication_factor_change=False
        )
        self._apply(decision)
        return results

    def alter_partition(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, proposal: AlterPartitionProposal
    ) -> AlterPartitionResult:
        try:
            decision, (outcome,) = alter_partition(
                self.state, broker=broker, broker_epoch=broker_epoch, proposals=[proposal]
            )
        except Refusal as refusal:
            return AlterPartitionResult(refusal.code)
        return outcome if self._apply(decision) else AlterPartitionResult(ErrorCode.NOT_CONTROLLER)

    def waits_for_operator(self) -> bool:
        """Whether the partition has no leader although its whole ISR is alive, and none has a
        log."""
        tp = self._world.tp
        partition = self.state.topics[tp.topic].partitions[tp.partition]
        reported = self.state.incomplete_replicas(tp)
        return partition.leader == NO_BROKER and all(
            broker in self.state.brokers and broker in reported and not reported[broker].has_records
            for broker in partition.in_sync
        )

    def elect_unclean(self) -> None:
        decision, _ = elect_leaders(self.state, ElectionType.UNCLEAN, [self._world.tp])
        self._apply(decision)

    # -- from decision to effect
    # --------------------------------------------------------------------

    def _apply(self, decided: ControllerDecision) -> bool:
        decision = settle_reports(decided)
        for writes in decision.writes:
            session = self.owner.session
            if self._world.write_as_controller(session, self._elected, writes):
                self.resign()
                return False
            if self._world.controllers_crash and self._world.random.random() < CRASH_SHARE:
                raise SimulatedCrash  # perhaps between two writes of one decision
        self.state = decision.state
        self._set_brokers()
        for addressed in decision.requests:
            epoch = self.state.brokers[addressed.broker].epoch
            self._queues[addressed.broker, epoch].put(addressed.request)
        return True

    def _set_brokers(self) -> None:
        live = {(node.id, node.epoch): None for node in self.state.brokers.values()}
        for key in [key for key in self._queues if key not in live]:
            self._queues.pop(key).is_closed = True
        for key in live:
            if key not in self._queues:
                self._queues[key] = _RequestQueue(self.owner, key, self._numbers, self.resign)

    def resign(self) -> None:
        self.is_over = True
        for queue in self._queues.values():
            queue.is_closed = True


class _RequestQueue:
    """Requests to one broker; a retry may arrive long after the requests that followed it."""

    def __init__(
        self,
        owner: ControllerOwner,
        target: tuple[BrokerId, BrokerEpoch],
        numbers: Iterator[int],
        on_stale_controller: Action,
    ) -> None:
        self.is_closed = False
        self._owner = owner
        self._target, self._epoch = target
        self._numbers = numbers
        self._on_stale_controller = on_stale_controller
        self._pending: deque[ControllerRequest] = deque()
        self._attempt = 0

    def put(self, body: ControllerRequestBody) -> None:
        self._pending.append(ControllerRequest(self._epoch, body, next(self._numbers)))
        if len(self._pending) == 1:
            self._send()

    def _send(self) -> None:
        if self.is_closed or not self._pending:
            return
        self._attempt += 1
        attempt, request = self._attempt, self._pending[0]
        self._owner.send_controller_request(
            self._target, request, lambda code: self._on_answer(request, code)
        )
        self._owner.later(RESEND_MS, lambda: self._retry(attempt))

    def _retry(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._send()

    def _on_answer(self, request: ControllerRequest, code: ErrorCode) -> None:
        if self.is_closed or not self._pending or self._pending[0] is not request:
            return
        if code is ErrorCode.BROKER_NOT_AVAILABLE:
            return  # it is retried
        self._attempt += 1
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._on_stale_controller()
        elif code is ErrorCode.STALE_BROKER_EPOCH:
            self.is_closed = True
        else:
            self._pending.popleft()
            self._send()


def try_become_controller(owner: ControllerOwner) -> SimulatedActiveController | None:
    """None if another broker is the controller."""
    won = owner.world.store.try_elect(owner.session, owner.broker_id)
    if won is None:
        return None
    epoch, version = won
    elected = ElectionResult(
        epoch=epoch,
        epoch_path=CONTROLLER_EPOCH,
        epoch_version=version,
        node_path=CONTROLLER,
        node_czxid=0,
    )
    return SimulatedActiveController(owner, elected)
