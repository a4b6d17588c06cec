"""The interface between storage and the packages above it: engines, logs and their values.

No implementation, and no replicas. An engine and its logs belong to one owner thread; only the work
of a `Job` between its visits to the owner, and the syncing behind `flush`, run elsewhere.
Invariant of every log after every call: log_start_offset <= high_watermark <= log_end_offset, and
durable_offset <= log_end_offset.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from penstock.config.log_config import LogConfig
from penstock.model.ids import LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition
from penstock.model.slices import FileSlice, Releasable, total_bytes
from penstock.storage.errors import StorageError
from penstock.storage.flush_times import NO_FLUSHES, FlushStatistics
from penstock.storage.leader_epoch_cache import EpochEntry, OffsetAndEpoch
from penstock.storage.producer_state_manager import ProducerStateEntry, ProducerStateManager
from penstock.storage.transaction_index import AbortedTxn

Result = TypeVar("Result")
NO_TOPIC_ID = TopicId(UUID(int=0))  # of a log whose topic id could not be read


class AppendOrigin(Enum):
    """The sender of the batches, which decides what they may contain."""

    CLIENT = "client"
    COORDINATOR = "coordinator"  # may write control batches and internal topics
    # Messages that have waited, or what is left of a batch without those that wait: checked when
    # they came, so that their size and time count no more.
    DEFERRED = "deferred"
    REPLICATION = "replication"  # offsets and epochs are the leader's and stay


class Read(NamedTuple):
    """Whole batches in file slices. The slices stay readable until the lease is released."""

    slices: Sequence[FileSlice]
    end_offset: Offset  # where the next read continues
    lease: Releasable

    @property
    def size_bytes(self) -> int:
        return total_bytes(self.slices)


class DamagedBatch(NamedTuple):
    """A batch in a log that is not what was appended."""

    offset: Offset  # everything before it, from where the check began, is whole
    reason: str


class LogBeginning(NamedTuple):
    """How a log begins that is copied from another engine, before its batches are appended."""

    tp: TopicPartition
    topic_id: TopicId
    start_offset: Offset
    epochs: Sequence[EpochEntry]  # also those that begin later
    producers: Sequence[ProducerStateEntry]  # without a batch in the copied log


class LogAppendInfo(NamedTuple):
    base_offset: Offset
    end_offset: Offset  # one past the last record
    append_time_ms: TimestampMs  # -1 unless the topic uses LogAppendTime
    duplicate: bool  # the batch was stored before; these are its first offsets


class AppendItem(NamedTuple):
    """One partition's part of a request. Leaders write offsets into `batches` in place."""

    log: "PartitionLog"
    batches: memoryview
    leader_epoch: LeaderEpoch
    origin: AppendOrigin = AppendOrigin.CLIENT


class TimestampAndOffset(NamedTuple):
    offset: Offset
    timestamp_ms: TimestampMs
    leader_epoch: LeaderEpoch


class LogStatistics(NamedTuple):
    tp: TopicPartition
    directory: str
    log_start_offset: Offset
    last_stable_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset
    durable_offset: Offset
    size_bytes: int
    segments: int
    producers: int
    fenced: str | None  # the first write error, if there was one


class DirectoryStatistics(NamedTuple):
    directories: int
    failed: Mapping[str, str]  # path -> first error
    open_files: int
    flushes: FlushStatistics = NO_FLUSHES


class EngineStatistics(NamedTuple):
    logs: tuple[LogStatistics, ...]
    failed_directories: Mapping[str, str]  # path -> first error
    open_files: int


class OnOwner(Protocol):
    """Runs a short function on the owner thread and returns its result."""

    def __call__(self, function: Callable[[], Result]) -> Result: ...


class Job(Protocol):
    """A bounded piece of maintenance. `run` is called off the owner thread."""

    name: str

    def run(self, on_owner: OnOwner) -> None: ...


class RecoveryProgress(Protocol):
    def __call__(self, *, done: int, total: int) -> None: ...


