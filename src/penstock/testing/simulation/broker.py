"""A simulated broker: the production's replica manager, follower state and storage in a process.

Its connections, its registration and its controller's channels are simulated; the rules are not.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

from penstock.client.data_calls import FetchedPartition, FetchFrom
from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.config.raw_config import RawConfig
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.logs.event_logger import NO_LOGGER
from penstock.metadata_store.interface import NO_SESSION
from penstock.model.alter_partition import (
    AlterPartitionProposal,
    AlterPartitionResult,
)
from penstock.model.cluster import BrokerEpoch, BrokerId, ControllerRequest
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.replication.alter_partition import Answered
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import FollowerFetch, ReplicaManager
from penstock.replication.topic_config import resolve_topic_config
from penstock.storage.engine import Engine
from penstock.storage.group_commit import Item
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import SimulatedDisk
from penstock.testing.simulation.checker import LogMirror
from penstock.testing.simulation.controller import (
    OnAnswer,
    SimulatedActiveController,
    try_become_controller,
)
from penstock.testing.simulation.follower_fetch import DelayedFollowerFetch
from penstock.testing.simulation.incarnation import SimulatedIncarnation
from penstock.testing.simulation.process import Process
from penstock.testing.simulation.schedule import BrokerClock
from penstock.testing.simulation.world import World

HEARTBEAT_MS = 20
FETCH_WAIT_MS = 30
FETCH_TIMEOUT_MS = 60
PROPOSAL_TIMEOUT_MS = 40
PRODUCE_TIMEOUT_MS = 120
JOBS_MS = 70

_CONFIG = {
    "replica.lag.time.max.ms": "80",
    "replica.fetch.wait.max.ms": "30",
    "replica.fetch.backoff.ms": "15",
    "replica.fetch.max.bytes": "400",
}
_STORAGE = StorageConfig(
    log_dirs=("/d",),
    high_watermark_checkpoint_interval_ms=50,
    recovery_checkpoint_interval_ms=100,
    start_offset_checkpoint_interval_ms=100,
)


class SimulatedBroker(Process):
    def __init__(self, world: World, broker_id: BrokerId, disk: SimulatedDisk) -> None:
        super().__init__(world, broker_id)
        self.disk = disk
        self.mirrors = {tp: LogMirror(disk) for tp in world.tps}
        self.metadata = MetadataCache()
        self.active: SimulatedActiveController | None = None
        self.epoch = BrokerEpoch(-1)
        self.session = NO_SESSION  # until the first registration
        self._fetching: dict[BrokerId, object] = {}  # leaders with a fetch in flight
        self.engine = self._open_engine()
        self.replicas = ReplicaManager(
            broker_id=broker_id,
            engine=self.engine,
            metadata=self.metadata,
            effective_config=broker_config,
            timers=BrokerClock(world.schedule, self.run),
            wall_ms=world.schedule.wall_ms,
            logger=NO_LOGGER,
        )
        logs = self.engine.recover(_no_progress, world.schedule.wall_ms())
        self.replicas.adopt(logs)
        self._incarnation = (
            SimulatedIncarnation(world, broker_id, disk, self.engine, logs)
            if world.loses_data
            else None
        )
        self.request_handler = ControllerRequestHandler(
            broker_id,
            replicas=self.replicas,
            metadata=self.metadata,
            dynamic_config=_FixedConfig(),
            logger=NO_LOGGER,
        )
        self.replicas.isr_manager.sender = self
        self.replicas.follower_state.on_news = self._on_news

    def _open_engine(self) -> Engine:
        return SegmentedEngine(
            _STORAGE,
            config_of=partial(_log_config, tuple(self.world.topic.configs.items())),
            disk=self.disk,
            background=SlowDisk(self),
        )

    def start(self) -> None:
        self.later(self.world.random.randint(0, HEARTBEAT_MS), self._heartbeat)
        if not self.world.loses_data:
            self.later(JOBS_MS, self._run_jobs)

    def on_acted(self) -> None:
        for checker in self.world.checkers.values():
            checker.check(self)

    def on_crash(self) -> None:
        self.is_over = True
        self.world.on_crash(self)

    def _run_jobs(self) -> None:
        for job in self.engine.due_jobs(self.world.schedule.wall_ms()):
            job.run(lambda function: function())
        self.later(JOBS_MS, self._run_jobs)

    # -- registration and election ---------------------------------------------------------

    def _heartbeat(self) -> None:
        self.later(HEARTBEAT_MS, self._heartbeat)
        if not self.reaches_store:
            return
        store = self.world.store
        if not store.is_alive(self.session):
            self._register()
        self.world.heartbeats[self.session] = self.world.schedule.now_ms
        if self.active is not None and not self.active.is_over:
            self.active.brokers_changed()
            self.active.balance()
        elif not store.has_controller:
            self.active = try_become_controller(self)

    def _register(self) -> None:
        """Initially, or after its session expired; its controller resigns a moment later."""
        if self.active is not None:
            self.later(self.world.random.randint(0, HEARTBEAT_MS), self.active.resign)
        if self._incarnation is not None:
            self._incarnation.record()
            if self.session == NO_SESSION:
                self.later(JOBS_MS, self._run_jobs)  # they change checkpoints, which it compares
        self.session = self.world.store.open_session()
        self.epoch = self.world.store.register(self.session, self.broker_id)
        self.request_handler.set_broker_epoch(self.epoch)

    # -- controller requests, and proposals to the controller ------------------------------

    def send_controller_request(
        self, target: BrokerId, request: ControllerRequest, on_answer: OnAnswer
    ) -> None:
        def deliver(other: Process) -> None:
            assert isinstance(other, SimulatedBroker)
            code = other.handle_controller_request(request)
            other.answer(self, lambda: on_answer(code))

        self.send(target, deliver)

    def handle_controller_request(self, request: ControllerRequest) -> ErrorCode:
        try:
            self.request_handler.handle(request)
        except Refusal as refusal:
            return refusal.code
        return ErrorCode.NONE

    def propose(self, proposal: AlterPartitionProposal, done: Answered) -> None:
        """Implements `AlterPartitionSender`."""
        once, epoch = _Once(done), self.epoch

        def ask(other: Process) -> None:
            assert isinstance(other, SimulatedBroker)
            answer = other.decide(self.broker_id, epoch, proposal)
            if answer is not None:
                other.answer(self, lambda: once(answer))

        if self.metadata.controller_id >= 0:
            self.send(self.metadata.controller_id, ask)
        timed_out = AlterPartitionResult(ErrorCode.REQUEST_TIMED_OUT)
        self.later(PROPOSAL_TIMEOUT_MS, lambda: once(timed_out))

    def decide(
        self, leader: BrokerId, epoch: BrokerEpoch, proposal: AlterPartitionProposal
    ) -> AlterPartitionResult | None:
        """None if the metadata store is unreachable: the proposal then times out."""
        if self.active is None or self.active.is_over:
            return AlterPartitionResult(ErrorCode.NOT_CONTROLLER)
        if not self.reaches_store:
            return None
        return self.active.alter_partition(leader, epoch, proposal)

    # -- following -------------------------------------------------------------------------

    def _on_news(self, leader: BrokerId) -> None:
        self._fetching.pop(leader, None)
        self.later(0, lambda: self._ask(leader))

    def _ask(self, leader: BrokerId) -> None:
        if leader in self._fetching:
            return
        following = self.replicas.follower_state
        wanted = following.list_wanted(leader)
        due_ms = following.next_due_ms(leader)
        if due_ms is not None:
            self.later(due_ms - self.world.schedule.now_ms, lambda: self._ask(leader))
        if not wanted:
            return
        token, epoch = object(), self.epoch
        self._fetching[leader] = token
        self.later(FETCH_TIMEOUT_MS, lambda: self._give_up(leader, token))

        def fetch(other: Process) -> None:
            assert isinstance(other, SimulatedBroker)
            other.on_fetch(self.broker_id, epoch, wanted, lambda fetched: take(other, fetched))

        def take(other: SimulatedBroker, fetched: list[FetchedPartition]) -> None:
            other.answer(self, lambda: self._on_fetched(leader, token, wanted, fetched))

        self.send(leader, fetch)

    def _give_up(self, leader: BrokerId, token: object) -> None:
        if self._fetching.get(leader) is token:
            del self._fetching[leader]
            self._ask(leader)

    def _on_fetched(
        self,
        leader: BrokerId,
        token: object,
        wanted: list[FetchFrom],
        fetched: list[FetchedPartition],
    ) -> None:
        """Also called with an answer that has timed out long ago: it must do no harm."""
        for request, answer in zip(wanted, fetched, strict=True):
            self.replicas.follower_state.apply(leader, request, answer)
        self._give_up(leader, token)

    # -- leading ---------------------------------------------------------------------------

    def on_fetch(
        self,
        follower: BrokerId,
        epoch: BrokerEpoch,
        wanted: list[FetchFrom],
        done: Callable[[list[FetchedPartition]], None],
    ) -> None:
        refused: dict[int, ErrorCode] = {}
        for index, fetch in enumerate(wanted):
            code = self._note(follower, epoch, fetch)
            if code is not ErrorCode.NONE:
                refused[index] = code
        delayed = DelayedFollowerFetch(self.disk, self.replicas, wanted, refused, done)
        deadline_ms = self.world.schedule.now_ms + FETCH_WAIT_MS
        self.replicas.fetch_purgatory.try_complete_else_watch(
            delayed, [fetch.tp for fetch in wanted], deadline_ms
        )

    def _note(self, follower: BrokerId, epoch: BrokerEpoch, request: FetchFrom) -> ErrorCode:
        node = self.metadata.brokers.get(follower)
        if node is not None and epoch < node.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        fetch = FollowerFetch(
            follower, epoch, request.leader_epoch, request.offset, request.last_fetched_epoch
        )
        try:
            partition = self.replicas.get(request.tp)
            self.replicas.update_follower_fetch_state(partition, fetch)
        except Refusal as refusal:
            return refusal.code
        return ErrorCode.NONE

    def on_produce(self, tp: TopicPartition, batch: bytearray, number: int) -> None:
        """The checker is told of every acknowledged record."""
        partition, checker = self.replicas.find(tp), self.world.checkers[tp]
        epoch = -1 if partition is None else partition.leader_epoch

        def done(answers: list[PartitionAppended]) -> None:
            code, offset, *_ = answers[0]
            if code is ErrorCode.NONE:
                checker.on_acknowledged(self, epoch=epoch, offset=offset, number=number)

        self.replicas.append(
            [(tp, memoryview(batch))],
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            done=done,
        )


class SlowDisk:
    """A storage `Background`: flushes take a while, in which the broker continues."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker

    def run(self, work: Callable[[], None]) -> None:
        self._broker.later(self._broker.world.random.randint(1, 8), work)

    def run_all(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        for item in items:
            function(item)


class _FixedConfig:
    """The config of simulated brokers never changes."""

    def take_dynamic(self, configs: Mapping[str, Mapping[str, str]]) -> bool:
        return False


class _Once:
    def __init__(self, done: Answered) -> None:
        self._done: Answered | None = done

    def __call__(self, answer: AlterPartitionResult) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(answer)


@cache
def broker_config() -> EffectiveConfig:
    return resolve_broker(RawConfig.from_mapping(_CONFIG, where="simulation"))


@cache
def _log_config(configs: tuple[tuple[str, str], ...], topic: str) -> LogConfig:
    return resolve_topic_config(topic, dict(configs), broker_config(), NO_LOGGER).log


def _no_progress(*, done: int, total: int) -> None:
    pass
