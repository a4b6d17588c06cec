"""What counts of records mean: totals, skew, rates, sizes. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock.model.ids import TopicPartition

_MOST_BUCKETS = 100
_SECOND_MS = 1_000
_WIDTHS_MS = tuple(
    _SECOND_MS * each
    for each in (1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
)


class PartitionStats(NamedTuple):
    partition: TopicPartition
    records: int
    without_key: int
    without_value: int  # tombstones
    key_bytes: int
    value_bytes: int
    least_value_bytes: int
    median_value_bytes: int
    p99_value_bytes: int
    most_value_bytes: int
    keys: int  # roughly
    first_ms: int
    last_ms: int


class Cell(NamedTuple):
    """Records of one span of time and one class of sizes."""

    topic: str
    start_ms: int
    size_class: int  # values are smaller than two to the power of it
    records: int
    size_bytes: int


class KeyCount(NamedTuple):
    topic: str
    key: bytes
    records: int
    partitions: int  # that have it
    keys: int  # of the topic, in all


class TimeBucket(NamedTuple):
    start_ms: int
    records: int
    size_bytes: int


class TopicStats(NamedTuple):
    topic: str
    partitions: list[PartitionStats]
    records: int
    size_bytes: int  # of keys and values, not compressed
    keys: int
    skew: float  # the largest partition's records, in shares of an even spread
    first_ms: int
    last_ms: int
    records_per_s: float
    peak_records_per_s: float  # of the busiest bucket
    bucket_ms: int
    buckets: list[TimeBucket]  # those with records, by time
    sizes: list[tuple[int, int]]  # (values are smaller than this, records)
    top_keys: list[KeyCount]

    def as_json(self) -> dict[str, Any]:
        plain = self._asdict()
        plain["partitions"] = [_partition_as_json(each) for each in self.partitions]
        plain["buckets"] = [each._asdict() for each in self.buckets]
        plain["sizes"] = [{"below_bytes": below, "records": n} for below, n in self.sizes]
        plain["top_keys"] = [_key_as_json(each) for each in self.top_keys]
        return plain


def choose_bucket_ms(partitions: Iterable[PartitionStats]) -> int:
    """The least usual span that divides the whole time into no more than a hundred."""
    found = list(partitions)
    if not found:
        return _WIDTHS_MS[0]
    span_ms = max(each.last_ms for each in found) - min(each.first_ms for each in found)
    fitting = (width for width in _WIDTHS_MS if span_ms <= width * _MOST_BUCKETS)
    return next(fitting, -(-span_ms // _MOST_BUCKETS // _SECOND_MS) * _SECOND_MS)


def summarise(
    partitions: Sequence[PartitionStats],
    cells: Sequence[Cell],
    keys: Sequence[KeyCount],
    bucket_ms: int,
) -> list[TopicStats]:
    topics = sorted({each.partition.topic for each in partitions})
    return [
        _summarise_topic(
            topic,
            [each for each in partitions if each.partition.topic == topic],
            [each for each in cells if each.topic == topic],
            [each for each in keys if each.topic == topic],
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
    records = sum(each.records for each in partitions)
    first_ms = min(each.first_ms for each in partitions)
    last_ms = max(each.last_ms for each in partitions)
    buckets = _buckets(cells)
    span_s = max(last_ms - first_ms, 1) / 1000
    peak = max((each.records for each in buckets), default=0)
    return TopicStats(
        topic=topic,
        partitions=partitions,
        records=records,
        size_bytes=sum(each.key_bytes + each.value_bytes for each in partitions),
        keys=keys[0].keys if keys else 0,
        skew=skew([each.records for each in partitions]),
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
    """1.0: all have the same; as many as there are: one has everything."""
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0


def _buckets(cells: Iterable[Cell]) -> list[TimeBucket]:
    sums: dict[int, TimeBucket] = {}
    for each in cells:
        known = sums.get(each.start_ms, TimeBucket(each.start_ms, 0, 0))
        sums[each.start_ms] = TimeBucket(
            each.start_ms, known.records + each.records, known.size_bytes + each.size_bytes
        )
    return [sums[start_ms] for start_ms in sorted(sums)]


def _sizes(cells: Iterable[Cell]) -> list[tuple[int, int]]:
    """Classes between the smallest and the largest, empty ones included."""
    sums: dict[int, int] = defaultdict(int)
    for each in cells:
        sums[each.size_class] += each.records
    if not sums:
        return []
    return [(1 << each, sums[each]) for each in range(min(sums), max(sums) + 1)]


def _partition_as_json(partition: PartitionStats) -> dict[str, Any]:
    plain = partition._asdict()
    plain["partition"] = partition.partition.partition
    return plain


def _key_as_json(key: KeyCount) -> dict[str, Any]:
    return {"key": show_key(key.key), "records": key.records, "partitions": key.partitions}


def show_key(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
