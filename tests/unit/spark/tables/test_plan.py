"""What a sync reads next, and what old and live records a range is made of."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicPartition
from penstock.spark.source.plan import OffsetRange
from penstock.spark.tables.compaction import choose_groups
from penstock.spark.tables.history_plan import cut, earliest, parts_within, windows
from penstock.spark.tables.parts import HeldRange, Part
from penstock.spark.tables.plan import TopicEdges, plan_sync

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
EVERYTHING = 1_000_000


def part(first: int, last: int, *, size: int = 10, number: int | None = 0) -> Part:
    return Part(f"{number}-{first}", last - first + 1, size, (), number, first, last, None, None)


def test_a_new_table_begins_where_its_topic_does() -> None:
    plan = plan_sync("t", {}, TopicEdges({P0: 5, P1: 0}, {P0: 9, P1: 0}), most_records=EVERYTHING)
    assert plan.ranges == [OffsetRange(P0, 5, 9)]
    assert plan.held == {0: HeldRange(5, 9), 1: HeldRange(0, 0)}
    assert (plan.lag, plan.losses) == (0, [])


def test_a_table_goes_on_where_it_ends_and_keeps_its_beginning() -> None:
    edges = TopicEdges({P0: 7}, {P0: 30})
    plan = plan_sync("t", {0: HeldRange(5, 9)}, edges, most_records=10)
    assert plan.ranges == [OffsetRange(P0, 9, 19)]
    assert plan.held == {0: HeldRange(5, 19)}
    assert plan.lag == 11


def test_what_was_deleted_before_it_was_read_is_told() -> None:
    edges = TopicEdges({P0: 20}, {P0: 30})
    plan = plan_sync("t", {0: HeldRange(0, 10)}, edges, most_records=EVERYTHING)
    assert plan.losses == ["offsets 10 to 19 of t-0 are deleted"]
    assert plan.ranges == [OffsetRange(P0, 20, 30)]


def test_a_topic_that_ends_before_its_table_was_made_anew() -> None:
    edges = TopicEdges({P0: 0}, {P0: 3})
    plan = plan_sync("t", {0: HeldRange(0, 10), 1: HeldRange(0, 1)}, edges, most_records=EVERYTHING)
    assert [loss.split(";")[0] for loss in plan.losses] == [
        "t-0 ends at offset 3, before 10 where the table goes on",
        "t-1 is gone",
    ]
    assert plan.ranges == []
    assert plan.held == {0: HeldRange(0, 10)}


@given(
    start=st.integers(0, 50),
    size=st.integers(1, 50),
    held=st.none() | st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_old_and_live_meet_without_gap_or_overlap(
    start: int, size: int, held: tuple[int, int] | None
) -> None:
    wanted = OffsetRange(P0, start, start + size)
    known = None if held is None else HeldRange(min(held), max(held))
    parts = cut(wanted, known)
    covered = [
        offset
        for offset_range in parts
        if offset_range
        for offset in range(offset_range.start, offset_range.end)
    ]
    assert covered == list(range(wanted.start, wanted.end))
    if known is not None and parts.past is not None:
        assert known.start <= parts.past.start < parts.past.end <= known.end


def test_a_query_begins_with_the_table_where_it_is_older() -> None:
    assert earliest(10, HeldRange(2, 8)) == 2
    assert earliest(1, HeldRange(2, 8)) == 1
    assert earliest(10, None) == 10


@given(
    edges=st.lists(st.tuples(st.integers(0, 2_000_000), st.integers(0, 400_000)), max_size=6),
    start=st.integers(0, 2_000_000),
    size=st.integers(1, 1_000_000),
)
def test_windows_hold_every_row_once_and_rise(
    edges: list[tuple[int, int]], start: int, size: int
) -> None:
    parts = [part(first, first + rows) for first, rows in edges]
    wanted = OffsetRange(P0, start, start + size)
    found = list(windows(parts, wanted))
    assert all(one.end <= other.start for one, other in pairwise(found))
    for place, each in enumerate(parts):
        for offset in {each.first_offset, each.last_offset, start, start + size - 1}:
            if each.first_offset <= offset <= each.last_offset and start <= offset < start + size:
                (holder,) = [window for window in found if window.start <= offset < window.end]
                assert place in holder.places


def test_only_files_that_may_have_rows_are_looked_at() -> None:
    parts = [part(0, 9), part(10, 19), part(5, 12, number=1), part(0, 99, number=None)]
    found = parts_within(parts, OffsetRange(P0, 8, 10))
    assert [each.path for each in found] == ["0-0", "None-0"]


def test_small_neighbours_are_compacted_and_large_files_are_left() -> None:
    parts = [part(at, at + 9) for at in (0, 20, 10)]
    parts += [part(30, 39, size=900), part(40, 49), part(0, 9, number=1)]
    groups = choose_groups(parts, target_bytes=1000, least_files=2)
    assert [[each.first_offset for each in group] for group in groups] == [[0, 10, 20, 40]]


def test_a_group_grows_no_larger_than_files_ought_to_be() -> None:
    parts = [part(at, at, size=400) for at in range(5)]
    groups = choose_groups(parts, target_bytes=1000, least_files=2)
    assert [len(group) for group in groups] == [2, 2]
