"""A simulated broker: the production's replicas, followers and storage in one life of a process.

Its connections, its place in the tree and its controller's duties are simulated; the rules are not.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

from penstock.client.data_calls import FetchedPartition, FetchFrom
from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.config.raw_config import RawConfig
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.metadata_store.interface import NO_SESSION
from penstock.model.alter_partition import (
    AlterPartitionProposal,
    AlterPartitionResult,
)
from penstock.model.cluster import BrokerEpoch, BrokerId, ControllerRequest
from penstock.model.errors import ErrorCode, Refusal
from penstock.replication.alter_partition import Answered
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import FollowerFetch, ReplicaManager
from penstock.replication.topic_config import resolve_topic_config
from penstock.storage.engine import Engine
from penstock.storage.group_commit import Item
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import SimulatedDisk
from penstock.testing.simulation.controller import SimulatedActiveController, Taken, try_begin
from penstock.testing.simulation.follower_fetch import ParkedFetch
from penstock.testing.simulation.judge import Mirror
from penstock.testing.simulation.process import Process
from penstock.testing.simulation.schedule import BrokerClock
from penstock.testing.simulation.world import World

BEAT_MS = 20
FETCH_WAIT_MS = 30
FETCH_TIMEOUT_MS = 60
PROPOSAL_TIMEOUT_MS = 40
PRODUCE_TIMEOUT_MS = 120
UPKEEP_MS = 70

_SETTINGS = {
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
        self.mirror = Mirror(disk)
        self.view = MetadataCache()
        self.term: SimulatedActiveController | None = None
        self.epoch = BrokerEpoch(-1)
        self.session = NO_SESSION  # until the first registration
        self._asking: dict[BrokerId, object] = {}  # leaders with a request of ours
        self.engine = self._open_engine()
        self.replicas = ReplicaManager(
            broker_id=broker_id,
            engine=self.engine,
            metadata=self.view,
            effective_config=broker_settings,
            timers=BrokerClock(world.schedule, self.run),
            wall_ms=world.schedule.wall_ms,
            report=_ignore,
        )
        self.replicas.adopt(self.engine.recover(_no_progress, world.schedule.wall_ms()))
        self.orders = ControllerRequestHandler(
            broker_id,
            replicas=self.replicas,
            metadata=self.view,
            dynamic_config=_FixedSettings(),
            report=_ignore,
        )
        self.replicas.isr_manager.changes = self
        self.replicas.follower_state.on_news = self._on_news

    def _open_engine(self) -> Engine:
        return SegmentedEngine(
            _STORAGE,
            config_of=partial(_log_config, tuple(self.world.topic.configs.items())),
            disk=self.disk,
            background=SlowDisk(self),
        )

    def start(self) -> None:
        self.later(self.world.random.randint(0, BEAT_MS), self._beat)
        self.later(UPKEEP_MS, self._keep_up)

    def on_acted(self) -> None:
        self.world.judge.look(self)

    def on_crash(self) -> None:
        self.is_over = True
        self.world.on_crash(self)

    def _keep_up(self) -> None:
        for job in self.engine.due_jobs(self.world.schedule.wall_ms()):
            job.run(lambda function: function())
        self.later(UPKEEP_MS, self._keep_up)

    # -- its place in the tree -------------------------------------------------------------

    def _beat(self) -> None:
        self.later(BEAT_MS, self._beat)
        if not self.sees_tree:
            return
        tree = self.world.tree
        if not tree.is_alive(self.session):
            self._register()
        self.world.beats[self.session] = self.world.schedule.now_ms
        if self.term is not None and not self.term.is_over:
            self.term.brokers_changed()
        elif not tree.has_controller:
            self.term = try_begin(self)

    def _register(self) -> None:
        """For the first time, or with a new session. That its term is over, it learns later."""
        if self.term is not None:
            self.later(self.world.random.randint(0, BEAT_MS), self.term.end)
        self.session = self.world.tree.open_session()
        self.epoch = self.world.tree.register(self.session, self.broker_id)
        self.orders.set_broker_epoch(self.epoch)

    # -- orders, and proposals to the controller -------------------------------------------

    def send_order(self, target: BrokerId, sent: ControllerRequest, taken: Taken) -> None:
        def take(other: Process) -> None:
            assert isinstance(other, SimulatedBroker)
            code = other.obey(sent)
            other.answer(self, lambda: taken(code))

        self.send(target, take)

    def obey(self, sent: ControllerRequest) -> ErrorCode:
        try:
            self.orders.handle(sent)
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

        if self.view.controller_id >= 0:
            self.send(self.view.controller_id, ask)
        timed_out = AlterPartitionResult(ErrorCode.REQUEST_TIMED_OUT)
        self.later(PROPOSAL_TIMEOUT_MS, lambda: once(timed_out))

    def decide(
        self, asker: BrokerId, epoch: BrokerEpoch, proposal: AlterPartitionProposal
    ) -> AlterPartitionResult | None:
        """None: the tree cannot be reached, so nothing can be said."""
        if self.term is None or self.term.is_over:
            return AlterPartitionResult(ErrorCode.NOT_CONTROLLER)
        if not self.sees_tree:
            return None
        return self.term.alter_partition(asker, epoch, proposal)

    # -- following -------------------------------------------------------------------------

    def _on_news(self, leader: BrokerId) -> None:
        self._asking.pop(leader, None)
        self.later(0, lambda: self._ask(leader))

    def _ask(self, leader: BrokerId) -> None:
        if leader in self._asking:
            return
        following = self.replicas.follower_state
        wanted = following.list_wanted(leader)
        due_ms = following.next_due_ms(leader)
        if due_ms is not None:
            self.later(due_ms - self.world.schedule.now_ms, lambda: self._ask(leader))
        if not wanted:
            return
        token, epoch = object(), self.epoch
        self._asking[leader] = token
        self.later(FETCH_TIMEOUT_MS, lambda: self._give_up(leader, token))

        def fetch(other: Process) -> None:
            assert isinstance(other, SimulatedBroker)
            other.on_fetch(self.broker_id, epoch, wanted, lambda fetched: take(other, fetched))

        def take(other: SimulatedBroker, fetched: list[FetchedPartition]) -> None:
            other.answer(self, lambda: self._on_fetched(leader, token, wanted, fetched))

        self.send(leader, fetch)

    def _give_up(self, leader: BrokerId, token: object) -> None:
        if self._asking.get(leader) is token:
            del self._asking[leader]
            self._ask(leader)

    def _on_fetched(
        self,
        leader: BrokerId,
        token: object,
        wanted: list[FetchFrom],
        fetched: list[FetchedPartition],
    ) -> None:
        """Also an answer that was given up long ago: it must do no harm."""
        for asked, answer in zip(wanted, fetched, strict=True):
            self.replicas.follower_state.take(leader, asked, answer)
        self._give_up(leader, token)

    # -- leading ---------------------------------------------------------------------------

    def on_fetch(
        self,
        asker: BrokerId,
        epoch: BrokerEpoch,
        wanted: list[FetchFrom],
        done: Callable[[list[FetchedPartition]], None],
    ) -> None:
        refused: dict[int, ErrorCode] = {}
        for place, each in enumerate(wanted):
            code = self._note(asker, epoch, each)
            if code is not ErrorCode.NONE:
                refused[place] = code
        parked = ParkedFetch(self.disk, self.replicas, wanted, refused, done)
        deadline_ms = self.world.schedule.now_ms + FETCH_WAIT_MS
        self.replicas.fetch_purgatory.try_complete_else_watch(
            parked, [each.partition for each in wanted], deadline_ms
        )

    def _note(self, asker: BrokerId, epoch: BrokerEpoch, asked: FetchFrom) -> ErrorCode:
        node = self.view.brokers.get(asker)
        if node is not None and epoch < node.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        fetch = FollowerFetch(
            asker, epoch, asked.leader_epoch, asked.offset, asked.last_fetched_epoch
        )
        try:
            partition = self.replicas.get(asked.partition)
            self.replicas.update_follower_fetch_state(partition, fetch)
        except Refusal as refusal:
            return refusal.code
        return ErrorCode.NONE

    def on_produce(self, batch: bytearray, number: int) -> None:
        """Acknowledged means: the judge holds us to it."""
        partition = self.replicas.find(self.world.name)
        epoch = -1 if partition is None else partition.leader_epoch

        def done(answers: list[PartitionAppended]) -> None:
            code, offset, *_ = answers[0]
            if code is ErrorCode.NONE:
                self.world.judge.on_acknowledged(self, epoch=epoch, offset=offset, number=number)

        self.replicas.append(
            [(self.world.name, memoryview(batch))],
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            done=done,
        )


class SlowDisk:
    """A storage `Background`: rounds take a while, in which the broker goes on."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker

    def run(self, work: Callable[[], None]) -> None:
        self._broker.later(self._broker.world.random.randint(1, 8), work)

    def run_all(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        for item in items:
            function(item)


class _FixedSettings:
    """Nobody changes the settings of a simulation's brokers."""

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
def broker_settings() -> EffectiveConfig:
    return resolve_broker(RawConfig.from_mapping(_SETTINGS, where="simulation"))


@cache
def _log_config(configs: tuple[tuple[str, str], ...], topic: str) -> LogConfig:
    return resolve_topic_config(topic, dict(configs), broker_settings(), _ignore).log


def _ignore(message: str) -> None:
    pass


def _no_progress(*, done: int, total: int) -> None:
    pass
