"""Look-ups by timestamp over the segments of a log. Reads only.

A batch whose records do not decode is an error and is never skipped: by its header the result may
be in it, and returning a later record would make consumers skip records silently.
"""

from collections.abc import Iterable, Iterator
from itertools import dropwhile

from penstock.model.ids import LeaderEpoch, Offset, TimestampMs
from penstock.protocol.batch import CorruptBatch
from penstock.protocol.records import Record, iter_records
from penstock.storage.engine import TimestampAndOffset
from penstock.storage.errors import CorruptRecords
from penstock.storage.log_segments import LogSegments
from penstock.storage.segment import Segment
from penstock.storage.segment_file import LocatedBatch


def find_by_time(
    segments: LogSegments, timestamp_ms: int, *, start: int, end: int
) -> TimestampAndOffset | None:
    """The first record in [start, end) whose timestamp is not below `timestamp_ms`."""
    for segment in segments.starting_from(start):
        if segment.max_timestamp < timestamp_ms:
            continue
        batch = segment.find_batch_by_time(timestamp_ms)
        while batch is not None and batch.header.base_offset < end:
            first = _first_in_batch(segment, batch, timestamp_ms, start, end)
            if first is not None:
                return first
            batch = segment.find_batch(batch.header.next_offset)
    return None


def find_appended_after(
    segments: LogSegments, timestamp_ms: int, *, start: int
) -> TimestampAndOffset | None:
    """The first batch from `start` on that a leader appended, by its own clock, after the time.

    By headers alone: all records of such a batch have its append time.
    """
    for segment in segments.starting_from(start):
        if segment.max_timestamp <= timestamp_ms:
            continue
        batch = segment.find_batch_appended_after(timestamp_ms, start)
        if batch is not None:
            header = batch.header
            return TimestampAndOffset(
                Offset(max(header.base_offset, start)),
                TimestampMs(header.max_timestamp),
                LeaderEpoch(header.leader_epoch),
            )
    return None


def find_max_timestamp(segments: LogSegments, *, start: int, end: int) -> TimestampAndOffset | None:
    """The first record in [start, end) with the largest timestamp of all."""
    best: TimestampAndOffset | None = None
    for segment in segments.starting_from(start):
        best = _later(best, _find_max_in_segment(segment, start, end))
    return best


def find_time_of(segments: LogSegments, offset: int) -> TimestampMs | None:
    """The time of the first record from `offset` on, by one batch header; None: it has none.

    In the middle of a batch that of its first record, so that an age computed from it is too large
    by what the batch spans, at most. Where compaction has put a delete horizon in the place of that
    time, the largest of the batch.
    """
    for segment in segments.starting_from(offset):
        batch = segment.find_batch(offset)
        if batch is not None:
            header = batch.header
            is_last = header.is_append_time or header.has_delete_horizon
            timestamp_ms = header.max_timestamp if is_last else header.base_timestamp
            return TimestampMs(timestamp_ms) if timestamp_ms >= 0 else None
    return None


def find_segment_offsets(
    segments: LogSegments, before_ms: int | None, *, start: int
) -> list[Offset]:
    """Base offsets, the newest first, from the newest segment that is not after `before_ms`."""
    newest_first: Iterable[Segment] = reversed(segments.starting_from(start))
    if before_ms is not None:
        newest_first = dropwhile(lambda segment: segment.newest_ms > before_ms, newest_first)
    return [Offset(max(segment.base_offset, start)) for segment in newest_first]


def _find_max_in_segment(segment: Segment, start: int, end: int) -> TimestampAndOffset | None:
    """Search the batch with the segment's maximum, if that record is still in the range.

    Otherwise all batches: the record may have been deleted or compacted away.
    """
    if segment.max_timestamp < 0:
        return None
    batch = segment.find_batch(segment.max_timestamp_offset)
    if batch is not None:
        newest = _max_in_batch(segment, batch, start, end)
        if newest is not None and newest.timestamp_ms == segment.max_timestamp:
            return newest
    best: TimestampAndOffset | None = None
    batch = segment.find_batch(start)
    while batch is not None and batch.header.base_offset < end:
        if best is None or batch.header.max_timestamp > best.timestamp_ms:
            best = _later(best, _max_in_batch(segment, batch, start, end))
        batch = segment.find_batch(batch.header.next_offset)
    return best


def _max_in_batch(
    segment: Segment, batch: LocatedBatch, start: int, end: int
) -> TimestampAndOffset | None:
    if batch.header.last_offset < start:
        return None
    epoch = LeaderEpoch(batch.header.leader_epoch)
    best: TimestampAndOffset | None = None
    for record in _iter_records(segment, batch):
        if record.timestamp_ms >= 0 and start <= record.offset < end:
            candidate = TimestampAndOffset(
                Offset(record.offset), TimestampMs(record.timestamp_ms), epoch
            )
            best = _later(best, candidate)
    return best


def _later(
    first: TimestampAndOffset | None, second: TimestampAndOffset | None
) -> TimestampAndOffset | None:
    if first is None or second is None:
        return first or second
    return second if second.timestamp_ms > first.timestamp_ms else first


def _first_in_batch(
    segment: Segment, batch: LocatedBatch, timestamp_ms: int, start: int, end: int
) -> TimestampAndOffset | None:
    if batch.header.max_timestamp < timestamp_ms or batch.header.last_offset < start:
        return None
    for record in _iter_records(segment, batch):
        if record.timestamp_ms >= timestamp_ms and start <= record.offset < end:
            return TimestampAndOffset(
                Offset(record.offset),
                TimestampMs(record.timestamp_ms),
                LeaderEpoch(batch.header.leader_epoch),
            )
    return None


def _iter_records(segment: Segment, batch: LocatedBatch) -> Iterator[Record]:
    try:
        yield from iter_records(segment.read_batch(batch))
    except CorruptBatch as error:
        raise CorruptRecords(
            f"{segment.file.path}, position {batch.position}: records of the batch at offset "
            f"{batch.header.base_offset} do not decode: {error.reason}; delete them or look up "
            f"by offset"
        ) from error
