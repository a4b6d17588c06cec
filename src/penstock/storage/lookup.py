"""Look-ups by time over the segments of a log. Reads only."""

from collections.abc import Iterator

from penstock.model.ids import LeaderEpoch, Offset, TimestampMs
from penstock.protocol.records import iter_records
from penstock.storage.engine import TimedOffset
from penstock.storage.segment import Placed, Segment
from penstock.storage.segments import Segments


def find_by_time(
    segments: Segments, timestamp_ms: int, *, start: int, end: int
) -> TimedOffset | None:
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


def find_max_timestamp(segments: Segments, *, start: int, end: int) -> TimedOffset | None:
    """The first record in [start, end) with the largest timestamp of all."""
    best: tuple[Segment, Placed] | None = None
    for segment in segments.starting_from(start):
        for placed in _candidates(segment, start):
            if placed.header.base_offset < end and (
                best is None or placed.header.max_timestamp > best[1].header.max_timestamp
            ):
                best = segment, placed
    if best is None or best[1].header.max_timestamp < 0:
        return None
    segment, placed = best
    return _first_in_batch(segment, placed, placed.header.max_timestamp, start, end)


def _candidates(segment: Segment, start: int) -> Iterator[Placed]:
    """The batch with the segment's maximum; all from `start` on where that one lies before it."""
    if segment.max_timestamp < 0:
        return
    placed = segment.find_batch(segment.max_timestamp_offset)
    if placed is not None and placed.header.base_offset >= start:
        yield placed
        return
    placed = segment.find_batch(start)
    while placed is not None:
        yield placed
        placed = segment.find_batch(placed.header.next_offset)


def _first_in_batch(
    segment: Segment, placed: Placed, timestamp_ms: int, start: int, end: int
) -> TimedOffset | None:
    if placed.header.max_timestamp < timestamp_ms or placed.header.last_offset < start:
        return None
    for record in iter_records(segment.read_batch(placed)):
        if record.timestamp_ms >= timestamp_ms and start <= record.offset < end:
            return TimedOffset(
                Offset(record.offset),
                TimestampMs(record.timestamp_ms),
                LeaderEpoch(placed.header.leader_epoch),
            )
    return None
