"""Divides a client's batch on a topic with delayed messages, before any of it is appended.

Everything that an append would refuse is refused here, because messages that wait are durable
before what is left is appended. Not the appends themselves. Invariant: a batch whose records ask
for nothing is not changed, and is checked by its append like any other.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.config.log_config import LogConfig
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import NO_TIMESTAMP, Offset, TopicId, TopicPartition
from penstock.protocol.batch import (
    BatchHeader,
    CorruptBatch,
    stamp_offset_and_epoch,
)
from penstock.protocol.control import build_sequence_batch
from penstock.protocol.divided_batch import (
    DividedBatch,
    InvalidDelayedRecord,
    divide_batch,
    may_divide,
)
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.partition import Partition
from penstock.replication.storage_errors import code_of, message_of
from penstock.storage.engine import AppendOrigin
from penstock.storage.errors import StorageError, without_frames
from penstock.storage.log_validator import prepare, validate_batch
from penstock.storage.producer_replay import check_batch

_UNKNOWN = Offset(-1)

FindInvalid = Callable[[memoryview, LogConfig, TopicPartition, int], PartitionAppended | None]


class Division(NamedTuple):
    """A batch of which something waits, or that cancels something."""

    topic_id: TopicId
    header: BatchHeader  # of the batch as it came
    batch: DividedBatch
    is_duplicate: bool  # the log has what is left of it already

    @property
    def all_waits(self) -> bool:
        return self.batch.left is None

    def what_is_appended(self, now_ms: int) -> bytearray | None:
        """None: a batch without sequences, of which nothing is left."""
        if self.batch.left is not None:
            return self.batch.left
        if self.header.base_sequence < 0 or not self.header.has_producer:
            return None
        return build_sequence_batch(self.header._replace(base_offset=0), timestamp_ms=now_ms)


class DecompressionBudget:
    """Of the batches of a request that are looked into: decompression blocks the event loop."""

    def __init__(self, max_bytes: int) -> None:
        self.left_bytes = max_bytes


def divide(
    partition: Partition,
    records: memoryview,
    budget: DecompressionBudget,
    find_invalid: FindInvalid,
    *,
    now_ms: int,
) -> Division | PartitionAppended | None:
    """None: append the batch as it is, which may refuse it. A result: it is refused."""
    config, tp = partition.log.config, partition.tp
    try:
        header = BatchHeader._make(validate_batch(records, AppendOrigin.CLIENT, tp))
    except StorageError:
        return None
    if header.size > config.max_message_bytes:
        return None
    stamp_offset_and_epoch(records, 0, 0, -1)  # a client may have written anything there
    try:
        if not _may_divide(records, budget, config):
            return None
        invalid = find_invalid(records, config, tp, now_ms)
        if invalid is not None:
            return invalid
        header = BatchHeader._make(validate_batch(records, AppendOrigin.CLIENT, tp))
        limit = config.decompression_limit_bytes
        divided = divide_batch(records, now_ms=now_ms, limit=limit)
        if divided is None:
            return None
        copy = memoryview(bytearray(records))
        prepare(copy, header, config, now_ms=now_ms, origin=AppendOrigin.CLIENT, tp=tp)
        is_duplicate = _is_stored(partition, header, records)
    except InvalidDelayedRecord as error:
        return _refuse(
            ErrorCode.INVALID_RECORD, f"{tp}: record {error.index}: {error}", (error.index,)
        )
    except CorruptBatch as error:
        return _refuse(ErrorCode.INVALID_RECORD, f"{tp}: {error.reason}")
    except StorageError as error:
        return _refuse_storage(partition, error)
    except Refusal as refusal:
        return _refuse(refusal.code, refusal.message)
    return Division(partition.log.topic_id, header, divided, is_duplicate)


def check_again(partition: Partition | None, header: BatchHeader) -> PartitionAppended | bool:
    """After a wait: whether the log has the batch by now, because its producer has sent it again,
    so that all that waits of it is durable; or why it can no longer be appended."""
    if partition is None or not header.has_producer:
        return False
    try:
        return _is_stored(partition, header, memoryview(b""))
    except StorageError as error:
        return _refuse_storage(partition, error)


def _may_divide(records: memoryview, budget: DecompressionBudget, config: LogConfig) -> bool:
    if budget.left_bytes <= 0:
        raise Refusal(
            ErrorCode.REQUEST_TIMED_OUT,  # retriable, because the batch may be valid
            "earlier batches of the request are as much as is looked into at once; send this one "
            "again",
        )
    is_possible, size_bytes = may_divide(records, limit=config.decompression_limit_bytes)
    budget.left_bytes -= size_bytes
    return is_possible


def _is_stored(partition: Partition, header: BatchHeader, records: memoryview) -> bool:
    """Also checks that the batch may follow its producer's last one. StorageError if not."""
    if not header.has_producer:
        return False
    return check_batch(partition.log.producers, header, records, partition.tp) is not None


def _refuse_storage(partition: Partition, error: StorageError) -> PartitionAppended:
    refused = without_frames(error)
    return _refuse(code_of(refused), message_of(refused))._replace(
        log_start_offset=partition.log.log_start_offset
    )


def _refuse(
    code: ErrorCode, message: str | None, indexes: tuple[int, ...] = ()
) -> PartitionAppended:
    errors = tuple((index, message or "") for index in indexes)
    return PartitionAppended(code, _UNKNOWN, NO_TIMESTAMP, _UNKNOWN, message, errors)
