"""Plans of what a query reads next, from offsets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicPartition
from penstock.spark.source.offset_json import StreamOffset
from penstock.spark.source.plan import (
    OffsetRange,
    backlog,
    find_starts,
    limit_ends,
    offsets_behind,
    plan_batch,
    rows_within_bytes,
    share_tasks,
    should_wait,
    split_ranges,
)

A, B, C = (TopicPartition("t", number) for number in range(3))

sizes = st.lists(st.integers(0, 10**6), min_size=1, max_size=20)


def ranges_of(backlogs: list[int]) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition("t", number), 7, 7 + size)
        for number, size in enumerate(backlogs)
        if size
    ]


# How far a batch goes.


def test_limit_is_shared_in_proportion_to_the_backlog() -> None:
    starts, ends = {A: 0, B: 100, C: 5}, {A: 300, B: 200, C: 5}
    assert limit_ends(starts, ends, 40) == {A: 30, B: 110, C: 5}


def test_small_partition_does_not_starve() -> None:
    starts, ends = {A: 0, B: 0}, {A: 1_000_000, B: 1}
    assert limit_ends(starts, ends, 10) == {A: 9, B: 1}


@given(sizes, st.integers(1, 10**6))
def test_limit_advances_every_partition_and_none_too_far(backlogs: list[int], limit: int) -> None:
    starts = {TopicPartition("t", number): 3 for number in range(len(backlogs))}
    ends = {tp: 3 + size for tp, size in zip(starts, backlogs, strict=True)}
    limited = limit_ends(starts, ends, limit)
    taken = backlog(starts, limited)
    assert limited.keys() == ends.keys()
    assert all(limited[end] <= ends[end] for end in ends)
    assert taken.keys() == backlog(starts, ends).keys()
    assert sum(taken.values()) <= max(limit, limit + len(taken) - 1)


def test_byte_limit_is_converted_to_offsets() -> None:
    backlogs = {A: 1000, B: 1000}
    assert rows_within_bytes(backlogs, {A: 100.0, B: 300.0}, 40_000) == 200
    assert rows_within_bytes(backlogs, {A: 100.0, B: 300.0}, 400_000) == 2000
    assert rows_within_bytes(backlogs, {A: 1e9, B: 1e9}, 1) == 1
    assert rows_within_bytes(backlogs, {}, 1) == 2000  # no measurement, so no limit


def test_batch_waits_for_enough_rows_but_not_forever() -> None:
    assert should_wait(9, at_least=10, since_last_ms=999, max_delay_ms=1000)
    assert not should_wait(10, at_least=10, since_last_ms=0, max_delay_ms=1000)
    assert not should_wait(0, at_least=10, since_last_ms=1000, max_delay_ms=1000)
    assert not should_wait(0, at_least=10, since_last_ms=float("inf"), max_delay_ms=1000)


# What a batch reads.


def test_batch_goes_from_the_last_end_to_the_next() -> None:
    start, end = StreamOffset({A: 5, B: 5}, {}), StreamOffset({A: 9, B: 5}, {})
    plan = plan_batch(start, end, find_starts(start, end))
    assert plan.ranges == [OffsetRange(A, 5, 9)]
    assert plan.losses == []


def test_first_batch_starts_where_its_end_offset_says_after_a_restart() -> None:
    later_run = StreamOffset({A: 50, B: 50, C: 0}, {}, is_initial=True)
    saved = StreamOffset({A: 9, B: 7}, {A: 5, B: 7})
    plan = plan_batch(later_run, saved, find_starts(later_run, saved))
    assert plan.ranges == [OffsetRange(A, 5, 9)]
    assert plan.losses == []


def test_new_partition_starts_where_its_first_end_offset_says() -> None:
    start, end = StreamOffset({A: 5}, {}), StreamOffset({A: 5, B: 3}, {B: 0})
    plan = plan_batch(start, end, find_starts(start, end))
    assert plan.ranges == [OffsetRange(B, 0, 3)]
    assert plan.losses == []


def test_possible_losses_are_reported() -> None:
    start = StreamOffset({A: 5, B: 5}, {})
    end = StreamOffset({A: 4, C: 9, TopicPartition("u", 0): 1}, {C: 2})
    plan = plan_batch(start, end, find_starts(start, end))
    assert plan.ranges == [OffsetRange(C, 2, 9)]
    losses = " | ".join(plan.losses)
    assert "cannot find the earliest offsets of u-0" in losses
    assert "t-1 are gone" in losses
    assert "new partition t-2 starts at offset 2" in losses
    assert "t-0 ends at offset 4, before 5" in losses


# How it is split into tasks.


@given(sizes, st.none() | st.integers(1, 50), st.none() | st.integers(10**4, 10**6))
def test_pieces_cover_the_ranges_without_gap_or_overlap(
    backlogs: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = ranges_of(backlogs)
    pieces = split_ranges(ranges, min_partitions=min_partitions, max_records=max_records)
    for whole in ranges:
        own = [piece for piece in pieces if piece.tp == whole.tp]
        assert own[0].start == whole.start
        assert own[-1].end == whole.end
        assert all(one.end == other.start for one, other in pairwise(own))
        assert all(offset_range.size for offset_range in own)
        assert max_records is None or all(offset_range.size <= max_records for offset_range in own)
    total = sum(range_.size for range_ in ranges)
    assert len(pieces) >= min(min_partitions or 0, total)


def test_largest_ranges_are_split_first() -> None:
    ranges = [OffsetRange(A, 0, 100), OffsetRange(B, 0, 10)]
    pieces = split_ranges(ranges, min_partitions=4, max_records=None)
    assert [piece.size for piece in pieces] == [33, 33, 34, 10]


def test_each_partition_is_one_task_by_default() -> None:
    ranges = [OffsetRange(A, 0, 10**9), OffsetRange(B, 0, 1)]
    assert split_ranges(ranges, min_partitions=None, max_records=None) == ranges
    assert split_ranges(ranges, min_partitions=2, max_records=None) == ranges


# Lag.


@given(st.lists(st.integers(1, 2_000), max_size=20), st.integers(1, 1_000), st.integers(1, 8))
def test_small_ranges_share_tasks_in_order(
    backlogs: list[int], max_records: int, max_ranges: int
) -> None:
    ranges = ranges_of(backlogs)
    tasks = share_tasks(ranges, max_records=max_records, max_ranges=max_ranges)
    assert [wanted for task in tasks for wanted in task] == ranges
    assert all(len(task) <= max_ranges for task in tasks)
    assert all(
        sum(wanted.size for wanted in task) <= max_records for task in tasks if len(task) > 1
    )
    for task, following in pairwise(tasks):  # no task is opened without need
        records = sum(wanted.size for wanted in (*task, following[0]))
        assert len(task) == max_ranges or records > max_records


def test_lag_is_summarized() -> None:
    behind = offsets_behind({A: 1, B: 5, C: 7}, {A: 11, B: 5})
    assert behind == (0, 10, 5.0, 10)
    assert offsets_behind({}, {}) == (0, 0, 0.0, 0)
