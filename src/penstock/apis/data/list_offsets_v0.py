"""ListOffsets version 0: base offsets of segments, the newest first, where reading may start.

A segment is as old as its largest timestamp (without one, as its creation), where Kafka takes the
modification time of its file, which a restored or newly fetched copy loses. This serves monitors
and tools; a client that knows only this version reads no records here, because Fetch starts at
version 4. As in Kafka, a new leader whose high watermark lags (KIP-207) answers with it.
Invariant: offsets descend, and none is above what clients may read.
"""

from collections.abc import Sequence
from itertools import islice

from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import Offset, TimestampMs
from penstock.replication.partition import Partition

LATEST = -1
EARLIEST = -2


def find_old_style_offsets(
    partition: Partition, *, timestamp: int, max_num_offsets: int, now_ms: int
) -> tuple[Offset, ...]:
    """At most `max_num_offsets`; none if every segment has a record after `timestamp`."""
    if max_num_offsets < 0:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    distinct = dict.fromkeys(_find_offsets(partition, timestamp, now_ms))
    readable_end = partition.visible_high_watermark()
    first = (min(offset, readable_end) for offset in islice(distinct, max_num_offsets))
    return tuple(dict.fromkeys(first))


def _find_offsets(partition: Partition, timestamp: int, now_ms: int) -> Sequence[Offset]:
    if timestamp == EARLIEST:
        return (partition.log_start_offset,)
    if timestamp == LATEST or timestamp >= now_ms:
        return (partition.log_end_offset, *partition.log.segment_offsets())
    return partition.log.segment_offsets(before_ms=TimestampMs(timestamp))
