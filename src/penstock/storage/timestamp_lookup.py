"""Look-ups by time over the segments of a log. Reads only.

A batch whose records do not decode is an error and never passed over: its header says that the
answer may lie in it, and a later record in its place would make readers skip some in silence.
"""

from collections.abc import Iterator

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
    """The first record in [start, end) whose timestamp is not below the asked one."""
    for segment in segments.starting_from(start):
        if segment.max_timestamp < timestamp_ms:
            continue
        placed = segment.find_batch_by_time(timestamp_ms)
        while placed is not None and placed.header.base_offset < end:
            found = _first_in_batch(segment, placed, timestamp_ms, start, end)
            if found is not None:
                return found
            placed = segment.find_batch(placed.header.next_offset)
    return None


def find_max_timestamp(segments: LogSegments, *, start: int, end: int) -> TimestampAndOffset | None:
    """The first record in [start, end) with the largest timestamp of all."""
    best: TimestampAndOffset | None = None
    for segment in segments.starting_from(start):
        best = _later(best, _find_max_in_segment(segment, start, end))
    return best


def _find_max_in_segment(segment: Segment, start: int, end: int) -> TimestampAndOffset | None:
    """From the batch with the segment's maximum, where it still holds that record in the range;
    else from all: the record may have been deleted, or compacted away."""
    if segment.max_timestamp < 0:
        return None
    placed = segment.find_batch(segment.max_timestamp_offset)
    if placed is not None:
        found = _max_in_batch(segment, placed, start, end)
        if found is not None and found.timestamp_ms == segment.max_timestamp:
            return found
    best: TimestampAndOffset | None = None
    placed = segment.find_batch(start)
    while placed is not None and placed.header.base_offset < end:
        if best is None or placed.header.max_timestamp > best.timestamp_ms:
            best = _later(best, _max_in_batch(segment, placed, start, end))
        placed = segment.find_batch(placed.header.next_offset)
    return best


def _max_in_batch(
    segment: Segment, placed: LocatedBatch, start: int, end: int
) -> TimestampAndOffset | None:
    if placed.header.last_offset < start:
        return None
    epoch = LeaderEpoch(placed.header.leader_epoch)
    best: TimestampAndOffset | None = None
    for record in _iter_records(segment, placed):
        if record.timestamp_ms >= 0 and start <= record.offset < end:
            found = TimestampAndOffset(
                Offset(record.offset), TimestampMs(record.timestamp_ms), epoch
            )
            best = _later(best, found)
    return best


def _later(
    first: TimestampAndOffset | None, second: TimestampAndOffset | None
) -> TimestampAndOffset | None:
    if first is None or second is None:
        return first or second
    return second if second.timestamp_ms > first.timestamp_ms else first


def _first_in_batch(
    segment: Segment, placed: LocatedBatch, timestamp_ms: int, start: int, end: int
) -> TimestampAndOffset | None:
    if placed.header.max_timestamp < timestamp_ms or placed.header.last_offset < start:
        return None
    for record in _iter_records(segment, placed):
        if record.timestamp_ms >= timestamp_ms and start <= record.offset < end:
            return TimestampAndOffset(
                Offset(record.offset),
                TimestampMs(record.timestamp_ms),
                LeaderEpoch(placed.header.leader_epoch),
            )
    return None


def _iter_records(segment: Segment, placed: LocatedBatch) -> Iterator[Record]:
    try:
        yield from iter_records(segment.read_batch(placed))
    except CorruptBatch as error:
        raise CorruptRecords(
            f"{segment.file.path}, position {placed.position}: records of the batch at offset "
            f"{placed.header.base_offset} do not decode: {error.reason}; delete them or look up "
            f"by offset"
        ) from error
