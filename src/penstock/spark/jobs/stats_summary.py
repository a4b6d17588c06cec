"""Totals, skew, rates and size classes, computed from counts of records. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock.model.ids import TopicPartition

_MOST_BUCKETS = 100
_SECOND_MS = 1_000
WIDTHS_MS = tuple(
    _SECOND_MS * seconds
    for seconds in (1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
)


class PartitionStats(NamedTuple):
    tp: TopicPartition
    records: int
    without_key: int
    without_value: int  # tombstones
    key_bytes: int
    value_bytes: int
    least_value_bytes: int
    median_value_bytes: int
    p99_value_bytes: int
    most_value_bytes: int
    keys: int  # different ones
    first_ms: int
    last_ms: int


class Cell(NamedTuple):
    """Records of one time bucket and one size class."""

    topic: str
    start_ms: int
    size_class: int  # values are smaller than 2 ** size_class bytes
    records: int
    size_bytes: int


class KeyCount(NamedTuple):
    topic: str
    key: bytes
    records: int
    partitions: int  # that contain the key
    keys: int  # distinct keys of the topic


class TimeBucket(NamedTuple):
    start_ms: int
    records: int
    size_bytes: int


class TopicStats(NamedTuple):
    topic: str
    partitions: list[PartitionStats]
    records: int
    size_bytes: int  # of keys and values, uncompressed
    keys: int
    skew: float  # the largest partition's records over the average
    first_ms: int
    last_ms: int
    records_per_s: float
    peak_records_per_s: float  # of the busiest bucket
    bucket_ms: int
    buckets: list[TimeBucket]  # with at least one record, by time
    sizes: list[tuple[int, int]]  # (upper bound in bytes, exclusive; records)
    top_keys: list[KeyCount]

    def as_json(self) -> dict[str, Any]:
        plain = self._asdict()
        plain["partitions"] = [_partition_as_json(partition) for partition in self.partitions]
        plain["buckets"] = [bucket._asdict() for bucket in self.buckets]
        plain["sizes"] = [{"below_bytes": below, "records": n} for below, n in self.sizes]
        plain["top_keys"] = [_key_as_json(key) for key in self.top_keys]
        return plain


def choose_bucket_ms(partitions: Iterable[PartitionStats]) -> int:
    """The smallest usual width that needs at most a hundred buckets."""
    measured = list(partitions)
    if not measured:
        return WIDTHS_MS[0]
    span_ms = max(partition.last_ms for partition in measured) - min(
        partition.first_ms for partition in measured
    )
    fitting = (width for width in WIDTHS_MS if span_ms <= width * _MOST_BUCKETS)
    return next(fitting, -(-span_ms // _MOST_BUCKETS // _SECOND_MS) * _SECOND_MS)


def summarise(
    partitions: Sequence[PartitionStats],
    cells: Sequence[Cell],
    keys: Sequence[KeyCount],
    bucket_ms: int,
) -> list[TopicStats]:
    topics = sorted({partition.tp.topic for partition in partitions})
    return [
        _summarise_topic(
            topic,
            [partition for partition in partitions if partition.tp.topic == topic],
            [cell for cell in cells if cell.topic == topic],
            [key for key in keys if key.topic == topic],
            bucket_ms,
        )
        for topic in topics
    ]


def _summarise_topic(
    topic: str,
    partitions: list[PartitionStats],
    cells: list[Cell],
    keys: list[KeyCount],
    bucket_ms: int,
) -> TopicStats:
    records = sum(partition.records for partition in partitions)
    first_ms = min(partition.first_ms for partition in partitions)
    last_ms = max(partition.last_ms for partition in partitions)
    buckets = _buckets(cells)
    span_s = max(last_ms - first_ms, 1) / 1000
    peak = max((bucket.records for bucket in buckets), default=0)
    return TopicStats(
        topic=topic,
        partitions=partitions,
        records=records,
        size_bytes=sum(partition.key_bytes + partition.value_bytes for partition in partitions),
        keys=keys[0].keys if keys else 0,
        skew=skew([partition.records for partition in partitions]),
        first_ms=first_ms,
        last_ms=last_ms,
        records_per_s=records / span_s,
        peak_records_per_s=peak / (min(bucket_ms / 1000, span_s)),
        bucket_ms=bucket_ms,
        buckets=buckets,
        sizes=_sizes(cells),
        top_keys=keys,
    )


def skew(counts: Sequence[int]) -> float:
    """1.0 if all counts are equal, `len(counts)` if one has everything."""
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0


def _buckets(cells: Iterable[Cell]) -> list[TimeBucket]:
    sums: dict[int, TimeBucket] = {}
    for cell in cells:
        total = sums.get(cell.start_ms, TimeBucket(cell.start_ms, 0, 0))
        sums[cell.start_ms] = TimeBucket(
            cell.start_ms, total.records + cell.records, total.size_bytes + cell.size_bytes
        )
    return [sums[start_ms] for start_ms in sorted(sums)]


def _sizes(cells: Iterable[Cell]) -> list[tuple[int, int]]:
    """All classes from the smallest to the largest, including empty ones."""
    sums: dict[int, int] = defaultdict(int)
    for cell in cells:
        sums[cell.size_class] += cell.records
    if not sums:
        return []
    return [(1 << size_class, sums[size_class]) for size_class in range(min(sums), max(sums) + 1)]


def _partition_as_json(partition: PartitionStats) -> dict[str, Any]:
    plain = partition._asdict()
    return {"partition": plain.pop("tp").partition, **plain}


def _key_as_json(key: KeyCount) -> dict[str, Any]:
    return {"key": show_key(key.key), "records": key.records, "partitions": key.partitions}


def show_key(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
