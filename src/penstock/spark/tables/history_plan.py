"""Decides which part of a range is read from a table and which from the topic, and the order of
files.

Pure. Invariant: the two parts of a range are adjacent, without a gap or an overlap.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.spark.source.plan import OffsetRange
from penstock.spark.tables.parts import HeldRange, Part

_WINDOW_OFFSETS = 256 * 1024  # sorted in memory together


class HistoryCut(NamedTuple):
    past: OffsetRange | None  # in the table
    live: OffsetRange | None  # in the topic


def cut_range(wanted: OffsetRange, held: HeldRange | None) -> HistoryCut:
    """Prefers the table as far as it reaches, because retention does not delete from it."""
    if held is None or not held.start <= wanted.start < held.end:
        return HistoryCut(None, wanted)
    seam = min(wanted.end, held.end)
    live = wanted._replace(start=seam) if seam < wanted.end else None
    return HistoryCut(wanted._replace(end=seam), live)


def earliest(log_start: int, held: HeldRange | None) -> int:
    return log_start if held is None else min(log_start, held.start)


def parts_within(parts: Iterable[Part], wanted: OffsetRange) -> list[Part]:
    """The parts that may have rows of the range."""
    number = wanted.tp.partition
    return [
        part
        for part in parts
        if part.topic_partition in (number, None)
        and part.first_offset < wanted.end
        and part.last_offset >= wanted.start
    ]


class HistoryWindow(NamedTuple):
    start: int
    end: int
    indexes: list[int]  # of the files that may have rows of the window


def windows(parts: Sequence[Part], wanted: OffsetRange) -> Iterator[HistoryWindow]:
    """The range in windows that can be sorted in memory; windows without files are skipped."""
    at = wanted.start
    while at < wanted.end:
        ahead = [part.first_offset for part in parts if part.last_offset >= at]
        at = max(at, min(ahead, default=wanted.end))
        end = min(wanted.end, at + _WINDOW_OFFSETS)
        indexes = [
            index
            for index, part in enumerate(parts)
            if part.first_offset < end and part.last_offset >= at
        ]
        if indexes:
            yield HistoryWindow(at, end, indexes)
        at = end
