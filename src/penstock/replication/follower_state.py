"""The partitions that this broker follows: what to fetch from their leaders, and how fetched data
is applied.

Not the connections: `replica_fetcher` carries requests over the network, the simulation over its
own. Owned by the event loop. Invariant: fetched data changes a log only if leader, leader epoch and
log end offset are still those of the request (KAFKA-7786).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.logs.event_logger import EventLogger
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_LEADER_EPOCH, Offset, TopicPartition
from penstock.replication.config import FollowerConfig
from penstock.replication.partition import Partition, Role
from penstock.replication.refused_batches import (
    RefusedBatch,
    damaged_offset_to_drop,
    refusal_pause_ms,
)
from penstock.replication.replication_quota import ReplicationQuota
from penstock.replication.truncation import restart_offset, truncation_offset
from penstock.storage.engine import AppendItem, AppendOrigin, Engine
from penstock.storage.errors import CorruptRecords, LogFenced, StorageError
from penstock.storage.leader_epoch_cache import OffsetAndEpoch

if TYPE_CHECKING:
    from penstock.client.data_calls import FetchedPartition, FetchFrom

FIRST_BACKOFF_MS = 20  # doubled with each consecutive failure, up to replica.fetch.backoff.ms
MAX_DOUBLINGS = 20
RECHECK_MS = 1000  # at most this long throttled without a check: the rate may change

# Transient: a LeaderAndIsr request is on its way to one of the two brokers.
_TRANSIENT = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    )
)


class FollowerDependencies(Protocol):
    """Dependencies of follower state on `ReplicaManager`."""

    def keep_durable(self, partition: Partition) -> None: ...  # if the topic is synchronous
    def on_fetched(self, partition: Partition) -> None: ...  # there may be more to read
    def handle_log_failures(self) -> None: ...


class FollowedPartition:
    """One partition in one leader epoch. Owned by `FollowerState`."""

    __slots__ = (
        "failures",
        "has_reported_refusal",
        "is_behind",
        "lag",
        "leader",
        "leader_epoch",
        "not_before_ms",
        "partition",
        "refusals",
        "reported",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader = partition.state.leader
        self.leader_epoch = partition.leader_epoch
        self.failures = 0  # consecutive
        self.refusals = 0  # consecutive: batches that cannot be appended
        self.has_reported_refusal = False  # refusals are reported once, and once when they end
        self.not_before_ms = 0  # backoff after an error
        self.is_behind = True  # the leader's high watermark
        self.lag = 0  # records below the leader's high watermark, as of the last fetch
        self.reported: ErrorCode | None = None  # an error is reported once


class FollowerState:
    def __init__(
        self,
        *,
        engine: Engine,
        quota: ReplicationQuota,
        dependencies: FollowerDependencies,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        config: Callable[[], FollowerConfig],
        logger: EventLogger,
    ) -> None:
        self._engine = engine
        self._quota = quota
        self._dependencies = dependencies
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._config = config
        self._logger = logger
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._by_leader: dict[
            BrokerId, dict[TopicPartition, FollowedPartition]
        ] = {}  # no empty entries
        # Called when there is something new to fetch from this leader.
        self.on_news: Callable[[BrokerId], None] = lambda leader: None
        # Called with a batch that the leader should check in its own log.
        self.on_refused: Callable[[RefusedBatch], None] = lambda refused: None

    # -- roles -----------------------------------------------------------------------------

    def on_role(self, partition: Partition) -> None:
        """The partition's role, leader or leader epoch has changed."""
        follows = partition.role is Role.FOLLOWER and partition.state.leader >= 0
        followed = self._followed.get(partition.tp)
        if followed is not None and not (follows and _is_same(followed, partition)):
            self._remove(followed)
            followed = None
        if followed is None and follows:
            self._add(partition)

    def on_flushed(self, partition: Partition) -> None:
        if partition.state.leader in self._by_leader:
            self.on_news(partition.state.leader)

    def _remove(self, followed: FollowedPartition) -> None:
        tp = followed.partition.tp
        del self._followed[tp]
        of_leader = self._by_leader[followed.leader]
        del of_leader[tp]
        if not of_leader:
            del self._by_leader[followed.leader]
        elif followed.partition.is_flushing:
            self.on_news(followed.leader)  # the others have waited for its flush

    def _add(self, partition: Partition) -> None:
        followed = FollowedPartition(partition)
        self._followed[partition.tp] = followed
        self._by_leader.setdefault(followed.leader, {})[partition.tp] = followed
        if not self._drop_damage(followed):
            # Forget an epoch that this broker began as leader without appending (KAFKA-7415).
            self._truncate_to(followed, partition.log_end_offset)
        self.on_news(followed.leader)

    def _drop_damage(self, followed: FollowedPartition) -> bool:
        """Fetch what was found damaged here again, from the leader that replaces this broker.

        Damage below the log start was deleted since.
        """
        partition = followed.partition
        log, offset = partition.log, partition.damaged_at
        partition.damaged_at = None
        offset = damaged_offset_to_drop(offset, partition.state, partition.broker_id)
        if offset is None or not log.log_start_offset <= offset < log.log_end_offset:
            return False
        self._logger.warning(
            "log_truncated",
            f"{log.tp} is truncated from {log.log_end_offset} to {offset}, where its log is "
            f"damaged, and fetched again from broker {followed.leader}",
            partition=log.tp,
            from_offset=log.log_end_offset,
            to_offset=offset,
            leader=followed.leader,
        )
        try:
            log.truncate_to(offset, self._wall_ms())
        except CorruptRecords:
            log.restart_at(log.log_start_offset, self._wall_ms())
        except StorageError as error:
            self._on_failure(followed, error)
        partition.on_truncated()
        self._dependencies.on_fetched(partition)
        return True

    @property
    def leaders(self) -> list[BrokerId]:
        return list(self._by_leader)

    @property
    def max_lag(self) -> int:
        return max((followed.lag for followed in self._followed.values()), default=0)

    # -- requests --------------------------------------------------------------------------

    def list_wanted(self, leader: BrokerId) -> list["FetchFrom"]:
        """The partitions to fetch from this leader now. In a synchronous topic a fetch acknowledges
        everything below its offset, so a flush comes first, and all partitions of the leader wait
        for it: one that missed the request would wait longer."""
        now_ms, max_bytes = self._now_ms(), self._config().partition_max_bytes
        of_leader = list(self._by_leader.get(leader, {}).values())
        for followed in of_leader:
            self._dependencies.keep_durable(followed.partition)
        if any(followed.partition.is_flushing for followed in of_leader):
            return []
        return [
            fetch_from(followed.partition, max_bytes)
            for followed in of_leader
            if self._due_ms(followed, now_ms) <= now_ms
        ]

    def next_due_ms(self, leader: BrokerId) -> int | None:
        """When the next partition in backoff may be fetched again; None: none is in backoff."""
        now_ms = self._now_ms()
        of_leader = self._by_leader.get(leader, {}).values()
        due = (self._due_ms(followed, now_ms) for followed in of_leader)
        return min((due_ms for due_ms in due if due_ms > now_ms), default=None)

    def _due_ms(self, followed: FollowedPartition, now_ms: int) -> int:
        due_ms = followed.not_before_ms
        if followed.is_behind:
            ready_ms = self._quota.fetch_ready_at_ms(followed.partition)
            due_ms = max(due_ms, min(ready_ms, now_ms + RECHECK_MS))
        return due_ms

    # -- responses -------------------------------------------------------------------------

    def apply(self, leader: BrokerId, requested: "FetchFrom", fetched: "FetchedPartition") -> None:
        followed = self._find_current(leader, requested)
        if followed is None:
            return
        if fetched.error is not ErrorCode.NONE:
            self._on_error(followed, fetched)
            return
        followed.failures, followed.reported = 0, None
        if fetched.diverging is not None:
            self._truncate(followed, OffsetAndEpoch(*fetched.diverging))
            return
        if len(fetched.batches):
            if not self._try_append(followed, fetched.batches):
                return
            self._end_refusals(followed)
        self._quota.note_fetched(followed.partition, len(fetched.batches))
        self._follow_offsets(followed.partition, fetched)
        followed.lag = max(0, fetched.high_watermark - followed.partition.log_end_offset)
        followed.is_behind = followed.lag > 0
        followed.partition.traffic.replication_bytes_in += len(fetched.batches)
        self._dependencies.on_fetched(followed.partition)

    def _find_current(self, leader: BrokerId, requested: "FetchFrom") -> FollowedPartition | None:
        followed = self._followed.get(requested.tp)
        if followed is None or followed.leader != leader:
            return None
        if followed.leader_epoch != requested.leader_epoch:
            return None
        return followed if _ends_as_requested(followed.partition, requested) else None

    def _try_append(self, followed: FollowedPartition, batches: memoryview) -> bool:
        partition = followed.partition
        item = AppendItem(partition.log, batches, partition.leader_epoch, AppendOrigin.REPLICATION)
        (result,) = self._engine.append([item], self._wall_ms())
        if isinstance(result, StorageError):
            self._on_failure(followed, result)
            return False
        return True

    def _follow_offsets(self, partition: Partition, fetched: "FetchedPartition") -> None:
        """Follow the leader's high watermark and log start offset, which every response carries."""
        log = partition.log
        log.advance_high_watermark(fetched.high_watermark)
        start_offset = min(fetched.log_start_offset, log.high_watermark)
        if start_offset > log.log_start_offset:
            log.delete_before(start_offset)

    def _truncate(self, followed: FollowedPartition, diverging: OffsetAndEpoch) -> None:
        log = followed.partition.log
        own = log.find_epoch_end(diverging.epoch)
        offset = truncation_offset(diverging, own, log_end_offset=log.log_end_offset)
        self._logger.info(
            "log_truncated",
            f"{log.tp} is truncated from {log.log_end_offset} to {offset}: leader epoch "
            f"{diverging.epoch} ends at {diverging.end_offset} on the leader",
            partition=log.tp,
            from_offset=log.log_end_offset,
            to_offset=offset,
            leader=followed.leader,
            leader_epoch=followed.leader_epoch,
        )
        self._truncate_to(followed, offset)

    def _truncate_to(self, followed: FollowedPartition, offset: int) -> None:
        partition = followed.partition
        try:
            partition.log.truncate_to(Offset(offset), self._wall_ms())
        except StorageError as error:
            self._on_failure(followed, error)
        else:
            partition.on_truncated()
            self._dependencies.on_fetched(partition)  # there may be less to read

    def _on_error(self, followed: FollowedPartition, fetched: "FetchedPartition") -> None:
        log = followed.partition.log
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            offset = restart_offset(
                log_end_offset=log.log_end_offset,
                has_records=log.latest_epoch != NO_LEADER_EPOCH,
                leader_start_offset=fetched.log_start_offset,
            )
            if offset is not None and offset >= 0:
                self._restart(followed, offset)
                return
        if fetched.error is ErrorCode.CORRUPT_MESSAGE:
            self._refuse(followed, "the leader cannot read it")
            return
        self._back_off(followed)
        if fetched.error is ErrorCode.KAFKA_STORAGE_ERROR:
            self._ask_leader(followed)  # an unreadable part does not end its leadership by itself
        if fetched.error not in _TRANSIENT and fetched.error is not followed.reported:
            followed.reported = fetched.error
            self._logger.warning(
                "follower_error",
                f"{log.tp} gets {fetched.error.name} from its leader, broker "
                f"{followed.leader}; retrying",
            )

    def _restart(self, followed: FollowedPartition, offset: int) -> None:
        partition = followed.partition
        self._logger.warning(
            "log_restarted",
            f"{partition.tp} ends at {partition.log_end_offset}, but its leader starts at "
            f"{offset}: starting over from there",
            partition=partition.tp,
            from_offset=partition.log_end_offset,
            to_offset=offset,
        )
        try:
            partition.log.restart_at(Offset(offset), self._wall_ms())
        except StorageError as error:
            self._on_failure(followed, error)
        partition.on_truncated()

    def _on_failure(self, followed: FollowedPartition, error: StorageError) -> None:
        """Corrupt batch: the leader has to check it. Disk error: take the log dir's replicas
        offline."""
        if isinstance(error, LogFenced):
            self._back_off(followed)
            self._dependencies.handle_log_failures()
        else:
            self._refuse(followed, str(error))

    def _refuse(self, followed: FollowedPartition, reason: str) -> None:
        """Back off this partition, longer each time, and ask the leader to check its log."""
        followed.refusals += 1
        pause_ms = refusal_pause_ms(followed.refusals)
        followed.not_before_ms = self._now_ms() + pause_ms
        tp, offset = followed.partition.tp, followed.partition.log_end_offset
        if not followed.has_reported_refusal:
            followed.has_reported_refusal = True
            self._logger.warning(
                "batch_refused",
                f"records of {tp} from broker {followed.leader} at offset {offset} cannot be "
                f"appended: {reason}; asking it to check its log, and retrying ever less often",
            )
        self._ask_leader(followed)

    def _ask_leader(self, followed: FollowedPartition) -> None:
        """Ask it to check its log where this replica fetches."""
        partition = followed.partition
        self.on_refused(
            RefusedBatch(
                partition.tp, followed.leader, followed.leader_epoch, partition.log_end_offset
            )
        )

    def _end_refusals(self, followed: FollowedPartition) -> None:
        followed.refusals = 0
        if followed.has_reported_refusal:
            followed.has_reported_refusal = False
            self._logger.info(
                "batch_accepted_again",
                f"records of {followed.partition.tp} from broker {followed.leader} are appended "
                "again",
            )

    def _back_off(self, followed: FollowedPartition) -> None:
        """Short at first: usually a LeaderAndIsr request is about to reach the leader."""
        backoff_ms = FIRST_BACKOFF_MS << min(followed.failures, MAX_DOUBLINGS)
        followed.failures += 1
        followed.not_before_ms = self._now_ms() + min(backoff_ms, self._config().backoff_ms)


def _ends_as_requested(partition: Partition, requested: "FetchFrom") -> bool:
    """Whether the response is for the log as it is. The offset alone does not tell: the log may
    have been truncated and have grown to the same offset with other records (seed 1694)."""
    log = partition.log
    same_end = log.log_end_offset == requested.offset
    return same_end and log.latest_epoch == requested.last_fetched_epoch


def _is_same(followed: FollowedPartition, partition: Partition) -> bool:
    current = followed.partition, followed.leader, followed.leader_epoch
    return current == (partition, partition.state.leader, partition.leader_epoch)


def fetch_from(partition: Partition, max_bytes: int) -> "FetchFrom":
    from penstock.client.data_calls import FetchFrom  # lazily: a single node never needs it

    log = partition.log
    return FetchFrom(
        partition.tp,
        log.log_end_offset,
        max_bytes,
        partition.leader_epoch,
        log.latest_epoch,
        log.log_start_offset,
    )
