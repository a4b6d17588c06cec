"""BrokerStatistics: one frozen snapshot that joins those of all packages of a broker.

`server` collects it. Counters count since the start of the broker's process.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.apis.request_counters import ApiRequestStatistics
from penstock.controller.controller import ControllerStatistics
from penstock.coordinators.deferred.counts import DeferredCoordinatorStatistics
from penstock.coordinators.group.coordinator import GroupCoordinatorStatistics, GroupStatistics
from penstock.coordinators.transaction.coordinator import TransactionCoordinatorStatistics
from penstock.metadata_store.session_statistics import SessionStatistics
from penstock.metrics.broker_state import BrokerState
from penstock.model.cluster import BrokerId
from penstock.model.histogram import NO_DURATIONS, DurationsSnapshot
from penstock.model.quotas import QuotaKey
from penstock.network.statistics import NetworkStatistics
from penstock.purgatory.timing_wheel import WheelStatistics
from penstock.replication.replica_manager import ReplicaManagerStatistics
from penstock.security.audit.trail import AuditStatistics
from penstock.security.quotas.client_quotas import ThrottleStatistics
from penstock.storage.engine import DirectoryStatistics


class LoopStatistics(NamedTuple):
    stalls: int  # callbacks above the watchdog's limit
    longest_stall_ms: float
    busy_share: float  # of the last seconds, 0 to 1: processor time of the loop's thread
    stall_times: DurationsSnapshot = NO_DURATIONS  # of the stalls
    pauses: int = 0  # of the whole process, above a second
    paused_s: float = 0.0  # all of them together


class ProcessStatistics(NamedTuple):
    start_time_s: float  # epoch
    cpu_s: float
    resident_bytes: int
    open_fds: int
    max_fds: int
    disk_read_bytes: int
    disk_written_bytes: int
    gc_collections: tuple[int, ...]  # by generation


class BrokerStatistics(NamedTuple):
    broker_id: BrokerId
    cluster_id: str
    version: str
    state: BrokerState
    wall_ms: int  # when it was collected
    monotonic_s: float  # likewise
    brokers: Mapping[BrokerId, str]  # registered; the address that clients see
    topic_partitions: Mapping[str, int]  # number of partitions by topic, of the whole cluster
    network: NetworkStatistics
    requests: tuple[ApiRequestStatistics, ...]
    replicas: ReplicaManagerStatistics
    directories: DirectoryStatistics
    remaining_logs: int  # to recover
    controller: ControllerStatistics
    group_coordinator: GroupCoordinatorStatistics | None  # None: not built
    groups: tuple[GroupStatistics, ...]
    transaction_coordinator: TransactionCoordinatorStatistics | None  # likewise
    deferred_coordinator: DeferredCoordinatorStatistics | None  # likewise
    sessions: SessionStatistics
    timers: WheelStatistics
    loop: LoopStatistics
    process: ProcessStatistics
    quotas: Mapping[QuotaKey, ThrottleStatistics]
    audit: AuditStatistics
