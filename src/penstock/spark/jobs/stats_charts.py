"""A topic's charts: records by partition, over time, by value size and by key. Pure."""

from datetime import UTC, datetime
from itertools import pairwise

from penstock.spark.jobs.charts import Column, column_chart, show_amount
from penstock.spark.jobs.stats_summary import TimeBucket, TopicStats, show_key

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000


def draw(stats: TopicStats) -> dict[str, str]:
    """SVG documents by file name."""
    charts = {
        "partitions": column_chart(
            f"{stats.topic}: records by partition",
            "records",
            [
                Column(str(partition.tp.partition), partition.records)
                for partition in stats.partitions
            ],
        ),
        "rate": column_chart(
            f"{stats.topic}: records by time", "records per second", rate_columns(stats)
        ),
        "sizes": column_chart(
            f"{stats.topic}: sizes of values",
            "records",
            [Column(f"< {show_amount(below)}", records) for below, records in stats.sizes],
        ),
        "keys": column_chart(
            f"{stats.topic}: most frequent keys",
            "records",
            [Column(show_key(key.key), key.records) for key in stats.top_keys],
        ),
    }
    return {f"{stats.topic}-{name}.svg": chart for name, chart in charts.items()}


def rate_columns(stats: TopicStats) -> list[Column]:
    """One column per bucket, including buckets without records."""
    width_ms = stats.bucket_ms
    seconds = width_ms / 1000
    return [
        Column(_shown_time(bucket.start_ms, width_ms), bucket.records / seconds)
        for bucket in _with_empty(stats.buckets, width_ms)
    ]


def _with_empty(buckets: list[TimeBucket], width_ms: int) -> list[TimeBucket]:
    filled = buckets[:1]
    for before, after in pairwise(buckets):
        starts = range(before.start_ms + width_ms, after.start_ms, width_ms)
        filled += [TimeBucket(start_ms, 0, 0) for start_ms in starts]
        filled.append(after)
    return filled


def _shown_time(time_ms: int, width_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    if width_ms >= _DAY_MS:
        return moment.strftime("%Y-%m-%d")
    return moment.strftime("%m-%d %H:%M" if width_ms >= _MINUTE_MS else "%H:%M:%S")
