"""Numbers that ought to follow one another: what is missing, late or repeated."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.jobs.numbering import Anomaly, Flaw, NumberRun, find_anomalies


def met(*numbers: tuple[int, int]) -> list[NumberRun]:
    """Runs of offsets: a number's place is the number itself."""
    return [NumberRun(first, last, first) for first, last in numbers]


def test_runs_that_follow_each_other_have_no_flaw() -> None:
    assert find_anomalies(met((5, 9), (10, 10), (11, 20)), start=5, end=21) == []


def test_what_nobody_has_is_missing_where_the_next_one_is() -> None:
    assert find_anomalies(met((0, 9), (15, 19)), start=0, end=20) == [
        Anomaly(Flaw.MISSING, 10, 14, offset=15, behind=15)
    ]


def test_the_first_and_the_last_can_be_missing_too() -> None:
    found = find_anomalies(met((3, 5)), start=0, end=8)
    assert [(each.flaw, each.first, each.last) for each in found] == [
        (Flaw.MISSING, 0, 2),
        (Flaw.MISSING, 6, 7),
    ]
    assert [anomaly.last for anomaly in find_anomalies([], start=2, end=4)] == [3]


def test_a_swapped_pair_is_late_and_nothing_is_missing() -> None:
    assert find_anomalies(met((0, 9), (20, 29), (10, 19), (30, 39)), start=0, end=40) == [
        Anomaly(Flaw.LATE, 10, 19, offset=10, behind=20)
    ]


def test_what_is_there_twice_is_repeated() -> None:
    assert find_anomalies(met((0, 9), (5, 12)), start=0, end=13) == [
        Anomaly(Flaw.REPEATED, 5, 9, offset=5, behind=5)
    ]


def test_a_late_run_that_fills_a_part_of_a_gap_leaves_the_rest_missing() -> None:
    found = find_anomalies(met((0, 4), (20, 24), (3, 11)), start=0, end=25)
    assert [(each.flaw, each.first, each.last) for each in found] == [
        (Flaw.REPEATED, 3, 4),
        (Flaw.LATE, 5, 11),
        (Flaw.MISSING, 12, 19),
    ]


@given(st.lists(st.integers(0, 30), max_size=40))
def test_every_number_is_met_once_or_told(numbers: list[int]) -> None:
    found = find_anomalies(met(*((number, number) for number in numbers)), start=0, end=31)
    told: dict[Flaw, Counter[int]] = {flaw: Counter() for flaw in Flaw}
    for each in found:
        told[each.flaw].update(range(each.first, each.last + 1))
    counts = Counter(numbers)
    assert told[Flaw.MISSING] == Counter(set(range(31)) - set(counts))
    assert told[Flaw.REPEATED] == Counter({n: c - 1 for n, c in counts.items() if c > 1})
    firsts = {number: numbers.index(number) for number in counts}
    late = {n for n, place in firsts.items() if any(other > n for other in numbers[:place])}
    assert told[Flaw.LATE] == Counter(late)
