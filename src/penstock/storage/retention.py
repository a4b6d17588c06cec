"""Selects the segments that retention.ms and retention.bytes delete. Pure: no files, no clock.

Whether records were consumed makes no difference. Invariant: nothing at or above the high watermark
is ever deleted. A sealed segment that compaction has emptied is deleted along with the next one
that has batches, so that it keeps nothing back and the log start moves only where records go.
"""

from typing import NamedTuple

from penstock.config.log_config import LogConfig


class SegmentAge(NamedTuple):
    """A segment as retention sees it."""

    end_offset: int  # the next one's base offset
    size_bytes: int
    newest_ms: int  # its largest timestamp, or its creation time if its records have none


def count_expired(
    segments: list[SegmentAge],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many of the oldest segments to delete; never an empty active segment."""
    count = len(_leading(segments, log_start_offset))
    if not config.delete:
        return count
    deletable = _leading(segments, high_watermark)
    return max(
        count,
        _count_too_old(deletable, config, now_ms),
        _count_too_much(deletable, sum(s.size_bytes for s in segments), config),
    )


def _leading(segments: list[SegmentAge], offset: int) -> list[SegmentAge]:
    """The oldest segments that are wholly below the offset, without an empty active one."""
    if segments and not segments[-1].size_bytes:
        segments = segments[:-1]
    leading: list[SegmentAge] = []
    for segment in segments:
        if segment.end_offset > offset:
            break
        leading.append(segment)
    return leading


def _count_too_old(segments: list[SegmentAge], config: LogConfig, now_ms: int) -> int:
    count = 0
    if config.retention_ms < 0:
        return count
    for index, segment in enumerate(segments):
        if segment.size_bytes:
            if now_ms - segment.newest_ms <= config.retention_ms:
                break
            count = index + 1
    return count


def _count_too_much(segments: list[SegmentAge], total_bytes: int, config: LogConfig) -> int:
    """A segment is deleted if the rest is still at least retention.bytes."""
    count, excess = 0, total_bytes - config.retention_bytes
    if config.retention_bytes < 0:
        return count
    for index, segment in enumerate(segments):
        if segment.size_bytes:
            excess -= segment.size_bytes
            if excess < 0:
                break
            count = index + 1
    return count
