"""Every error that storage raises on purpose. `replication` maps them to Kafka's error codes.

An OSError is not one of them until a log has fenced itself because of it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.io.disk import advise
from penstock.model.ids import Offset, TopicPartition

if TYPE_CHECKING:  # the index raises the error that carries its entries
    from penstock.storage.transaction_index import AbortedTxn


class StorageError(Exception):
    """Storage could not do what was requested; the message says why and what next."""


def without_frames(error: StorageError) -> StorageError:
    """Drop the traceback of an error that becomes a result.

    Its frames would keep the request alive whose batch was rejected, and because they refer to the
    result, until the next garbage collection.
    """
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


# The requested thing does not exist, or exists already.


class OffsetOutOfRange(StorageError):
    """The offset is outside of the log: deleted, truncated or not written yet."""

    def __init__(self, requested: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(
            f"offset {requested} is outside of the log, which holds {log_start_offset} up to "
            f"(not including) {log_end_offset}; reset to its start or its end"
        )
        self.requested = Offset(requested)
        self.log_start_offset = Offset(log_start_offset)
        self.log_end_offset = Offset(log_end_offset)


class UnknownPartition(StorageError):
    """There is no log of this partition."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(f"no log of {tp} in any directory here; create it first")
        self.tp = tp


class PartitionExists(StorageError):
    """There is already a log of this partition."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(f"a log of {tp} exists already; delete it before creating it again")
        self.tp = tp


# The batches cannot be stored.


class CorruptRecords(StorageError):
    """The bytes are not valid batches: damaged in transit or on the disk."""


class RecordTooLarge(StorageError):
    """A batch exceeds max.message.bytes of its topic."""


class SegmentTooSmall(StorageError):
    """The batches of one append exceed segment.bytes: no segment could ever hold them."""


class InvalidRecords(StorageError):
    """Well-formed batches that this log may not hold, such as no key on a compacted topic."""


class InvalidTimestamp(StorageError):
    """A timestamp is farther from the broker's clock than the topic allows."""


class UnexpectedOffset(StorageError):
    """A follower's append does not continue its log."""


# The log or its directory does not work.


class LogFenced(StorageError):
    """An earlier write failed, so the log takes no more: later appends could be lost."""

    def __init__(self, where: object, first_error: BaseException) -> None:
        super().__init__(
            f"{where} takes no writes because one failed with {type(first_error).__name__}: "
            f"{first_error}; {advise(first_error)} and restart the broker"
        )
        self.first_error = first_error


class DirectoryFailed(StorageError):
    """A log directory had an I/O error, so all of its logs are offline."""

    def __init__(self, directory: str, first_error: BaseException) -> None:
        super().__init__(
            f"log directory {directory} is offline because of {type(first_error).__name__}: "
            f"{first_error}; {advise(first_error)} and restart the broker"
        )
        self.directory = directory
        self.first_error = first_error


class DirectoryLocked(StorageError):
    """Another process serves this log directory."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"log directory {directory} is in use by another process; stop that broker or give "
            f"this one its own log.dirs"
        )
        self.directory = directory


# A small file is malformed. Recovery reports it and rebuilds the file.


class MalformedCheckpoint(StorageError):
    """A small text file of a log directory does not parse."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(f"{path}, line {line}: {problem}")
        self.path = path
        self.line = line  # counted from 1
        self.problem = problem


class MalformedTransactionIndex(StorageError):
    """A transaction index is damaged after its `valid` entries."""

    def __init__(self, path: str, valid: Sequence["AbortedTxn"], problem: str) -> None:
        super().__init__(f"{path}, after {len(valid)} valid entries: {problem}")
        self.path = path
        self.valid = list(valid)
        self.problem = problem


class CorruptSnapshot(StorageError):
    """A producer snapshot is damaged; an older one and the log replace it."""


# An idempotent or transactional producer broke a rule, or was replaced.


class UnknownProducer(StorageError):
    """The producer is unknown here, and the batch is not its first."""


class OutOfOrderSequence(StorageError):
    """Batches are missing between the producer's last one here and this one."""


class DuplicateSequence(StorageError):
    """The batch was stored so long ago that its offset is no longer known."""


class InvalidProducerEpoch(StorageError):
    """A newer instance of this producer exists: its epoch is higher."""


class InvalidTransactionState(StorageError):
    """The write does not fit the producer's open transaction."""


class CoordinatorFenced(StorageError):
    """A marker comes from a transaction coordinator that has been replaced."""
