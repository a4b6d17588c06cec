"""Counts the records of a range column by column, and merges what tasks have counted. Pure.

Sizes and times are counted exactly as long as they differ little, and in classes where they differ
much, so that a task keeps little whatever the records are.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.ids import TopicPartition
from penstock.spark.jobs.stats_summary import WIDTHS_MS, Cell, PartitionStats

Numbers = npt.NDArray[np.int64]
Counts = dict[int, int]  # how often each value occurs
Cells = dict[tuple[int, int], tuple[int, int]]  # (start of the bucket, class): (records, bytes)

MAX_SIZES = 4_096  # different ones of a task that are kept as they are
_SIZE_STEPS = 128  # classes between a power of two and the next: errors of less than a percent
# Of a task. Fewer than a summary's hundred buckets need, so that its width is never too wide.
MAX_BUCKETS = 2_000
_NO_KEYS = pa.array([], pa.binary())


class RangeCounts(NamedTuple):
    """What a task has counted in its range, besides its keys."""

    records: int
    without_key: int
    without_value: int
    key_bytes: int
    value_bytes: int
    least_value_bytes: int
    most_value_bytes: int
    first_ms: int
    last_ms: int
    sizes: Counts  # of values
    cells: Cells


class RangeCounter:
    """Owned by one task."""

    def __init__(self) -> None:
        self._counts = RangeCounts(0, 0, 0, 0, 0, 0, 0, 0, 0, {}, {})
        self._sizes: Counts = {}
        self._width = 0  # index in WIDTHS_MS
        self._cells: Cells = {}
        self._keys: list[pa.StructArray] = []

    def take(self, rows: pa.RecordBatch) -> None:
        """Rows with the columns timestamp, key and value."""
        if not rows.num_rows:
            return
        key_sizes, value_sizes = _sizes_of(rows.column("key")), _sizes_of(rows.column("value"))
        times_ms = rows.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
        before = self._counts
        is_first = not before.records
        least, most = int(value_sizes.min()), int(value_sizes.max())
        first_ms, last_ms = int(times_ms.min()), int(times_ms.max())
        self._counts = before._replace(
            records=before.records + rows.num_rows,
            without_key=before.without_key + rows.column("key").null_count,
            without_value=before.without_value + rows.column("value").null_count,
            key_bytes=before.key_bytes + int(key_sizes.sum()),
            value_bytes=before.value_bytes + int(value_sizes.sum()),
            least_value_bytes=least if is_first else min(least, before.least_value_bytes),
            most_value_bytes=most if is_first else max(most, before.most_value_bytes),
            first_ms=first_ms if is_first else min(first_ms, before.first_ms),
            last_ms=last_ms if is_first else max(last_ms, before.last_ms),
        )
        self._count_sizes(value_sizes)
        self._count_cells(times_ms, value_sizes, key_sizes + value_sizes)
        self._keys.append(pc.value_counts(rows.column("key").drop_null()))

    def counts(self) -> RangeCounts:
        return self._counts._replace(sizes=self._sizes, cells=self._cells)

    def keys(self) -> tuple[pa.Array, pa.Array]:
        """Different keys, and how many records each has."""
        counted = [part for part in self._keys if len(part)]
        if not counted:
            return _NO_KEYS, pa.array([], pa.int64())
        table = pa.table(
            {
                "key": pa.chunked_array([part.field("values") for part in counted]),
                "records": pa.chunked_array([part.field("counts") for part in counted]),
            }
        )
        if len(counted) > 1:
            table = table.group_by("key").aggregate([("records", "sum")])
            table = table.rename_columns({"records_sum": "records"})
        return table["key"].combine_chunks(), table["records"].combine_chunks()

    def _count_sizes(self, sizes: Numbers) -> None:
        _add(self._sizes, *np.unique(sizes, return_counts=True))
        if len(self._sizes) > MAX_SIZES:
            self._sizes = _in_steps(self._sizes)

    def _count_cells(self, times_ms: Numbers, value_sizes: Numbers, sizes: Numbers) -> None:
        width_ms = WIDTHS_MS[self._width]
        classes = size_classes(value_sizes)
        pairs = times_ms // width_ms * 64 + classes  # a class is below 64
        unique, places, records = np.unique(pairs, return_inverse=True, return_counts=True)
        sums = np.bincount(places, weights=sizes, minlength=len(unique)).tolist()
        for pair, count, total in zip(unique.tolist(), records.tolist(), sums, strict=True):
            cell = pair // 64 * width_ms, pair % 64
            before = self._cells.get(cell, (0, 0))
            self._cells[cell] = before[0] + count, before[1] + int(total)
        while self._width < len(WIDTHS_MS) - 1 and self._bucket_count() > MAX_BUCKETS:
            self._width += 1
            self._cells = widen(self._cells, WIDTHS_MS[self._width])

    def _bucket_count(self) -> int:
        if len(self._cells) <= MAX_BUCKETS:
            return 0  # at most: one cell is in one bucket
        return len({start_ms for start_ms, _ in self._cells})


def size_classes(sizes: Numbers) -> Numbers:
    """The exponents of the smallest powers of two above the sizes."""
    return np.frexp(sizes.astype(np.float64))[1].astype(np.int64)


def size_steps(sizes: Numbers) -> Numbers:
    """Rounded down to a step: to themselves, if they are small."""
    widths = np.maximum(1, np.left_shift(1, size_classes(sizes)) // (2 * _SIZE_STEPS))
    return np.asarray(sizes // widths * widths)


def widen(cells: Cells, width_ms: int) -> Cells:
    wide: Cells = {}
    for (start_ms, size_class), (records, size) in cells.items():
        cell = start_ms // width_ms * width_ms, size_class
        before = wide.get(cell, (0, 0))
        wide[cell] = before[0] + records, before[1] + size
    return wide


def merge_partition(
    tp: TopicPartition, ranges: Sequence[RangeCounts], keys: int
) -> PartitionStats | None:
    """None: the ranges have no records."""
    some = [counted for counted in ranges if counted.records]
    if not some:
        return None
    sizes: Counts = {}
    for counted in some:
        for size, count in counted.sizes.items():
            sizes[size] = sizes.get(size, 0) + count
    least = min(counted.least_value_bytes for counted in some)
    most = max(counted.most_value_bytes for counted in some)
    median, high = (max(least, percentile(sizes, share)) for share in (0.5, 0.99))
    return PartitionStats(
        tp=tp,
        records=sum(counted.records for counted in some),
        without_key=sum(counted.without_key for counted in some),
        without_value=sum(counted.without_value for counted in some),
        key_bytes=sum(counted.key_bytes for counted in some),
        value_bytes=sum(counted.value_bytes for counted in some),
        least_value_bytes=least,
        median_value_bytes=median,
        p99_value_bytes=high,
        most_value_bytes=most,
        keys=keys,
        first_ms=min(counted.first_ms for counted in some),
        last_ms=max(counted.last_ms for counted in some),
    )


def merge_cells(ranges: Iterable[tuple[str, RangeCounts]], width_ms: int) -> list[Cell]:
    """By topic, in buckets of this width."""
    merged: dict[tuple[str, int, int], tuple[int, int]] = {}
    for topic, counted in ranges:
        for (start_ms, size_class), (records, size) in widen(counted.cells, width_ms).items():
            cell = topic, start_ms, size_class
            before = merged.get(cell, (0, 0))
            merged[cell] = before[0] + records, before[1] + size
    return [Cell(*cell, *totals) for cell, totals in merged.items()]


def percentile(counts: Counts, share: float) -> int:
    """The smallest value that this share of all does not exceed."""
    wanted = share * sum(counts.values())
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    raise ValueError("no values")


def _sizes_of(column: pa.Array) -> Numbers:
    """0 for a null."""
    sizes = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return np.asarray(sizes, dtype=np.int64)


def _in_steps(sizes: Counts) -> Counts:
    values = np.fromiter(sizes, dtype=np.int64, count=len(sizes))
    steps: Counts = {}
    _add(steps, size_steps(values), np.fromiter(sizes.values(), dtype=np.int64, count=len(sizes)))
    return steps


def _add(counts: Counts, values: Numbers, times: Numbers) -> None:
    for value, count in zip(values.tolist(), times.tolist(), strict=True):
        counts[value] = counts.get(value, 0) + count
