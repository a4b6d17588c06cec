"""The `stats` job: number, size and keys of records, how evenly they are spread and how fast they
arrive. Each record is read once; tasks count, Spark joins the keys of tasks, `stats_summary`
interprets the counts.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    StatsRange,
    count_range,
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
_PARTITION_KEYS, _TOPIC_KEYS, _TOP_KEYS = "partition", "topic", "top"  # kinds of rows of _KEYS


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
    measured: list[TopicStats] = []
    if tasks:
        counted = _count(spark, tasks, settings).persist()
        try:
            measured = _measure(spark, counted, tasks, topics, stats, watch)
        finally:
            counted.unpersist()
    return StatsResult(topics=measured, seconds=time.monotonic() - started_s)


def _count(
    spark: "SparkSession", tasks: Sequence[StatsRange], settings: ReadSettings
) -> "DataFrame":
    """Rows of `COUNTED`, of one Spark task a range."""

    def run(numbers: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from count_range(tasks[number], settings)

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, COUNTED)


def _measure(
    spark: "SparkSession",
    counted: "DataFrame",
    tasks: Sequence[StatsRange],
    topics: Sequence[str],
    stats: Stats,
    watch: JobWatch,
) -> list[TopicStats]:
    ranges = counted.where("counts IS NOT NULL").select("task", "counts")
    rows = run_watched(spark, "count records", watch, ranges.collect)
    counts = {row.task: read_counts(bytes(row.counts)) for row in rows}
    joined = spark.sql(_KEYS, counted=counted, most=stats.top)
    keys = run_watched(spark, "count keys", watch, joined.collect)
    in_partition = {
        TopicPartition(topics[row.topic], row.partition): row.keys
        for row in keys
        if row.kind == _PARTITION_KEYS
    }
    by_partition: dict[TopicPartition, list[RangeCounts]] = {}
    for task in tasks:
        by_partition.setdefault(task.wanted.tp, []).append(counts[task.number])
    merged = (
        merge_partition(tp, ranges, in_partition.get(tp, 0))
        for tp, ranges in sorted(by_partition.items())
    )
    partitions = [partition for partition in merged if partition is not None]
    bucket_ms = choose_bucket_ms(partitions)
    cells = merge_cells(((task.wanted.tp.topic, counts[task.number]) for task in tasks), bucket_ms)
    return summarise(partitions, cells, list(_key_counts(keys, topics)), bucket_ms)


# One shuffle serves all three parts: Spark reuses it within a query.
_KEYS = """
WITH of_partitions AS (
  SELECT topic, key, partition, sum(records) AS records
  FROM (SELECT /*+ REPARTITION(topic, key) */ * FROM {counted} WHERE key IS NOT NULL)
  GROUP BY topic, key, partition
), of_topics AS (
  SELECT topic, key, sum(records) AS records, count(*) AS partitions
  FROM of_partitions GROUP BY topic, key
), numbered AS (
  SELECT *, row_number() OVER (PARTITION BY topic ORDER BY records DESC, key) AS number
  FROM of_topics
)
SELECT 'partition' AS kind, topic, partition, count(*) AS keys, NULL AS key,
       NULL AS records, NULL AS number
FROM of_partitions GROUP BY topic, partition
UNION ALL
SELECT 'topic', topic, NULL, count(*), NULL, NULL, NULL FROM of_topics GROUP BY topic
UNION ALL
SELECT 'top', topic, partitions, NULL, key, records, number
FROM numbered WHERE number <= {most}
"""


def _key_counts(rows: Sequence[Any], topics: Sequence[str]) -> Iterator[KeyCount]:
    """By topic, the most frequent first."""
    totals = {row.topic: row.keys for row in rows if row.kind == _TOPIC_KEYS}
    top = [row for row in rows if row.kind == _TOP_KEYS]
    for row in sorted(top, key=lambda row: (row.topic, row.number)):
        yield KeyCount(
            topics[row.topic], bytes(row.key), row.records, row.partition, totals[row.topic]
        )
