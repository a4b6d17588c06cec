"""Counts of tasks, compared with counts of single records."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from math import ceil, log2

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicPartition
from penstock.spark.jobs.stats_counts import (
    MAX_BUCKETS,
    MAX_SIZES,
    RangeCounter,
    RangeCounts,
    merge_cells,
    merge_partition,
    percentile,
    size_steps,
)
from penstock.spark.jobs.stats_summary import WIDTHS_MS, Cell, choose_bucket_ms

TP = TopicPartition("orders", 0)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000

Row = tuple[int, bytes | None, bytes | None]  # time, key, value
ROWS = st.lists(
    st.tuples(
        st.integers(0, 40 * DAY_MS),
        st.none() | st.sampled_from([b"", b"a", b"b", b"longer"]),
        st.none() | st.binary(max_size=40),
    )
)


def batch(rows: list[Row]) -> pa.RecordBatch:
    times = [EPOCH + timedelta(milliseconds=row[0]) for row in rows]
    columns = {
        "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
        "key": pa.array([row[1] for row in rows], pa.binary()),
        "value": pa.array([row[2] for row in rows], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def count(*batches: list[Row]) -> RangeCounter:
    counter = RangeCounter()
    for rows in batches:
        counter.take(batch(rows))
    return counter


@given(parts=st.lists(ROWS, max_size=4))
def test_counts_of_tasks_are_those_of_their_records(parts: list[list[Row]]) -> None:
    rows = [row for part in parts for row in part]
    ranges = [count(part[: len(part) // 2], part[len(part) // 2 :]).counts() for part in parts]
    merged = merge_partition(TP, ranges, 7)
    if not rows:
        assert merged is None
        return
    assert merged is not None
    sizes = sorted(len(value or b"") for _, _, value in rows)
    times = [time for time, _, _ in rows]
    assert merged.records == len(rows)
    assert merged.without_key == sum(key is None for _, key, _ in rows)
    assert merged.without_value == sum(value is None for _, _, value in rows)
    assert merged.key_bytes == sum(len(key or b"") for _, key, _ in rows)
    assert merged.value_bytes == sum(sizes)
    assert (merged.least_value_bytes, merged.most_value_bytes) == (sizes[0], sizes[-1])
    assert merged.median_value_bytes == sizes[ceil(len(sizes) * 0.5) - 1]
    assert merged.p99_value_bytes == sizes[ceil(len(sizes) * 0.99) - 1]
    assert (merged.first_ms, merged.last_ms, merged.keys) == (min(times), max(times), 7)
    width_ms = choose_bucket_ms([merged])
    assert set(merge_cells([("orders", counts) for counts in ranges], width_ms)) == cells_of(
        rows, width_ms
    )


def cells_of(rows: list[Row], width_ms: int) -> set[Cell]:
    records: Counter[tuple[int, int]] = Counter()
    sizes: Counter[tuple[int, int]] = Counter()
    for time, key, value in rows:
        size = len(value or b"")
        cell = time // width_ms * width_ms, ceil(log2(size + 1))
        records[cell] += 1
        sizes[cell] += size + len(key or b"")
    return {Cell("orders", *cell, records[cell], sizes[cell]) for cell in records}


@given(parts=st.lists(ROWS, max_size=4))
def test_keys_of_a_task_are_counted_once(parts: list[list[Row]]) -> None:
    keys, records = count(*parts).keys()
    expected = Counter(key for part in parts for _, key, _ in part if key is not None)
    assert dict(zip(keys.to_pylist(), records.to_pylist(), strict=True)) == expected
    assert len(keys) == len(expected)


def test_times_far_apart_are_counted_in_wider_buckets_than_the_summary_needs() -> None:
    rows: list[Row] = [(number * 60_000, None, b"v") for number in range(20 * MAX_BUCKETS)]
    counts = count(rows).counts()
    assert len(counts.cells) <= MAX_BUCKETS
    merged = merge_partition(TP, [counts], 0)
    assert merged is not None
    width_ms = choose_bucket_ms([merged])
    assert set(merge_cells([("orders", counts)], width_ms)) == cells_of(rows, width_ms)
    used_ms = next(w for w in reversed(WIDTHS_MS) if all(s % w == 0 for s, _ in counts.cells))
    assert used_ms < width_ms


def test_many_different_sizes_are_kept_as_steps_of_less_than_a_percent() -> None:
    sizes = list(range(2 * MAX_SIZES))
    counts = count([(0, None, bytes(size)) for size in sizes]).counts()
    assert len(counts.sizes) <= MAX_SIZES
    for share in (0.1, 0.5, 0.9, 0.99):
        exact = percentile(Counter(sizes), share)
        assert exact * 0.99 <= percentile(counts.sizes, share) <= exact
    assert (counts.least_value_bytes, counts.most_value_bytes) == (0, sizes[-1])


@given(size=st.integers(0, 2**31))
def test_a_step_is_at_most_a_percent_below_the_size(size: int) -> None:
    import numpy as np

    (step,) = size_steps(np.array([size], np.int64)).tolist()
    assert size * 0.99 < step <= size or step == size == 0
    assert size >= 256 or step == size


def test_no_records_are_counts_of_zero() -> None:
    assert count([]).counts() == RangeCounts(0, 0, 0, 0, 0, 0, 0, 0, 0, {}, {})
    assert merge_partition(TP, [count([]).counts()], 0) is None
