"""What a sync reads next, and which part of a range is history and which is live."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicPartition
from penstock.spark.source.plan import OffsetRange
from penstock.spark.tables.compaction import choose_groups
from penstock.spark.tables.history_plan import cut_range, earliest, parts_within, windows
from penstock.spark.tables.parts import HeldRange, Part
from penstock.spark.tables.plan import TopicEdges, plan_sync

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
EVERYTHING = 1_000_000


def part(first: int, last: int, *, size: int = 10, number: int | None = 0) -> Part:
    return Part(f"{number}-{first}", last - first + 1, size, (), number, first, last, None, None)


def test_new_table_starts_at_the_log_start() -> None:
    plan = plan_sync("t", {}, TopicEdges({P0: 5, P1: 0}, {P0: 9, P1: 0}), most_records=EVERYTHING)
    assert plan.ranges == [OffsetRange(P0, 5, 9)]
    assert plan.held == {0: HeldRange(5, 9), 1: HeldRange(0, 0)}
    assert (plan.lag, plan.losses) == (0, [])


def test_table_continues_at_its_end_and_keeps_its_start() -> None:
    edges = TopicEdges({P0: 7}, {P0: 30})
    plan = plan_sync("t", {0: HeldRange(5, 9)}, edges, most_records=10)
    assert plan.ranges == [OffsetRange(P0, 9, 19)]
    assert plan.held == {0: HeldRange(5, 19)}
    assert plan.lag == 11


def test_records_deleted_before_they_were_read_are_a_loss() -> None:
    edges = TopicEdges({P0: 20}, {P0: 30})
    plan = plan_sync("t", {0: HeldRange(0, 10)}, edges, most_records=EVERYTHING)
    assert plan.losses == ["offsets 10 to 19 of t-0 are deleted"]
    assert plan.ranges == [OffsetRange(P0, 20, 30)]


def test_topic_that_ends_before_its_table_is_a_loss() -> None:
    edges = TopicEdges({P0: 0}, {P0: 3})
    plan = plan_sync("t", {0: HeldRange(0, 10), 1: HeldRange(0, 1)}, edges, most_records=EVERYTHING)
    assert [loss.split(";")[0] for loss in plan.losses] == [
        "t-0 ends at offset 3, before 10 where the table ends",
        "t-1 does not exist any more",
    ]
    assert plan.ranges == []
    assert plan.held == {0: HeldRange(0, 10)}


@given(
    start=st.integers(0, 50),
    size=st.integers(1, 50),
    held=st.none() | st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_history_and_live_ranges_are_adjacent(
    start: int, size: int, held: tuple[int, int] | None
) -> None:
    wanted = OffsetRange(P0, start, start + size)
    held_range = None if held is None else HeldRange(min(held), max(held))
    parts = cut_range(wanted, held_range)
    covered = [
        offset
        for offset_range in parts
        if offset_range
        for offset in range(offset_range.start, offset_range.end)
    ]
    assert covered == list(range(wanted.start, wanted.end))
    if held_range is not None and parts.past is not None:
        assert held_range.start <= parts.past.start < parts.past.end <= held_range.end


def test_query_starts_at_the_earlier_of_table_and_log() -> None:
    assert earliest(10, HeldRange(2, 8)) == 2
    assert earliest(1, HeldRange(2, 8)) == 1
    assert earliest(10, None) == 10


@given(
    edges=st.lists(st.tuples(st.integers(0, 2_000_000), st.integers(0, 400_000)), max_size=6),
    start=st.integers(0, 2_000_000),
    size=st.integers(1, 1_000_000),
)
def test_windows_are_ascending_and_cover_every_row_once(
    edges: list[tuple[int, int]], start: int, size: int
) -> None:
    parts = [part(first, first + rows) for first, rows in edges]
    wanted = OffsetRange(P0, start, start + size)
    planned = list(windows(parts, wanted))
    assert all(one.end <= other.start for one, other in pairwise(planned))
    for index, file in enumerate(parts):
        for offset in {file.first_offset, file.last_offset, start, start + size - 1}:
            if file.first_offset <= offset <= file.last_offset and start <= offset < start + size:
                (holder,) = [window for window in planned if window.start <= offset < window.end]
                assert index in holder.indexes


def test_only_files_that_may_have_rows_are_selected() -> None:
    parts = [part(0, 9), part(10, 19), part(5, 12, number=1), part(0, 99, number=None)]
    inside = parts_within(parts, OffsetRange(P0, 8, 10))
    assert [file.path for file in inside] == ["0-0", "None-0"]


def test_small_files_are_compacted_and_large_ones_are_not() -> None:
    parts = [part(at, at + 9) for at in (0, 20, 10)]
    parts += [part(30, 39, size=900), part(40, 49), part(0, 9, number=1)]
    groups = choose_groups(parts, target_bytes=1000, least_files=2)
    assert [[file.first_offset for file in group] for group in groups] == [[0, 10, 20, 40]]


def test_group_does_not_exceed_the_target_size() -> None:
    parts = [part(at, at, size=400) for at in range(5)]
    groups = choose_groups(parts, target_bytes=1000, least_files=2)
    assert [len(group) for group in groups] == [2, 2]
