"""The partitions that this broker follows: what to ask their leaders for, and what the answers do.

Not the connections: `Fetchers` carries both over the network, the simulation over its own. Owned by
the event loop. Invariant: an answer changes a log only while it follows the leader, in the epoch,
from the offset, that was asked (KAFKA-7786).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_LEADER_EPOCH, Offset, TopicPartition
from penstock.replication.config import FollowerConfig
from penstock.replication.partition import Partition, Role
from penstock.replication.replication_quota import ReplicationQuota
from penstock.replication.topic_config import Report
from penstock.replication.truncation import restart_offset, truncation_offset
from penstock.storage.engine import AppendItem, AppendOrigin, Engine
from penstock.storage.errors import LogFenced, StorageError
from penstock.storage.leader_epoch_cache import EpochEndOffset

if TYPE_CHECKING:
    from penstock.client.data_calls import FetchedPartition, FetchFrom

FIRST_PAUSE_MS = 20  # doubled with each failure in a row, up to replica.fetch.backoff.ms
MOST_DOUBLINGS = 20
HELD_MS = 1000  # throttled, before it is looked again: the rate may be another by then

# The controller's order, here or there, is on the way.
_PASSING = frozenset(
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
    """What a follower needs of its broker's replicas."""

    def keep_durable(self, partition: Partition) -> None: ...  # of a synchronous topic
    def on_fetched(self, partition: Partition) -> None: ...  # readers here may have more
    def handle_log_failures(self) -> None: ...


