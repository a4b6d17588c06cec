"""When a log is due for compaction, which of its segments may be rewritten, and how they combine.

Decides only: reads no files, apart from a timestamp that a segment looks up. Invariant: records in
open transactions, above the high watermark, not durable, too young or held back by the topic's
delay are not compacted.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.config.log_config import LogConfig
from penstock.config.setting import LONG_MAX
from penstock.storage.log import SegmentedLog
from penstock.storage.segment import MAX_RELATIVE_OFFSET, Segment

NO_HORIZON_MS = LONG_MAX  # the log has no tombstone or marker to drop later


class Cleanable(NamedTuple):
    """The part of a log that a pass would process."""

    segment_count: int  # may be rewritten, from the log's first on
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # by max.compaction.lag.ms
    is_horizon_past: bool  # a tombstone or marker may be dropped now

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


class CleanableSegment(NamedTuple):
    """A segment as a pass sees it off the owner thread; `segment` is only compared there."""

    segment: Segment
    base_offset: int
    end_offset: int  # where the next one begins
    size: int
    path: str
    transaction_index_path: str


def find_filthiest(logs: Iterable[SegmentedLog], now_ms: int) -> SegmentedLog | None:
    """The log with the largest share of dirty bytes among those that are due.

    Kafka ignores a log without dirty bytes, so that its last tombstones stay forever. Here a log is
    also due when a delete horizon has passed. After a restart the horizon is unknown and is assumed
    to be delete.retention.ms from the first call on.
    """
    due: list[tuple[float, SegmentedLog]] = []
    for log in logs:
        if not log.config.compact or not _may_run(log):
            continue
        if log.delete_horizon_ms is None:
            log.delete_horizon_ms = now_ms + log.config.delete_retention_ms
        cleanable = measure(log, now_ms)
        if is_due(cleanable, log.config):
            due.append((cleanable.dirty_ratio, log))
    return max(due, key=lambda item: item[0])[1] if due else None


def _may_run(log: SegmentedLog) -> bool:
    return log.failure is None and log.uncleanable is None and not log.is_compacting


def is_due(cleanable: Cleanable, config: LogConfig) -> bool:
    if cleanable.is_overdue and cleanable.dirty_bytes:
        return True
    if cleanable.is_horizon_past and cleanable.clean_bytes:
        return True
    return cleanable.dirty_ratio > config.min_cleanable_dirty_ratio


def measure(log: SegmentedLog, now_ms: int) -> Cleanable:
    first_dirty = find_first_dirty_offset(log)
    segments = cleanable_segments(log, first_dirty, now_ms)
    ends = [log.segments.end_offset_of(index, log.log_end_offset) for index in range(len(segments))]
    dirty = [s for s, end in zip(segments, ends, strict=True) if end > first_dirty]
    dirty_bytes = sum(segment.size for segment in dirty)
    horizon_ms = log.delete_horizon_ms
    return Cleanable(
        len(segments),
        first_dirty,
        max(ends[-1] if ends else first_dirty, first_dirty),
        sum(segment.size for segment in segments) - dirty_bytes,
        dirty_bytes,
        _is_overdue(dirty, log.config, now_ms),
        horizon_ms is not None and horizon_ms <= now_ms,
    )


def find_first_dirty_offset(log: SegmentedLog) -> int:
    """Where the last pass ended; the log's start if that is out of range."""
    if log.log_start_offset <= log.cleaned_offset <= log.log_end_offset:
        return log.cleaned_offset
    return log.log_start_offset


def cleanable_segments(log: SegmentedLog, first_dirty_offset: int, now_ms: int) -> list[Segment]:
    """The leading sealed segments whose records are all stable, replicated and old enough."""
    # Above the durable offset a running flush may name the files.
    bound = min(log.last_stable_offset, log.high_watermark, log.durable_offset)
    uncompacted_ms = log.config.uncompacted_ms
    cleanable: list[Segment] = []
    for index in range(len(log.segments) - 1):
        segment, end = log.segments[index], log.segments.end_offset_of(index, log.log_end_offset)
        if end > bound:
            break
        is_dirty = end > first_dirty_offset
        if is_dirty and uncompacted_ms and segment.max_timestamp > now_ms - uncompacted_ms:
            break
        cleanable.append(segment)
    return cleanable


def sealed_segments(log: SegmentedLog) -> list[CleanableSegment]:
    """Every segment but the active one."""
    return [
        CleanableSegment(
            segment,
            segment.base_offset,
            log.segments.end_offset_of(index, log.log_end_offset),
            segment.size,
            segment.file.path,
            segment.transaction_index.path,
        )
        for index, segment in enumerate(list(log.segments)[:-1])
    ]


def _is_overdue(dirty: Sequence[Segment], config: LogConfig, now_ms: int) -> bool:
    """Whether a dirty record has waited longer than max.compaction.lag.ms (KIP-354)."""
    if config.max_compaction_lag_ms == LONG_MAX:
        return False
    latest_ms = now_ms - config.max_compaction_lag_ms
    return any(0 < _first_timestamp_ms(segment) < latest_ms for segment in dirty)


def _first_timestamp_ms(segment: Segment) -> int:
    if segment.first_timestamp_ms is None and segment.size:
        segment.first_timestamp_ms = segment.header_at(0).max_timestamp
    return -1 if segment.first_timestamp_ms is None else segment.first_timestamp_ms


class IndexBytes(NamedTuple):
    offsets: int
    times: int


def group_segments(
    sources: Sequence[CleanableSegment], index_bytes: Sequence[IndexBytes], config: LogConfig
) -> list[list[CleanableSegment]]:
    """Group neighbours whose size before compaction is at most one full segment."""
    groups: list[list[CleanableSegment]] = []
    size = offsets = times = 0
    for source, index in zip(sources, index_bytes, strict=True):
        size, offsets, times = size + source.size, offsets + index.offsets, times + index.times
        fits = (
            groups
            and size <= config.segment_bytes
            and max(offsets, times) <= config.segment_index_bytes
            and source.end_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        )
        if fits:
            groups[-1].append(source)
        else:
            groups.append([source])
            size, offsets, times = source.size, index.offsets, index.times
    return groups
