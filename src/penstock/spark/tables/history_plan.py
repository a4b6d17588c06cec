"""Which part of a range is read from a table and which from the topic, and in what order of files.

Pure. Invariant: the two parts of a range meet, without a gap and without an overlap.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.spark.source.plan import OffsetRange
from penstock.spark.tables.parts import HeldRange, Part

_WINDOW_OFFSETS = 256 * 1024  # sorted in memory at once


class HistoryCut(NamedTuple):
    past: OffsetRange | None  # in the table
    live: OffsetRange | None  # in the topic


def cut(wanted: OffsetRange, held: HeldRange | None) -> HistoryCut:
    """As far as the table goes it is read: nobody deletes it while it is."""
    if held is None or not held.start <= wanted.start < held.end:
        return HistoryCut(None, wanted)
    seam = min(wanted.end, held.end)
    live = wanted._replace(start=seam) if seam < wanted.end else None
    return HistoryCut(wanted._replace(end=seam), live)


def earliest(log_start: int, held: HeldRange | None) -> int:
    return log_start if held is None else min(log_start, held.start)


def parts_within(parts: Iterable[Part], wanted: OffsetRange) -> list[Part]:
    """Those that may have rows of the range."""
    number = wanted.tp.partition
    return [
        each
        for each in parts
        if each.topic_partition in (number, None)
        and each.first_offset < wanted.end
        and each.last_offset >= wanted.start
    ]


class HistoryWindow(NamedTuple):
    start: int
    end: int
    places: list[int]  # of the files that may have rows of it


def windows(parts: Sequence[Part], wanted: OffsetRange) -> Iterator[HistoryWindow]:
    """The range in pieces that can be sorted in memory; those that no file has are left out."""
    at = wanted.start
    while at < wanted.end:
        ahead = [each.first_offset for each in parts if each.last_offset >= at]
        at = max(at, min(ahead, default=wanted.end))
        end = min(wanted.end, at + _WINDOW_OFFSETS)
        places = [
            place
            for place, each in enumerate(parts)
            if each.first_offset < end and each.last_offset >= at
        ]
        if places:
            yield HistoryWindow(at, end, places)
        at = end
