"""Statistics of a broker with as many partitions as a test or a benchmark wants."""

from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.apis.request_counters import ApiRequestCounters, RequestCounters
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.controller.controller import ControllerStatistics
from penstock.metadata_store.session_statistics import SessionStatistics
from penstock.metrics.broker_state import BrokerState
from penstock.metrics.statistics import BrokerStatistics, LoopStatistics, ProcessStatistics
from penstock.model.cluster import BrokerId, PartitionState
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.network.statistics import Counters, NetworkStatistics
from penstock.purgatory.delayed_operations import PurgatoryStatistics
from penstock.purgatory.timing_wheel import WheelStatistics
from penstock.replication.partition import Partition, PartitionStatistics
from penstock.replication.replica_manager import ReplicaManagerStatistics
from penstock.replication.topic_config import TopicConfig
from penstock.replication.topic_traffic import NO_TRAFFIC
from penstock.storage.engine import DirectoryStatistics
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
        controller=ControllerStatistics(True, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0),
        group_coordinator=None,
        groups=(),
        transaction_coordinator=None,
        sessions=SessionStatistics(1, 0, 0),
        timers=WheelStatistics(0, 0, 0, 0, 0, 0),
        loop=LoopStatistics(0, 0.0, 0.0),
        process=ProcessStatistics(0.0, 0.0, 0, 0, 0, 0, 0, ()),
    )
