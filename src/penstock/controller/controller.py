"""The controller of a broker: stands for election and, while elected, handles one event at a time.

Not the decisions, which are pure, nor their effects, which ActiveController has. One task, `run`,
owns everything; callers put requests into its bounded queue. An unexpected error ends `run`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from itertools import count
from random import Random, SystemRandom
from typing import NamedTuple

from penstock.config.raw_config import EMPTY_RAW_CONFIG, RawConfig
from penstock.controller.active_controller import (
    ActiveController,
    ControllerFenced,
    ControllerSetup,
    ControllerSignals,
    StateOutdated,
)
from penstock.controller.balancing.balancer import (
    Balancer,
    BalancerStatistics,
    NoReplicaSizes,
    ReadsReplicaSizes,
)
from penstock.controller.broker_registration import random_topic_id
from penstock.controller.channel_manager import (
    ChannelDependencies,
    ControllerChannelManager,
    Delivery,
)
from penstock.controller.config_edits import NOTHING_KNOWN, KnownConfigs
from penstock.controller.controller_requests import full_state_requests
from penstock.controller.election_counters import ElectionCounters
from penstock.controller.event_queue import (
    MAX_QUEUED_REQUESTS,
    NOT_CONTROLLER,
    ControllerEventQueue,
)
from penstock.controller.interface import (
    ApiError,
    ConfigResourceChange,
    ControllerChannel,
    CreatableTopic,
    NewPartitions,
    Reassignment,
)
from penstock.controller.new_partitions import MAX_PARTITIONS_PER_REQUEST
from penstock.controller.persistent_znodes import ensure_znodes
from penstock.controller.reassignment import find_reassignments
from penstock.controller.state import ClusterState
from penstock.controller.write_batches import TRANSACTION_BYTES
from penstock.controller.znodes import CONTROLLER, PERSISTENT_ZNODES, TOPICS
from penstock.logs.event_logger import NO_LOGGER, EventLogger
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.metadata_store.election import Election, ElectionResult
from penstock.metadata_store.errors import ConnectionLoss, NoNode, SessionExpired
from penstock.metadata_store.interface import Session, WatchEvent
from penstock.model.admin import ElectionType
from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult
from penstock.model.cluster import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    PartitionState,
    TopicState,
)
from penstock.model.ids import TopicId, TopicPartition

__all__ = ["MAX_QUEUED_REQUESTS", "Controller", "ControllerStatistics"]

BALANCE_LOOK_MS = 1_000
NO_REPLICA_SIZES = NoReplicaSizes()
ALTER_CONFIGS_TIMEOUT_MS = 30_000  # AlterConfigs has no timeout


def _elected_late(
    results: dict[TopicPartition, ApiError | None], error: ApiError
) -> dict[TopicPartition, ApiError | None]:
    """Partitions that needed no election, or cannot have one, keep their results."""
    return {tp: refused or error for tp, refused in results.items()}


async def _sleep_ms(duration_ms: int) -> None:
    await asyncio.sleep(duration_ms / 1000)


def _call_later_ms(delay_ms: int, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_ms / 1000, call)


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class ControllerStatistics(NamedTuple):
    is_active: bool
    epoch: int  # 0: not active
    brokers: int
    topics: int
    partitions: int
    leaderless_partitions: int
    deleting_topics: int
    queued_requests: int
    preferred_replica_imbalance: int  # partitions with a leader that is not their preferred one
    elections: int  # since the start of this broker
    unclean_elections: int
    balancer: BalancerStatistics


class ControllerEvent(IntEnum):
    """Events from watches and the clock, in the order in which they are handled."""

    BROKERS = 0
    TOPICS = 1
    DELETIONS = 2
    REASSIGNMENTS = 3
    ELECTIONS = 4
    REBALANCE = 5
    BALANCE = 6


class Controller:
    """Implements Administration and Membership.

    `run` is its task; all other methods are called from other tasks of the same event loop.
    """

    def __init__(
        self,
        *,
        session: Session,
        election: Election,
        channel: ControllerChannel,
        broker_id: BrokerId,
        static: RawConfig = EMPTY_RAW_CONFIG,
        random: Random | None = None,
        new_topic_id: Callable[[], TopicId] = random_topic_id,
        wait_ms: Callable[[int], Awaitable[None]] = _sleep_ms,
        wait_rebalance_ms: Callable[[int], Awaitable[None]] = _sleep_ms,
        wait_balance_ms: Callable[[int], Awaitable[None]] = _sleep_ms,
        now_ms: Callable[[], int] = _monotonic_ms,
        replica_sizes: ReadsReplicaSizes = NO_REPLICA_SIZES,
        logger: EventLogger = NO_LOGGER,
        last_known: KnownConfigs = NOTHING_KNOWN,
        max_partitions_per_request: int = MAX_PARTITIONS_PER_REQUEST,
        transaction_bytes: int = TRANSACTION_BYTES,
    ) -> None:
        self._session = session
        self._election = election
        self._channel = channel
        self._wait_ms = wait_ms
        self._wait_rebalance_ms = wait_rebalance_ms
        self._wait_balance_ms = wait_balance_ms
        self._now_ms = now_ms
        self._replica_sizes = replica_sizes
        self._balancer: Balancer | None = None  # of the active controller
        self._setup = ControllerSetup(
            broker_id=broker_id,
            static=static,
            random=random or SystemRandom(),
            new_topic_id=new_topic_id,
            logger=logger,
            notes=RateLimitedLogger(logger, now_ms=_monotonic_ms, add_timer=_call_later_ms),
            elections=ElectionCounters(),
            last_known=last_known,
            max_partitions=max_partitions_per_request,
            transaction_bytes=transaction_bytes,
        )
        self._active: ActiveController | None = None
        self._is_closing = False
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._is_idle = asyncio.Event()  # `run` is not running
        self._is_idle.set()
        self._queue = ControllerEventQueue(self._wake.set)
        self._request_numbers = count(1)
        self._is_deposed = False
        # Pending events. Sets, because an event that is signalled twice is handled once.
        self._events: set[ControllerEvent] = set()
        self._deleted_replicas: dict[tuple[BrokerId, tuple[str, ...]], None] = {}
        self._edited_topics: dict[str, None] = {}
        self._edited_configs: dict[WatchEvent, None] = {}
        # The same callbacks for every election, so that a znode that an earlier ActiveController
        # still watches is watched once.
        self._signals = ControllerSignals(
            brokers_changed=partial(self._signal, ControllerEvent.BROKERS),
            topics_changed=partial(self._signal, ControllerEvent.TOPICS),
            topic_edited=self._signal_topic_edited,
            deletions_changed=partial(self._signal, ControllerEvent.DELETIONS),
            reassignments_changed=partial(self._signal, ControllerEvent.REASSIGNMENTS),
            elections_changed=partial(self._signal, ControllerEvent.ELECTIONS),
            config_edited=self._signal_config_edited,
            replicas_deleted=self._signal_replicas_deleted,
        )

    # The task.

    async def run(self) -> None:
        """Run until `close`. Raises the error that ends it, including SessionExpired and
        ConnectionLoss.

        After ConnectionLoss it may be run again, once the session is connected.
        """
        self._is_idle.clear()
        try:
            if not self._is_closing:
                await ensure_znodes(self._session, PERSISTENT_ZNODES)
            while not self._is_closing:
                elected = await self._campaign()
                if elected is not None:
                    await self._lead(elected)
        finally:
            self._is_idle.set()

    async def close(self) -> None:
        """Resign, and wait until `run` has ended; requests get NOT_CONTROLLER."""
        self._is_closing = True
        self._queue.accepts_requests = False
        self._wake.set()
        await self._is_idle.wait()

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    def renew(self, session: Session, election: Election) -> None:
        """Use a new session after the last one expired; `run` must have ended."""
        assert self._is_idle.is_set(), "a controller keeps its session while it runs"
        self._session = session
        self._election = election

    async def wait_ready(self) -> None:
        """Wait until it is the active controller and its own broker has applied the full state."""
        await self._ready.wait()

    def statistics(self) -> ControllerStatistics:
        state = self.find_state()
        partitions = [p for t in state.topics.values() for p in t.partitions] if state else []
        return ControllerStatistics(
            is_active=state is not None,
            epoch=state.controller_epoch if state else ControllerEpoch(0),
            brokers=len(state.brokers) if state else 0,
            topics=len(state.topics) if state else 0,
            partitions=len(partitions),
            leaderless_partitions=sum(partition.leader == NO_BROKER for partition in partitions),
            deleting_topics=len(state.deleting) if state else 0,
            queued_requests=len(self._queue),
            preferred_replica_imbalance=sum(
                partition.leader not in (NO_BROKER, partition.replicas[0])
                for partition in partitions
                if partition.replicas
            ),
            elections=self._setup.elections.elections,
            unclean_elections=self._setup.elections.unclean,
            balancer=self._balancer.statistics() if self._balancer else BalancerStatistics(),
        )

    def find_state(self) -> ClusterState | None:
        """The active controller's state; None if this broker is not the active controller."""
        return None if self._active is None else self._active.state

    # Administration.

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicState | ApiError]:
        return await self._queue.ask(
            lambda active: active.create_topics(topics, validate_only=validate_only),
            len(topics),
            timeout_ms,
        )

    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int
    ) -> list[ApiError | None]:
        return await self._queue.ask(
            lambda active: active.delete_topics(names), len(names), timeout_ms
        )

    async def create_partitions(
        self, additions: Sequence[NewPartitions], *, validate_only: bool, timeout_ms: int
    ) -> list[ApiError | None]:
        return await self._queue.ask(
            lambda active: active.create_partitions(additions, validate_only=validate_only),
            len(additions),
            timeout_ms,
        )

    async def alter_configs(
        self, changes: Sequence[ConfigResourceChange], *, validate_only: bool
    ) -> list[ApiError | None]:
        return await self._queue.ask(
            lambda active: active.alter_configs(changes, validate_only=validate_only),
            len(changes),
            ALTER_CONFIGS_TIMEOUT_MS,
        )

    async def elect_leaders(
        self,
        election: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        *,
        timeout_ms: int,
    ) -> dict[TopicPartition, ApiError | None] | ApiError:
        return await self._queue.ask_one(
            lambda active: active.elect_leaders(election, partitions), timeout_ms, _elected_late
        )

    async def alter_reassignments(
        self,
        reassignments: Sequence[Reassignment],
        *,
        allow_replication_factor_change: bool,
        timeout_ms: int,
    ) -> list[ApiError | None]:
        return await self._queue.ask(
            lambda active: active.alter_reassignments(
                reassignments, allow_replication_factor_change=allow_replication_factor_change
            ),
            len(reassignments),
            timeout_ms,
        )

    async def list_reassignments(self) -> Mapping[TopicPartition, PartitionState] | ApiError:
        """Read from the state at once: nothing is decided, so there is nothing to wait for."""
        if self._active is None or not self._queue.accepts_requests:
            return NOT_CONTROLLER
        return find_reassignments(self._active.state)

    # Membership.

    async def alter_partition(
        self,
        proposals: Sequence[AlterPartitionProposal],
        *,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        timeout_ms: int,
    ) -> list[AlterPartitionResult]:
        return await self._queue.ask_or_raise(
            lambda active: active.alter_partition(proposals, broker, broker_epoch), timeout_ms
        )

    async def controlled_shutdown(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, *, timeout_ms: int
    ) -> tuple[TopicPartition, ...]:
        return await self._queue.ask_or_raise(
            lambda active: active.controlled_shutdown(broker, broker_epoch), timeout_ms
        )

    async def fail_replicas(
        self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        timeout_ms: int,
    ) -> None:
        await self._queue.ask_or_raise(
            lambda active: active.fail_replicas(broker, broker_epoch, partitions), timeout_ms
        )

    async def replace_damaged_leaders(
        self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        timeout_ms: int,
    ) -> None:
        await self._queue.ask_or_raise(
            lambda active: active.replace_damaged_leaders(broker, broker_epoch, partitions),
            timeout_ms,
        )

    # Election.

    async def _campaign(self) -> ElectionResult | None:
        """None if the controller is closed first."""
        campaign = asyncio.create_task(self._election.campaign(), name="controller-campaign")
        closing = asyncio.create_task(self._wait_closing(), name="controller-closing")
        try:
            await asyncio.wait((campaign, closing), return_when=asyncio.FIRST_COMPLETED)
            return await campaign if campaign.done() else None
        finally:
            is_cut_short = campaign.cancel()
            closing.cancel()
            await asyncio.gather(campaign, closing, return_exceptions=True)
            if is_cut_short and self._is_closing:
                await self._withdraw()

    async def _withdraw(self) -> None:
        """Delete the znode of an election that was won while it was cancelled, so that another
        broker need not wait for the end of this session."""
        with suppress(ConnectionLoss, SessionExpired, NoNode):
            leader = await self._session.exists(CONTROLLER)
            if leader is not None and leader.ephemeral_owner == self._session.id:
                await self._session.delete(CONTROLLER)

    async def _wait_closing(self) -> None:
        while not self._is_closing:
            await self._wake.wait()
            self._wake.clear()

    async def _lead(self, elected: ElectionResult) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                lost = tasks.create_task(self._wait_lost(elected), name="controller-lost")
                active = self._new_active_controller(elected, tasks)
                clock = tasks.create_task(
                    self._signal_rebalances(active), name="controller-rebalance"
                )
                balance_clock = tasks.create_task(
                    self._signal_balance(active), name="controller-balance"
                )
                try:
                    await self._serve(active)
                finally:
                    self._resign(active)
                    lost.cancel()
                    clock.cancel()
                    balance_clock.cancel()
        except BaseExceptionGroup as group:
            self._raise_unless_deposed(group)
        await self._election.resign(elected)  # harmless if the election is lost already

    def _new_active_controller(
        self, elected: ElectionResult, tasks: asyncio.TaskGroup
    ) -> ActiveController:
        self._is_deposed = False
        self._events.clear()
        self._deleted_replicas.clear()
        self._edited_topics.clear()
        self._edited_configs.clear()
        dependencies = ChannelDependencies(
            channel=self._channel,
            full_state=lambda broker: full_state_requests(active.state, broker),
            on_stale_controller=self._signal_deposed,
            wait_ms=self._wait_ms,
            logger=self._setup.logger,
            numbers=self._request_numbers,
        )
        active = ActiveController(
            session=self._session,
            elected=elected,
            setup=self._setup,
            signals=self._signals,
            channels=ControllerChannelManager(tasks, dependencies),
        )
        self._balancer = Balancer(
            active,
            tasks=tasks,
            sizes=self._replica_sizes,
            now_ms=self._now_ms,
            wake=partial(self._signal, ControllerEvent.BALANCE),
            logger=self._setup.logger,
        )
        return active

    async def _serve(self, active: ActiveController) -> None:
        epoch = active.elected.epoch
        self._setup.logger.info(
            "controller_elected",
            f"broker {self._setup.broker_id} is the active controller, epoch {epoch}",
            epoch=epoch,
        )
        own_deliveries = await active.fail_over()
        self._active = active
        self._setup.logger.info(
            "controller_failover_finished",
            brokers=sorted(active.state.brokers),
            topics=len(active.state.topics),
            epoch=epoch,
        )
        self._queue.accepts_requests = not self._is_closing
        _when_all_done(own_deliveries, self._ready.set)
        while not self._is_deposed and not self._is_closing:
            if not await self._handle_next(active):
                await self._wake.wait()
                self._wake.clear()

    async def _handle_next(self, active: ActiveController) -> bool:
        """One event, or one request if there is none; False if there is neither."""
        if self._events:
            event = min(self._events)
            self._events.discard(event)
            await self._handle_event(event, active)
        elif self._edited_topics:
            names, self._edited_topics = list(self._edited_topics), {}
            await active.znode_requests.topics_edited(names)
        elif self._edited_configs:
            events, self._edited_configs = list(self._edited_configs), {}
            await active.config_watches.changed(events)
        elif self._deleted_replicas:
            broker, topics = next(iter(self._deleted_replicas))
            del self._deleted_replicas[broker, topics]
            await active.replicas_deleted(broker, topics)
        elif self._queue:
            await self._queue.serve_next(active)
        else:
            return False
        return True

    async def _handle_event(self, event: ControllerEvent, active: ActiveController) -> None:
        if event is not ControllerEvent.BALANCE:
            await _HANDLERS[event](active)
        elif self._balancer is not None:
            await self._balancer.look(active.config.balancer)

    def _resign(self, active: ActiveController) -> None:
        self._ready.clear()
        self._active = None
        if self._balancer is not None:
            self._balancer.close()
            self._balancer = None
        active.resign()
        self._queue.close()
        epoch = active.elected.epoch
        why = "the broker stops" if self._is_closing else "its election or its session has ended"
        self._setup.logger.info(
            "controller_resigned",
            f"broker {self._setup.broker_id} is no longer the active controller: {why}",
            epoch=epoch,
            reason=why,
        )

    def _raise_unless_deposed(self, group: BaseExceptionGroup[BaseException]) -> None:
        """ControllerFenced and StateOutdated end this ActiveController only: the next one, here or
        on another broker, loads the state again."""
        outdated, rest = group.split(StateOutdated)
        if outdated is not None:
            self._setup.logger.warning(
                "controller_state_outdated",
                f"reloading the controller's state, because something else has written it: "
                f"{outdated.exceptions[0]}",
            )
        _, rest = rest.split(ControllerFenced) if rest is not None else (None, None)
        if rest is not None:
            raise _one_of(rest) from None

    # Events, from watches, deliveries, the clock and the election.

    async def _signal_rebalances(self, active: ActiveController) -> None:
        """Every leader.imbalance.check.interval.seconds, as configured at the time."""
        await self._ready.wait()  # the config is loaded then
        while True:
            seconds = active.config.leader_imbalance_check_interval_seconds
            await self._wait_rebalance_ms(1000 * seconds)
            self._signal(ControllerEvent.REBALANCE)

    async def _signal_balance(self, active: ActiveController) -> None:
        """While balancing or replacement is on, and once more after it is turned off."""
        await self._ready.wait()
        was_on = False
        while True:
            await self._wait_balance_ms(BALANCE_LOOK_MS)
            is_on = active.config.balancer.is_on
            if is_on or was_on:
                self._signal(ControllerEvent.BALANCE)
            was_on = is_on

    async def _wait_lost(self, elected: ElectionResult) -> None:
        await self._election.wait_lost(elected)
        self._signal_deposed()

    def _signal_deposed(self) -> None:
        self._is_deposed = True
        self._wake.set()

    def _signal(self, event: ControllerEvent, watched: WatchEvent | None = None) -> None:
        self._events.add(event)
        self._wake.set()

    def _signal_topic_edited(self, watched: WatchEvent) -> None:
        self._edited_topics[watched.path.removeprefix(f"{TOPICS}/")] = None
        self._wake.set()

    def _signal_config_edited(self, watched: WatchEvent) -> None:
        self._edited_configs[watched] = None
        self._wake.set()

    def _signal_replicas_deleted(self, broker: BrokerId, topics: tuple[str, ...]) -> None:
        self._deleted_replicas[broker, topics] = None
        self._wake.set()


_HANDLERS: Mapping[ControllerEvent, Callable[[ActiveController], Awaitable[None]]] = {
    ControllerEvent.BROKERS: ActiveController.brokers_changed,
    ControllerEvent.TOPICS: lambda active: active.znode_requests.topics_changed(),
    ControllerEvent.DELETIONS: lambda active: active.znode_requests.deletions_changed(),
    ControllerEvent.REASSIGNMENTS: lambda active: active.znode_requests.reassignments_changed(),
    ControllerEvent.ELECTIONS: lambda active: active.znode_requests.elections_changed(),
    ControllerEvent.REBALANCE: ActiveController.rebalance_leaders,
}


def _when_all_done(deliveries: Sequence[Delivery], call: Callable[[], None]) -> None:
    gathered = asyncio.gather(*deliveries)
    gathered.add_done_callback(lambda _: call())


def _one_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """If several tasks met the end of the session or of its connection, that is one error."""
    lost, rest = group.split((ConnectionLoss, SessionExpired))
    if rest is not None or lost is None:
        return group.exceptions[0] if len(group.exceptions) == 1 else group
    first: BaseException = lost.subgroup(SessionExpired) or lost
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
