"""Checks a sequence of consecutive numbers: which are missing, late or repeated.

Used for a log's offsets, a producer's sequences and an application's own numbers. Pure. Invariant:
every number between the first and the last expected one was seen, or is reported once.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class NumberRun(NamedTuple):
    """Consecutive numbers `first` to `last`, seen without a gap.

    A run that comes after higher numbers is contiguous in the log, so that the offset of each of
    its numbers follows from the offset of the first.
    """

    first: int
    last: int
    offset: int  # of the first number, in the log


class Flaw(Enum):
    MISSING = "missing"
    LATE = "late"  # after a higher number
    REPEATED = "repeated"


class Anomaly(NamedTuple):
    flaw: Flaw
    first: int
    last: int
    offset: int  # where it shows; for a gap, the offset of the next higher number
    behind: int  # LATE: the offset of the higher number that came first; else `offset`


class _Gap(NamedTuple):
    first: int
    last: int
    offset: int


def find_anomalies(
    runs: Iterable[NumberRun], *, start: int | None = None, end: int | None = None
) -> list[Anomaly]:
    """`start` is the first expected number (None: the first seen), `end` one past the last expected
    number (None: nothing is expected after the last seen)."""
    anomalies: list[Anomaly] = []
    gaps: list[_Gap] = []  # ascending
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
            anomalies += _classify_late(before, gaps)
        expected = max(expected, run.last + 1)
    if end is not None and expected is not None and expected < end:
        gaps.append(_Gap(expected, end - 1, at))
    return anomalies + [Anomaly(Flaw.MISSING, *gap, gap.offset) for gap in gaps]


def _classify_late(run: NumberRun, gaps: list[_Gap]) -> list[Anomaly]:
    """Splits a run that comes after higher numbers: numbers that fill a gap are late, the others
    are repeated."""
    anomalies = []
    position = run.first
    for gap in [gap for gap in gaps if gap.first <= run.last and run.first <= gap.last]:
        first, last = max(gap.first, run.first), min(gap.last, run.last)
        if position < first:
            anomalies.append(_repeated(run, position, first - 1))
        anomalies.append(Anomaly(Flaw.LATE, first, last, _offset_of(run, first), gap.offset))
        _fill_gap(gaps, gap, first, last)
        position = last + 1
    if position <= run.last:
        anomalies.append(_repeated(run, position, run.last))
    return anomalies


def _repeated(run: NumberRun, first: int, last: int) -> Anomaly:
    offset = _offset_of(run, first)
    return Anomaly(Flaw.REPEATED, first, last, offset, offset)


def _offset_of(run: NumberRun, number: int) -> int:
    return run.offset + number - run.first


def _fill_gap(gaps: list[_Gap], gap: _Gap, first: int, last: int) -> None:
    """Removes `first` to `last` from a gap; gaps stay ascending."""
    index = gaps.index(gap)
    gaps[index : index + 1] = [
        rest
        for rest in (gap._replace(last=first - 1), gap._replace(first=last + 1))
        if rest.first <= rest.last
    ]
