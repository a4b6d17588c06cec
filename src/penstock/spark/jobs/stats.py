"""The `stats` job: number, size and keys of records, how evenly they are spread and how fast they
arrive. Each record is read once; `stats_task` counts on executors, `stats_summary` interprets the
counts.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.data_calls import IsolationLevel
from penstock.model.ids import TopicPartition
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.jobs.running import JobWatch, run_watched
from penstock.spark.jobs.scope import JobScope, resolve_scope, topics_of
from penstock.spark.jobs.stats_counts import RangeCounts, merge_cells, merge_partition
from penstock.spark.jobs.stats_summary import KeyCount, TopicStats, choose_bucket_ms, summarise
from penstock.spark.jobs.stats_task import (
    COLUMNS,
    COUNTED,
    JOINED,
    StatsRange,
    count_range,
    join_keys,
    read_counts,
)
from penstock.spark.source.fetch_ahead import FetchConfig
from penstock.spark.source.options import DEFAULT_FETCH_BYTES, DEFAULT_POLL_TIMEOUT_MS
from penstock.spark.source.plan import split_ranges
from penstock.spark.source.read_task import ReadSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_RANGE_OFFSETS = 250_000  # a task: less than a second, so that progress is visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The options of the job."""

    scope: JobScope
    top: int = 10  # most frequent keys to list
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    min_tasks: int = 8  # so that progress is visible


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsResult:
    topics: list[TopicStats]
    seconds: float


def run_stats(
    spark: "SparkSession", client: BlockingClient, stats: Stats, watch: JobWatch
) -> StatsResult:
    started_s = time.monotonic()
    resolved = resolve_scope(client, stats.scope, stats.isolation)
    topics = topics_of(resolved)
    ranges = split_ranges(
        [span for span in resolved.ranges if span.size],
        min_partitions=stats.min_tasks,
        max_records=_RANGE_OFFSETS,
    )
    tasks = [
        StatsRange(wanted, number, topics.index(wanted.tp.topic))
        for number, wanted in enumerate(ranges)
    ]
    fetch = FetchConfig(
        isolation=stats.isolation,
        fails_on_data_loss=True,
        poll_timeout_ms=DEFAULT_POLL_TIMEOUT_MS,
        fetch_bytes=DEFAULT_FETCH_BYTES,
    )
    settings = ReadSettings(client.settings, COLUMNS, fetch)
    measured = _measure(spark, tasks, settings, topics, stats, watch) if tasks else []
    return StatsResult(topics=measured, seconds=time.monotonic() - started_s)


def _measure(
    spark: "SparkSession",
    tasks: Sequence[StatsRange],
    settings: ReadSettings,
    topics: Sequence[str],
    stats: Stats,
    watch: JobWatch,
) -> list[TopicStats]:
    joined = _count(spark, tasks, settings, stats.top)
    rows = run_watched(spark, "count records and keys", watch, joined.collect)
    counts = {row.task: read_counts(bytes(row.counts)) for row in rows if row.counts is not None}
    keys = _merge_keys(rows, stats.top)
    by_partition: dict[TopicPartition, list[RangeCounts]] = {}
    for task in tasks:
        by_partition.setdefault(task.wanted.tp, []).append(counts[task.number])
    merged = (
        merge_partition(tp, ranges, keys.numbers[topics.index(tp.topic), tp.partition])
        for tp, ranges in sorted(by_partition.items())
    )
    partitions = [partition for partition in merged if partition is not None]
    bucket_ms = choose_bucket_ms(partitions)
    cells = merge_cells(((task.wanted.tp.topic, counts[task.number]) for task in tasks), bucket_ms)
    top = [
        KeyCount(
            topics[row.topic],
            bytes(row.key),
            row.records,
            row.partitions,
            keys.numbers[row.topic, None],
        )
        for row in keys.top
    ]
    return summarise(partitions, cells, top, bucket_ms)


def _count(
    spark: "SparkSession", tasks: Sequence[StatsRange], settings: ReadSettings, top: int
) -> "DataFrame":
    """Rows of `JOINED`. One Spark task reads a range, and as many join the keys."""

    def count(numbers: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from count_range(tasks[number], settings)

    counted = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(count, COUNTED)
    return counted.repartition(len(tasks), "topic", "key").mapInArrow(
        partial(join_keys, most=top), JOINED
    )


class _Keys(NamedTuple):
    numbers: Counter[tuple[int, int | None]]  # by topic and partition; None: of the whole topic
    top: list[Any]  # rows, by topic, the most frequent first


def _merge_keys(rows: Sequence[Any], most: int) -> _Keys:
    numbers: Counter[tuple[int, int | None]] = Counter()
    top: dict[int, list[Any]] = {}
    for row in rows:
        if row.keys is not None:
            numbers[row.topic, row.partition] += row.keys
        elif row.key is not None:
            top.setdefault(row.topic, []).append(row)
    chosen = []
    for _, some in sorted(top.items()):
        some.sort(key=lambda row: (-row.records, bytes(row.key)))
        chosen += some[:most]
    return _Keys(numbers, chosen)
