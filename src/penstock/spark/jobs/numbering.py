"""Numbers that ought to follow one another, as they were met: what is missing, late or there twice.

Used for offsets of a log, sequences of a producer and numbers that an application gives. Pure.
Invariant: every number between the first and the last expected one was met, or is reported once.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class NumberRun(NamedTuple):
    """Numbers first to last, met one after the other without a gap. One that comes after higher
    numbers lies together in the log, so that the offset of each of its numbers is known."""

    first: int
    last: int
    offset: int  # where in the log the first of them is


class Flaw(Enum):
    MISSING = "missing"
    LATE = "late"  # after a higher number
    REPEATED = "repeated"


class Anomaly(NamedTuple):
    flaw: Flaw
    first: int
    last: int
    offset: int  # where it shows: of what is missing, where the next higher number is
    behind: int  # LATE: the offset of the higher number that came before; else `offset`


class _Gap(NamedTuple):
    first: int
    last: int
    offset: int


def find_anomalies(
    runs: Iterable[NumberRun], *, start: int | None = None, end: int | None = None
) -> list[Anomaly]:
    """`start`: the number that ought to come first; None: whichever does. `end`: one past the
    last that there must be; None: nothing is expected after what was met."""
    anomalies: list[Anomaly] = []
    gaps: list[_Gap] = []  # in the order of numbers
    expected = start
    at = 0
    for run in runs:
        at = run.offset
        if expected is None:
            expected = run.first
        if run.first > expected:
            gaps.append(_Gap(expected, run.first - 1, run.offset))
        elif run.first < expected:
            before = NumberRun(run.first, min(run.last, expected - 1), run.offset)
            anomalies += _sort_out(before, gaps)
        expected = max(expected, run.last + 1)
    if end is not None and expected is not None and expected < end:
        gaps.append(_Gap(expected, end - 1, at))
    return anomalies + [Anomaly(Flaw.MISSING, *gap, gap.offset) for gap in gaps]


def _sort_out(run: NumberRun, gaps: list[_Gap]) -> list[Anomaly]:
    """Of a run that comes after higher numbers: what fills gaps is late, the rest is repeated."""
    found = []
    position = run.first
    for gap in [each for each in gaps if each.first <= run.last and run.first <= each.last]:
        first, last = max(gap.first, run.first), min(gap.last, run.last)
        if position < first:
            found.append(_repeated(run, position, first - 1))
        found.append(Anomaly(Flaw.LATE, first, last, _place(run, first), gap.offset))
        _close(gaps, gap, first, last)
        position = last + 1
    if position <= run.last:
        found.append(_repeated(run, position, run.last))
    return found


def _repeated(run: NumberRun, first: int, last: int) -> Anomaly:
    place = _place(run, first)
    return Anomaly(Flaw.REPEATED, first, last, place, place)


def _place(run: NumberRun, number: int) -> int:
    return run.offset + number - run.first


def _close(gaps: list[_Gap], gap: _Gap, first: int, last: int) -> None:
    """Leave of a gap what is not between first and last; gaps stay in the order of numbers."""
    place = gaps.index(gap)
    gaps[place : place + 1] = [
        each
        for each in (gap._replace(last=first - 1), gap._replace(first=last + 1))
        if each.first <= each.last
    ]