class Followed:
    """One partition of one leader, in one epoch; only `FollowerState` touches it."""

    __slots__ = (
        "failures",
        "is_behind",
        "leader",
        "leader_epoch",
        "not_before_ms",
        "partition",
        "reported",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader = partition.state.leader
        self.leader_epoch = partition.leader_epoch
        self.failures = 0  # in a row
        self.not_before_ms = 0  # after something went wrong
        self.is_behind = True  # what is committed, as the leader last said
        self.reported: ErrorCode | None = None  # what went wrong is said once


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
        report: Report,
    ) -> None:
        self._engine = engine
        self._quota = quota
        self._dependencies = dependencies
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._config = config
        self._report = report
        self._followed: dict[TopicPartition, Followed] = {}
        self._by_leader: dict[BrokerId, dict[TopicPartition, Followed]] = {}  # no empty entries
        # Called when there is something new to ask this leader for.
        self.on_news: Callable[[BrokerId], None] = lambda leader: None

    # -- who follows -----------------------------------------------------------------------

    def on_role(self, partition: Partition) -> None:
        """It follows, or does not, or another leader, or in another epoch."""
        follows = partition.role is Role.FOLLOWER and partition.state.leader >= 0
        known = self._followed.get(partition.tp)
        if known is not None and not (follows and _is_same(known, partition)):
            self._drop(known)
            known = None
        if known is None and follows:
            self._take_up(partition)

    def on_flushed(self, partition: Partition) -> None:
        if partition.state.leader in self._by_leader:
            self.on_news(partition.state.leader)

    def _drop(self, known: Followed) -> None:
        name = known.partition.tp
        del self._followed[name]
        of_leader = self._by_leader[known.leader]
        del of_leader[name]
        if not of_leader:
            del self._by_leader[known.leader]
        elif known.partition.is_flushing:
            self.on_news(known.leader)  # the others have waited for it

    def _take_up(self, partition: Partition) -> None:
        followed = Followed(partition)
        self._followed[partition.tp] = followed
        self._by_leader.setdefault(followed.leader, {})[partition.tp] = followed
        # An epoch that this broker began as leader, without a record, is not in its history.
        self._cut(followed, partition.log_end_offset)
        self.on_news(followed.leader)

    @property
    def leaders(self) -> list[BrokerId]:
        return list(self._by_leader)

    # -- asking ----------------------------------------------------------------------------

    def list_wanted(self, leader: BrokerId) -> list["FetchFrom"]:
        """What to ask this leader for now. A fetch vouches for all before it: what must be on the
        disk is brought there first, and all wait for it, or what comes late would wait longer."""
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
        """When a partition that rests may be asked for again; None: none does."""
        now_ms = self._now_ms()
        of_leader = self._by_leader.get(leader, {}).values()
        due = (self._due_ms(each, now_ms) for each in of_leader)
        return min((each for each in due if each > now_ms), default=None)

    def _due_ms(self, followed: Followed, now_ms: int) -> int:
        due_ms = followed.not_before_ms
        if followed.is_behind and self._quota.is_fetching(followed.partition.tp):
            ready_ms = self._quota.fetching.ready_at_ms
            due_ms = max(due_ms, min(ready_ms, now_ms + HELD_MS))
        return due_ms

    # -- the answer ------------------------------------------------------------------------

    def take(self, leader: BrokerId, asked: "FetchFrom", answer: "FetchedPartition") -> None:
        followed = self._find_current(leader, asked)
        if followed is None:
            return
        if answer.error is not ErrorCode.NONE:
            self._on_error(followed, answer)
            return
        followed.failures, followed.reported = 0, None
        if answer.diverging is not None:
            self._truncate(followed, EpochEndOffset(*answer.diverging))
            return
        if len(answer.batches) and not self._try_append(followed, answer.batches):
            return
        self._quota.note_fetched(asked.partition, len(answer.batches))
        self._follow_marks(followed.partition, answer)
        followed.is_behind = followed.partition.log_end_offset < answer.high_watermark
        self._dependencies.on_fetched(followed.partition)

    def _find_current(self, leader: BrokerId, asked: "FetchFrom") -> Followed | None:
        followed = self._followed.get(asked.partition)
        if followed is None or followed.leader != leader:
            return None
        if followed.leader_epoch != asked.leader_epoch:
            return None
        return followed if _ends_as_asked(followed.partition, asked) else None

    def _try_append(self, followed: Followed, batches: memoryview) -> bool:
        partition = followed.partition
        item = AppendItem(partition.log, batches, partition.leader_epoch, AppendOrigin.REPLICATION)
        (result,) = self._engine.append([item], self._wall_ms())
        if isinstance(result, StorageError):
            self._on_failure(followed, result)
            return False
        return True

    def _follow_marks(self, partition: Partition, answer: "FetchedPartition") -> None:
        """High watermark and log start travel with the fetch, the leader's own both."""
        log = partition.log
        log.advance_high_watermark(answer.high_watermark)
        start_offset = min(answer.log_start_offset, log.high_watermark)
        if start_offset > log.log_start_offset:
            log.delete_before(start_offset)

    def _truncate(self, followed: Followed, diverging: EpochEndOffset) -> None:
        log = followed.partition.log
        own = log.find_epoch_end(diverging.epoch)
        offset = truncation_offset(diverging, own, log_end_offset=log.log_end_offset)
        self._report(
            f"{log.tp} is cut from {log.log_end_offset} to {offset}: the leader's epoch "
            f"{diverging.epoch} ends at {diverging.end_offset}"
        )
        self._cut(followed, offset)

    def _cut(self, followed: Followed, offset: int) -> None:
        partition = followed.partition
        try:
            partition.log.truncate_to(Offset(offset), self._wall_ms())
        except StorageError as error:
            self._on_failure(followed, error)
        else:
            self._dependencies.on_fetched(partition)  # there may be less to read

    def _on_error(self, followed: Followed, answer: "FetchedPartition") -> None:
        log = followed.partition.log
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            offset = restart_offset(
                log_end_offset=log.log_end_offset,
                has_records=log.latest_epoch != NO_LEADER_EPOCH,
                leader_start_offset=answer.log_start_offset,
            )
            if offset is not None and offset >= 0:
                self._restart(followed, offset)
                return
        self._rest(followed)
        if answer.error not in _PASSING and answer.error is not followed.reported:
            followed.reported = answer.error
            self._report(
                f"{log.tp} gets {answer.error.name} from its leader, broker "
                f"{followed.leader}; it is asked again"
            )

    def _restart(self, followed: Followed, offset: int) -> None:
        partition = followed.partition
        self._report(
            f"{partition.tp} ends at {partition.log_end_offset}, its leader begins at "
            f"{offset}: it starts anew from there"
        )
        try:
            partition.log.restart_at(Offset(offset), self._wall_ms())
        except StorageError as error:
            self._on_failure(followed, error)

    def _on_failure(self, followed: Followed, error: StorageError) -> None:
        """A batch that is broken costs its partition a pause, a disk that is its replicas."""
        self._rest(followed)
        if isinstance(error, LogFenced):
            self._dependencies.handle_log_failures()
        else:
            self._report(f"broker {followed.leader} sent what cannot be stored: {error}")

    def _rest(self, followed: Followed) -> None:
        """Briefly at first: mostly an order is about to arrive at the other end."""
        pause_ms = FIRST_PAUSE_MS << min(followed.failures, MOST_DOUBLINGS)
        followed.failures += 1
        followed.not_before_ms = self._now_ms() + min(pause_ms, self._config().backoff_ms)


def _ends_as_asked(partition: Partition, asked: "FetchFrom") -> bool:
    """Whether the answer is about the log as it is. The offset alone does not tell: it may have
    been cut and have grown to the same length again, with another history (seed 1694)."""
    log = partition.log
    same_end = log.log_end_offset == asked.offset
    return same_end and log.latest_epoch == asked.last_fetched_epoch


def _is_same(known: Followed, partition: Partition) -> bool:
    place = known.partition, known.leader, known.leader_epoch
    return place == (partition, partition.state.leader, partition.leader_epoch)


def fetch_from(partition: Partition, max_bytes: int) -> "FetchFrom":
    from penstock.client.data_calls import FetchFrom  # a single node never needs it

    log = partition.log
    return FetchFrom(
        partition.tp,
        log.log_end_offset,
        max_bytes,
        partition.leader_epoch,
        log.latest_epoch,
        log.log_start_offset,
    )