class PartitionLog(Protocol):
    tp: TopicPartition
    topic_id: TopicId
    config: LogConfig
    log_start_offset: Offset
    log_end_offset: Offset
    durable_offset: Offset
    high_watermark: Offset

    @property
    def failure(self) -> OSError | None: ...  # the error that fenced the log, if any
    @property
    def last_stable_offset(self) -> Offset: ...
    @property
    def producers(self) -> ProducerStateManager: ...
    @property
    def latest_epoch(self) -> LeaderEpoch: ...
    @property
    def appended_bytes(self) -> int:
        """A position that every append raises by its bytes; only a cut may lower it."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def segment_count(self) -> int: ...
    def advance_high_watermark(self, offset: Offset) -> None: ...
    def read(
        self,
        start: Offset,
        *,
        below: Offset,
        max_bytes: int,
        at_least_one: bool,
        skip_empty: bool = False,
    ) -> Read: ...
    def find_damage(self, start: Offset, max_bytes: int) -> DamagedBatch | None:
        """The first damaged batch that a read from `start` returns; None: all are whole.

        Bytes that the disk does not return are damaged from `start` on. OSError if a shortage of
        descriptors or memory prevents the check.
        """
        ...

    def find_by_time(self, timestamp_ms: TimestampMs) -> TimestampAndOffset | None: ...
    def find_appended_after(
        self, timestamp_ms: TimestampMs, start: Offset
    ) -> TimestampAndOffset | None:
        """The first batch from `start` on with an append time (LogAppendTime) after the time; its
        base offset, or `start` if it begins before that."""
        ...

    def find_max_timestamp(self) -> TimestampAndOffset | None: ...
    def find_time_of(self, offset: Offset) -> TimestampMs | None:
        """When the first record from `offset` on was written, by the header of its batch: the time
        of that batch's first record. None past the end, or for records without timestamps."""
        ...

    def segment_offsets(self, *, before_ms: TimestampMs | None = None) -> Sequence[Offset]:
        """Base offsets of the segments, or the log start offset in place of the first, the newest
        first; with `before_ms` from the newest segment that has no record after it."""
        ...

    def find_epoch_end(self, epoch: LeaderEpoch) -> OffsetAndEpoch | None: ...
    def begin_epoch(self, epoch: LeaderEpoch) -> None: ...
    def truncate_to(self, offset: Offset, now_ms: int) -> None: ...
    def restart_at(self, offset: Offset, now_ms: int) -> None: ...
    def delete_before(self, offset: Offset) -> None: ...
    def aborted(self, start: Offset, below: Offset) -> Sequence[AbortedTxn]: ...
    def reconfigure(self, config: LogConfig) -> None: ...
    def statistics(self) -> LogStatistics: ...


class Engine(Protocol):
    """All logs of one broker: everything that the packages above storage may ask for.

    Call `lock` or `recover` first, and `close` or `abandon` last; afterwards every log handed out
    answers LogFenced. Methods belong to the owner thread unless their docstring says otherwise.
    """

    def lock(self) -> None:
        """Take the locks of all log directories that work, so that no other process uses them.

        `recover` does it too; call it earlier to touch other files in those directories. Calling it
        twice is harmless. DirectoryLocked if another process holds one; then none is held.
        A directory that cannot be locked for another reason counts as failed.
        """
        ...

    def recover(
        self, progress: RecoveryProgress, now_ms: int
    ) -> Mapping[TopicPartition, PartitionLog]:
        """Open every log of every directory that works, repairing what a crash left behind.

        May run off the owner thread, which must not use the engine before it returns.
        DirectoryFailed if no directory works; then no lock is held.
        """
        ...

    def missing(self) -> Set[TopicPartition]:
        """The partitions whose data is gone: checkpoints name them, but `recover` found no log, or
        none with a segment.

        Partitions of a failed directory are offline, not missing. A partition is no longer missing
        once it is created again. One that was deleted just before a crash may be listed too, as
        checkpoints are rewritten later: compare with the cluster's metadata. The next checkpoint
        forgets these partitions, so a later start does not list them again.
        """
        ...

    def short(self) -> Mapping[TopicPartition, Offset]:
        """The logs that ended below their checkpointed high watermark when `recover` opened them,
        each with that high watermark: records that were committed are gone."""
        ...

    def without_segments(self) -> Set[TopicPartition]:
        """The logs that `recover` opened from a folder without any segment: either their creation
        was cut short, or the files are gone. They are `missing` too if a checkpoint names them."""
        ...

    def create(
        self,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        now_ms: int,
        *,
        is_new: bool = True,
    ) -> PartitionLog:
        """Make an empty log. PartitionExists if there is one; DirectoryFailed if none can be made.

        `is_new=False` means that the partition may already have records. While a directory is
        failed they may be there, and an empty log would hide them: DirectoryFailed is raised.
        """
        ...

    def delete(self, tp: TopicPartition) -> None:
        """Remove a log at once; reads that hold a lease finish. UnknownPartition if there is none.

        A job of `due_jobs` removes the files.
        """
        ...

    def append(
        self, items: Sequence[AppendItem], now_ms: int
    ) -> list[LogAppendInfo | StorageError]:
        """Append all items of one request. One result per item; a failed item affects no other."""
        ...

    def flush(
        self,
        log: PartitionLog,
        upto: Offset,
        done: Callable[[StorageError | None], None],
    ) -> None:
        """Group commit: `done` runs on the owner once durable_offset >= upto, or with the error."""
        ...

    def due_jobs(self, now_ms: int) -> Sequence[Job]:
        """Checkpoints, retention, compaction and removals that are due. The caller runs them."""
        ...

    def check_any_works(self) -> None:
        """DirectoryFailed if every log directory has failed, so that no record can be stored."""
        ...

    def statistics(self) -> EngineStatistics: ...

    def directory_statistics(self) -> DirectoryStatistics:
        """Without the logs, of which there may be many."""

    def close(self) -> None:
        """Flush everything, mark the shutdown as clean and unlock: the next start checks nothing.

        Flushes and jobs must have ended. May run off the owner thread, as the last call.
        """
        ...

    def abandon(self) -> None:
        """Close files and unlock without flushing, as a crash would: the next start recovers.

        Harmless after `close` and when called twice.
        """
        ...
