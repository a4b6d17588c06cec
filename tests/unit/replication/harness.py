"""A ReplicaManager on the real engine over a simulated disk, under a manual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.config.raw_config import RawConfig
from penstock.logs.event_logger import message_logger
from penstock.logs.levels import INFO
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.purgatory.delayed_operations import WatchedOperation
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.partition import Partition
from penstock.replication.replica_manager import ReplicaManager
from penstock.storage.engine import AppendOrigin
from penstock.storage.group_commit import Item
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.manual_clock import ManualClock
from penstock.testing.simulated_disk import SimulatedDisk

ME = BrokerId(1)
OTHER, THIRD = BrokerId(2), BrokerId(3)
WALL_MS = 1_700_000_000_000
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
ORDERS_ID = TopicId(UUID(int=7))


class Deferred:
    """A background whose flushes run one by one, when a test lets them."""

    def __init__(self) -> None:
        self.rounds: list[Callable[[], None]] = []
        self.ran = 0

    def run(self, work: Callable[[], None]) -> None:
        self.rounds.append(work)

    def run_all(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        for item in items:
            function(item)

    def run_one(self) -> bool:
        if not self.rounds:
            return False
        self.ran += 1
        self.rounds.pop(0)()
        return True

    def drain(self) -> None:
        while self.run_one():
            pass


class ReplicationHarness:
    """Broker 1. After a restart it uses the disk of its earlier incarnation."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        directories: tuple[str, ...] = ("/d",),
        broker: Mapping[str, str] | None = None,
        opened_as: LogConfig | None = None,
        max_delayed_operations: int = 100,
    ) -> None:
        self.disk = SimulatedDisk(*directories) if disk is None else disk
        self.background = Deferred()
        self.reports: list[str] = []
        self.clock = ManualClock()
        self.settings: EffectiveConfig = resolve_broker(
            RawConfig.from_mapping(broker or {}, where="test")
        )
        self.engine = SegmentedEngine(
            StorageConfig(log_dirs=directories),
            config_of=lambda topic: opened_as or LogConfig(),
            disk=self.disk,
            background=self.background,
            logger=message_logger(self.reports.append, INFO),
        )
        recovered = self.engine.recover(lambda *, done, total: None, WALL_MS)
        self.cluster = MetadataCache()
        self.replicas = ReplicaManager(
            broker_id=ME,
            engine=self.engine,
            metadata=self.cluster,
            effective_config=lambda: self.settings,
            timers=self.clock,
            wall_ms=lambda: WALL_MS,
            logger=message_logger(self.reports.append, INFO),
            max_delayed_operations=max_delayed_operations,
        )
        self.replicas.adopt(recovered)

    # -- controller requests ---------------------------------------------------------------

    def leader_and_isr(
        self,
        *partitions: TopicPartition,
        leader: int = ME,
        epoch: int = 0,
        replicas: tuple[int, ...] = (ME,),
        in_sync: tuple[int, ...] | None = None,
        topic_id: TopicId = ORDERS_ID,
        partition_epoch: int = 0,
        controller_epoch: int = 1,
        broker_epoch: int = 0,
        is_new: bool = True,
        adding: tuple[int, ...] = (),
    ) -> dict[TopicPartition, ErrorCode]:
        state = PartitionState(
            BrokerId(leader),
            LeaderEpoch(epoch),
            tuple(map(BrokerId, replicas)),
            tuple(map(BrokerId, replicas if in_sync is None else in_sync)),
            partition_epoch,
            ControllerEpoch(controller_epoch),
            adding=tuple(map(BrokerId, adding)),
        )
        return self.replicas.become_leader_or_follower(
            LeaderAndIsrRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(controller_epoch),
                broker_epoch=BrokerEpoch(broker_epoch),
                partitions=tuple(
                    LeaderAndIsrPartition(tp, topic_id, state, is_new) for tp in partitions
                ),
            )
        )

    def stop(
        self,
        *partitions: TopicPartition,
        delete: bool,
        controller_epoch: int = 1,
        broker_epoch: int = 0,
    ) -> dict[TopicPartition, ErrorCode]:
        return self.replicas.stop_replicas(
            StopReplicaRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(controller_epoch),
                broker_epoch=BrokerEpoch(broker_epoch),
                partitions=partitions,
                delete=delete,
            )
        )

    def update_topic(self, topic: str = "orders", partitions: int = 3, **configs: str) -> None:
        """Send UpdateMetadata with a topic; its config has underscores for dots."""
        state = PartitionState(ME, LeaderEpoch(0), (ME,), (ME,))
        self.cluster.apply(
            UpdateMetadataRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(1),
                is_full=False,
                topics=(
                    TopicState(
                        name=topic,
                        topic_id=ORDERS_ID,
                        partitions=(state,) * partitions,
                        configs={name.replace("_", "."): text for name, text in configs.items()},
                    ),
                ),
            )
        )

    def forget_topic(self, topic: str = "orders") -> None:
        self.cluster.apply(
            UpdateMetadataRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(1),
                is_full=False,
                deleted_topics=(topic,),
            )
        )

    # -- writing ---------------------------------------------------------------------------

    def append(
        self,
        *partitions: TopicPartition,
        acks: int = -1,
        timeout_ms: int = 1000,
        records: int = 1,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        batch: bytearray | None = None,
    ) -> Sent:
        batches = [
            (tp, memoryview(some_batch(records) if batch is None else batch[:]))
            for tp in partitions
        ]
        sent = Sent()
        sent.waiting = self.replicas.append(
            batches, acks=acks, timeout_ms=timeout_ms, origin=origin, done=sent.answers.append
        )
        return sent

    def partition(self, name: TopicPartition = P0) -> Partition:
        return self.replicas.get(name)

    def follower_has(
        self, end_offset: int, name: TopicPartition = P0, follower: BrokerId = OTHER
    ) -> None:
        self.replicas.update_follower_end_offset(
            self.replicas.get(name), follower, Offset(end_offset)
        )


class Sent:
    """A produce request and its responses; more than one is an error."""

    def __init__(self) -> None:
        self.answers: list[list[PartitionAppended]] = []
        self.waiting: WatchedOperation[TopicPartition] | None = None

    @property
    def is_answered(self) -> bool:
        assert len(self.answers) <= 1, f"answered {len(self.answers)} times"
        return bool(self.answers)

    @property
    def answer(self) -> list[PartitionAppended]:
        assert self.is_answered, "not answered yet"
        return self.answers[0]

    @property
    def codes(self) -> list[ErrorCode]:
        return [appended.code for appended in self.answer]


def some_batch(
    records: int = 1, *, producer_id: int = -1, sequence: int = -1, epoch: int = 0
) -> bytearray:
    content = [Record(number, WALL_MS, b"k", b"v") for number in range(records)]
    if producer_id < 0:
        return build_batch(content)
    return build_batch(
        content, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
