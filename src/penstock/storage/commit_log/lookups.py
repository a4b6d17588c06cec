"""Look-ups by timestamp over the entries of a partition. Reads only.

An entry's time is the largest timestamp up to it, so that a binary search finds the first batch
that may match; the headers and records decide. A batch whose records do not decode is an error and
is never skipped, as in `timestamp_lookup`.
"""

from collections.abc import Iterator

from penstock.model.ids import LeaderEpoch, Offset, TimestampMs
from penstock.protocol.batch import BatchHeader, CorruptBatch
from penstock.protocol.records import Record, iter_records
from penstock.storage.commit_log.consume_queue import QueueEntry
from penstock.storage.commit_log.partition_entries import PartitionEntries
from penstock.storage.engine import TimestampAndOffset
from penstock.storage.errors import CorruptRecords


def find_by_time(log: PartitionEntries, timestamp_ms: int) -> TimestampAndOffset | None:
    """The first record from the log start on whose timestamp is not below `timestamp_ms`."""
    for entry, header in _headers_from(log, log.queue.find_time(timestamp_ms)):
        if header.max_timestamp < timestamp_ms:
            continue
        for record in _records_of(log, entry):
            if record.timestamp_ms >= timestamp_ms and record.offset >= log.log_start_offset:
                return _timed(record, header)
    return None


def find_appended_after(
    log: PartitionEntries, timestamp_ms: int, start: int
) -> TimestampAndOffset | None:
    """The first batch from `start` on that a leader appended, by its own clock, after the time."""
    queue = log.queue
    for _, header in _headers_from(log, max(queue.find(start), queue.find_time(timestamp_ms + 1))):
        if header.is_append_time and header.max_timestamp > timestamp_ms:
            return TimestampAndOffset(
                Offset(max(header.base_offset, start)),
                TimestampMs(header.max_timestamp),
                LeaderEpoch(header.leader_epoch),
            )
    return None


def find_max_timestamp(log: PartitionEntries) -> TimestampAndOffset | None:
    """The first record with the largest timestamp of all."""
    queue = log.queue
    last = queue.last()
    if last is None or last.time_ms < 0:
        return None
    index = queue.find_time(last.time_ms)
    newest = _max_in_batch(log, queue.entry(index))
    if newest is not None and newest.timestamp_ms == last.time_ms:
        return newest
    # That record was deleted or compacted away.
    best: TimestampAndOffset | None = None
    for entry, header in _headers_from(log, queue.first):
        if best is None or header.max_timestamp > best.timestamp_ms:
            newest = _max_in_batch(log, entry)
            if newest is not None and (best is None or newest.timestamp_ms > best.timestamp_ms):
                best = newest
    return best


def find_time_of(log: PartitionEntries, offset: int) -> TimestampMs | None:
    """The time of the first record from `offset` on, by one batch header; None: it has none."""
    index = log.queue.find(max(offset, log.log_start_offset))
    if index >= log.queue.end:
        return None
    header = log.header_of(log.queue.entry(index))
    is_last = header.is_append_time or header.has_delete_horizon
    timestamp_ms = header.max_timestamp if is_last else header.base_timestamp
    return TimestampMs(timestamp_ms) if timestamp_ms >= 0 else None


def _headers_from(log: PartitionEntries, index: int) -> Iterator[tuple[QueueEntry, BatchHeader]]:
    for entry in log.queue.entries(index, log.queue.end):
        yield entry, log.header_of(entry)


def _max_in_batch(log: PartitionEntries, entry: QueueEntry) -> TimestampAndOffset | None:
    header = log.header_of(entry)
    best: Record | None = None
    for record in _records_of(log, entry):
        if record.timestamp_ms < 0 or record.offset < log.log_start_offset:
            continue
        if best is None or record.timestamp_ms > best.timestamp_ms:
            best = record
    return None if best is None else _timed(best, header)


def _timed(record: Record, header: BatchHeader) -> TimestampAndOffset:
    return TimestampAndOffset(
        Offset(record.offset), TimestampMs(record.timestamp_ms), LeaderEpoch(header.leader_epoch)
    )


def _records_of(log: PartitionEntries, entry: QueueEntry) -> Iterator[Record]:
    try:
        yield from iter_records(log.read_batch(entry))
    except CorruptBatch as error:
        raise CorruptRecords(
            f"{log.tp}: records of the batch at offset {entry.base_offset} do not decode: "
            f"{error.reason}; delete them or look up by offset"
        ) from error
