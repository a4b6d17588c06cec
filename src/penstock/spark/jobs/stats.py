"""The `stats` job: number, size and keys of records, how evenly they are spread and how fast they
arrive. Spark counts; `stats_summary` interprets the counts.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.client.data_calls import IsolationLevel
from penstock.model.ids import TopicPartition
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.jobs.running import JobWatch, run_watched
from penstock.spark.jobs.scope import JobScope, resolve_scope, source_options
from penstock.spark.jobs.stats_summary import (
    Cell,
    KeyCount,
    PartitionStats,
    TopicStats,
    choose_bucket_ms,
    summarise,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = "topic string, partition int, timestamp timestamp, key binary, value binary"


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
    topics: list[TopicStats] = []
    if resolved.offsets:
        options = source_options(client.settings.bootstrap, resolved)
        options["kafka.isolation.level"] = stats.isolation.name.lower()
        options["minPartitions"] = str(stats.min_tasks)
        rows = spark.read.format("penstock").schema(_COLUMNS).options(**options).load()
        topics = _measure(spark, rows, stats, watch)
    return StatsResult(topics=topics, seconds=time.monotonic() - started_s)


def _measure(
    spark: "SparkSession", rows: "DataFrame", stats: Stats, watch: JobWatch
) -> list[TopicStats]:
    measured = spark.sql(_PARTITIONS, rows=rows)
    partitions = [
        _partition_stats(row)
        for row in run_watched(spark, "measure partitions", watch, measured.collect)
    ]
    bucket_ms = choose_bucket_ms(partitions)
    counted = spark.sql(_CELLS, rows=rows, bucket=bucket_ms)
    cells = [
        Cell(*row) for row in run_watched(spark, "measure times and sizes", watch, counted.collect)
    ]
    grouped = spark.sql(_KEYS, rows=rows, most=stats.top)
    keys = list(_key_counts(run_watched(spark, "count keys", watch, grouped.collect)))
    return summarise(partitions, cells, keys, bucket_ms)


_PARTITIONS = """
SELECT topic, partition, count(*) AS records, count_if(key IS NULL) AS without_key,
       count_if(value IS NULL) AS without_value, coalesce(sum(length(key)), 0) AS key_bytes,
       coalesce(sum(length(value)), 0) AS value_bytes,
       approx_percentile(coalesce(length(value), 0), array(0.0, 0.5, 0.99, 1.0)) AS value_sizes,
       approx_count_distinct(key) AS keys, unix_millis(min(timestamp)) AS first_ms,
       unix_millis(max(timestamp)) AS last_ms
FROM {rows} GROUP BY topic, partition ORDER BY topic, partition
"""
# A size class is the exponent of the smallest power of two above the size.
_CELLS = """
SELECT topic, unix_millis(timestamp) DIV {bucket} * {bucket} AS start_ms,
       CAST(ceil(log2(coalesce(length(value), 0) + 1)) AS int) AS size_class,
       count(*) AS records,
       coalesce(sum(length(key)), 0) + coalesce(sum(length(value)), 0) AS bytes
FROM {rows} GROUP BY 1, 2, 3
"""
_KEYS = """
WITH counted AS (
  SELECT topic, key, count(*) AS records, count(DISTINCT partition) AS partitions
  FROM {rows} WHERE key IS NOT NULL GROUP BY topic, key
), numbered AS (
  SELECT *, count(*) OVER (PARTITION BY topic) AS keys,
         row_number() OVER (PARTITION BY topic ORDER BY records DESC, key) AS number
  FROM counted
)
SELECT topic, key, records, partitions, keys FROM numbered WHERE number <= {most}
ORDER BY topic, number
"""


def _partition_stats(row: Any) -> PartitionStats:
    least, median, high, most = row.value_sizes
    return PartitionStats(
        tp=TopicPartition(row.topic, row.partition),
        records=row.records,
        without_key=row.without_key,
        without_value=row.without_value,
        key_bytes=row.key_bytes,
        value_bytes=row.value_bytes,
        least_value_bytes=least,
        median_value_bytes=median,
        p99_value_bytes=high,
        most_value_bytes=most,
        keys=row.keys,
        first_ms=row.first_ms,
        last_ms=row.last_ms,
    )


def _key_counts(rows: Iterable[Any]) -> Iterable[KeyCount]:
    return (
        KeyCount(row.topic, bytes(row.key), row.records, row.partitions, row.keys) for row in rows
    )
