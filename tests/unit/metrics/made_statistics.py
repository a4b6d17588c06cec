"""Statistics of a broker with as many partitions as a test or a benchmark wants."""

from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.apis.request_counters import ApiRequestCounters, RequestCounters
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.controller.balancing.balancer import BalancerStatistics
from penstock.controller.controller import ControllerStatistics
from penstock.metadata_store.session_statistics import SessionStatistics
from penstock.metrics.broker_state import BrokerState
from penstock.metrics.statistics import BrokerStatistics, LoopStatistics, ProcessStatistics
from penstock.model.cluster import BrokerId, PartitionState
from penstock.model.ids import LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition
from penstock.network.statistics import Counters, NetworkStatistics
from penstock.protocol.records import Record, build_batch
from penstock.purgatory.delayed_operations import PurgatoryStatistics
from penstock.purgatory.timing_wheel import WheelStatistics
from penstock.replication.partition import Partition, PartitionStatistics
from penstock.replication.replica_manager import ReplicaManagerStatistics
from penstock.replication.topic_config import TopicConfig
from penstock.replication.topic_traffic import NO_TRAFFIC
from penstock.security.audit.trail import AuditStatistics
from penstock.security.quotas.client_quotas import NO_QUOTAS
from penstock.storage.engine import AppendItem, DirectoryStatistics
from penstock.storage.segmented_engine import SegmentedEngine

ONE = BrokerId(1)
APIS = 25  # that clients and brokers of a cluster use


def make_partition(folder: Path) -> Partition:
    engine = SegmentedEngine(
        StorageConfig(log_dirs=(str(folder),)), config_of=lambda topic: LogConfig()
    )
    engine.recover(lambda *, done, total: None, 0)
    tp = TopicPartition("t", 0)
    log = engine.create(tp, TopicId(UUID(int=1)), LogConfig(), 0, is_new=True)
    partition = Partition(ONE, log, TopicConfig.of(LogConfig(), 1))
    partition.lead(PartitionState(ONE, LeaderEpoch(0), (ONE,), (ONE,)), 0)
    return partition


def make_partitions(folder: Path, count: int) -> dict[TopicPartition, Partition]:
    """Each with a log of its own: three records at 1,000, 2,000 and 3,000 ms, all committed."""
    engine = SegmentedEngine(
        StorageConfig(log_dirs=(str(folder),)), config_of=lambda topic: LogConfig()
    )
    engine.recover(lambda *, done, total: None, 0)
    partitions: dict[TopicPartition, Partition] = {}
    for number in range(count):
        tp = TopicPartition(f"t{number // 10}", number % 10)
        log = engine.create(tp, TopicId(UUID(int=1)), LogConfig(), 0, is_new=True)
        partition = partitions[tp] = Partition(ONE, log, TopicConfig.of(LogConfig(), 1))
        partition.lead(PartitionState(ONE, LeaderEpoch(0), (ONE,), (ONE,)), 0)
        for time_ms in (1_000, 2_000, 3_000):
            batch = build_batch([Record(0, time_ms, None, b"v" * 100)])
            engine.append([AppendItem(log, memoryview(batch), LeaderEpoch(0))], time_ms)
        partition.advance_high_watermark()
    return partitions


def find_no_time(tp: TopicPartition, offset: Offset) -> TimestampMs | None:
    """For statistics without groups: nothing is looked up."""
    raise AssertionError(f"{tp} at {offset} was looked up")


def make_statistics(partitions: tuple[PartitionStatistics, ...]) -> BrokerStatistics:
    purgatory = PurgatoryStatistics(0, 0, 0, 0, 0, 0, 0, 0)
    counters = RequestCounters()
    for number in range(APIS):
        counters.by_key[number] = ApiRequestCounters(f"Api{number}", 0)
        counters.by_key[number].started[0] = 1
    names: dict[str, Any] = dict.fromkeys(Counters.__slots__, 0)
    network = NetworkStatistics(
        connections=0, receive_buffer_bytes=0, waiting_for_memory=0, listeners={}, **names
    )
    return BrokerStatistics(
        broker_id=ONE,
        cluster_id="bench",
        version="0",
        state=BrokerState.RUNNING,
        wall_ms=0,
        monotonic_s=1.0,
        brokers={ONE: "127.0.0.1:9092"},
        topic_partitions={},
        network=network,
        requests=counters.statistics(),
        replicas=ReplicaManagerStatistics(
            partitions=partitions,
            traffic={partition.tp.topic: NO_TRAFFIC for partition in partitions},
            other_traffic=NO_TRAFFIC,
            isr_shrinks=0,
            isr_expands=0,
            max_lag=0,
            offline=(),
            produces=purgatory,
            fetches=purgatory,
        ),
        directories=DirectoryStatistics(1, {}, 0),
        remaining_logs=0,
        controller=ControllerStatistics(
            True, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, BalancerStatistics(3, 2, False, {BrokerId(4): 12.5})
        ),
        group_coordinator=None,
        groups=(),
        transaction_coordinator=None,
        deferred_coordinator=None,
        sessions=SessionStatistics(1, 0, 0),
        timers=WheelStatistics(0, 0, 0, 0, 0, 0),
        loop=LoopStatistics(0, 0.0, 0.0),
        process=ProcessStatistics(0.0, 0.0, 0, 0, 0, 0, 0, ()),
        quotas=NO_QUOTAS.statistics(),
        audit=AuditStatistics(),
    )
