"""Consecutive numbers: which are missing, late or repeated."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.jobs.numbering import Anomaly, Flaw, NumberRun, find_anomalies


def runs_of(*numbers: tuple[int, int]) -> list[NumberRun]:
    """Build runs in which each number is its own offset."""
    return [NumberRun(first, last, first) for first, last in numbers]


def test_consecutive_runs_have_no_anomaly() -> None:
    assert find_anomalies(runs_of((5, 9), (10, 10), (11, 20)), start=5, end=21) == []


def test_gap_is_reported_at_the_next_number() -> None:
    assert find_anomalies(runs_of((0, 9), (15, 19)), start=0, end=20) == [
        Anomaly(Flaw.MISSING, 10, 14, offset=15, behind=15)
    ]


def test_first_and_last_numbers_can_be_missing() -> None:
    anomalies = find_anomalies(runs_of((3, 5)), start=0, end=8)
    assert [(anomaly.flaw, anomaly.first, anomaly.last) for anomaly in anomalies] == [
        (Flaw.MISSING, 0, 2),
        (Flaw.MISSING, 6, 7),
    ]
    assert [anomaly.last for anomaly in find_anomalies([], start=2, end=4)] == [3]


def test_swapped_runs_are_late_and_nothing_is_missing() -> None:
    assert find_anomalies(runs_of((0, 9), (20, 29), (10, 19), (30, 39)), start=0, end=40) == [
        Anomaly(Flaw.LATE, 10, 19, offset=10, behind=20)
    ]


def test_overlapping_run_is_repeated() -> None:
    assert find_anomalies(runs_of((0, 9), (5, 12)), start=0, end=13) == [
        Anomaly(Flaw.REPEATED, 5, 9, offset=5, behind=5)
    ]


def test_late_run_fills_part_of_a_gap() -> None:
    anomalies = find_anomalies(runs_of((0, 4), (20, 24), (3, 11)), start=0, end=25)
    assert [(anomaly.flaw, anomaly.first, anomaly.last) for anomaly in anomalies] == [
        (Flaw.REPEATED, 3, 4),
        (Flaw.LATE, 5, 11),
        (Flaw.MISSING, 12, 19),
    ]


@given(st.lists(st.integers(0, 30), max_size=40))
def test_every_number_is_seen_once_or_reported(numbers: list[int]) -> None:
    anomalies = find_anomalies(runs_of(*((number, number) for number in numbers)), start=0, end=31)
    by_flaw: dict[Flaw, Counter[int]] = {flaw: Counter() for flaw in Flaw}
    for anomaly in anomalies:
        by_flaw[anomaly.flaw].update(range(anomaly.first, anomaly.last + 1))
    counts = Counter(numbers)
    assert by_flaw[Flaw.MISSING] == Counter(set(range(31)) - set(counts))
    assert by_flaw[Flaw.REPEATED] == Counter({n: c - 1 for n, c in counts.items() if c > 1})
    firsts = {number: numbers.index(number) for number in counts}
    late = {n for n, index in firsts.items() if any(other > n for other in numbers[:index])}
    assert by_flaw[Flaw.LATE] == Counter(late)
