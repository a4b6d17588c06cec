"""Statistics computed from counts, and their charts."""

import xml.etree.ElementTree as ET
from datetime import UTC, datetime

import pytest

from penstock.model.ids import TopicPartition
from penstock.spark.jobs.charts import Column, column_chart, show_amount
from penstock.spark.jobs.stats_charts import draw, rate_columns
from penstock.spark.jobs.stats_summary import (
    Cell,
    KeyCount,
    PartitionStats,
    TopicStats,
    choose_bucket_ms,
    skew,
    summarise,
)

START_MS = int(datetime(2026, 1, 31, 13, 45, tzinfo=UTC).timestamp() * 1000)
SVG = "{http://www.w3.org/2000/svg}"


def partition(
    number: int, records: int, *, topic: str = "t", first_ms: int = 0, last_ms: int = 1
) -> PartitionStats:
    return PartitionStats(
        tp=TopicPartition(topic, number),
        records=records,
        without_key=0,
        without_value=0,
        key_bytes=records * 2,
        value_bytes=records * 10,
        least_value_bytes=10,
        median_value_bytes=10,
        p99_value_bytes=10,
        most_value_bytes=10,
        keys=3,
        first_ms=START_MS + first_ms,
        last_ms=START_MS + last_ms,
    )


def sample() -> TopicStats:
    partitions = [partition(0, 30, last_ms=10_000), partition(1, 10, last_ms=5_000)]
    cells = [
        Cell("t", START_MS, 4, 20, 240),
        Cell("t", START_MS, 6, 5, 60),
        Cell("t", START_MS + 3_000, 4, 15, 180),
    ]
    keys = [KeyCount("t", b"<a&b>", 25, 1, 3), KeyCount("t", b"\xff", 10, 2, 3)]
    (topic,) = summarise(partitions, cells, keys, 1_000)
    return topic


def test_totals_rates_and_skew_are_computed_from_counts() -> None:
    topic = sample()
    assert (topic.records, topic.size_bytes, topic.keys) == (40, 480, 3)
    assert (topic.records_per_s, topic.peak_records_per_s) == (4.0, 25.0)
    assert topic.skew == 1.5
    assert [(bucket.start_ms - START_MS, bucket.records) for bucket in topic.buckets] == [
        (0, 25),
        (3_000, 15),
    ]
    assert topic.sizes == [(16, 35), (32, 0), (64, 5)]


def test_topics_are_summarised_separately() -> None:
    summaries = summarise([partition(0, 1, topic="b"), partition(0, 2, topic="a")], [], [], 1_000)
    assert [(summary.topic, summary.records, summary.keys) for summary in summaries] == [
        ("a", 2, 0),
        ("b", 1, 0),
    ]


@pytest.mark.parametrize(
    ("span_s", "bucket_s"), [(0, 1), (100, 1), (101, 5), (5_000, 60), (86_400, 900)]
)
def test_bucket_width_is_usual_and_gives_at_most_a_hundred_buckets(
    span_s: int, bucket_s: int
) -> None:
    assert choose_bucket_ms([partition(0, 1, last_ms=span_s * 1000)]) == bucket_s * 1000


def test_very_long_time_range_has_at_most_a_hundred_buckets() -> None:
    span_ms = 100 * 365 * 86_400_000
    assert span_ms / choose_bucket_ms([partition(0, 1, last_ms=span_ms)]) <= 100
    assert choose_bucket_ms([]) == 1_000


def test_skew_ranges_from_one_to_the_number_of_partitions() -> None:
    assert (skew([5, 5, 5]), skew([9, 0, 0]), skew([0, 0])) == (1.0, 3.0, 1.0)


def test_buckets_without_records_are_drawn() -> None:
    assert rate_columns(sample()) == [
        Column("13:45:00", 25.0),
        Column("13:45:01", 0.0),
        Column("13:45:02", 0.0),
        Column("13:45:03", 15.0),
    ]


def test_charts_are_svg_with_a_column_for_each_value() -> None:
    charts = draw(sample())
    assert sorted(charts) == [f"t-{name}.svg" for name in ("keys", "partitions", "rate", "sizes")]
    columns = {
        name: [shape.find(f"{SVG}title") for shape in ET.fromstring(chart).iter(f"{SVG}rect")]
        for name, chart in charts.items()
    }
    titles = [column.text for column in columns["t-keys.svg"] if column is not None]
    assert titles == ["<a&b>: 25", "\\xff: 10"]
    assert len([column for column in columns["t-sizes.svg"] if column is not None]) == 3


def test_columns_scale_to_the_largest_and_an_empty_chart_is_valid() -> None:
    root = ET.fromstring(column_chart("c", "u", [Column("a", 50), Column("b", 100)]))
    low, high = (float(shape.get("height", "")) for shape in list(root.iter(f"{SVG}rect"))[1:])
    assert high == pytest.approx(2 * low)
    assert ET.fromstring(column_chart("c", "u", [])).tag == f"{SVG}svg"


def test_amounts_are_abbreviated() -> None:
    assert [show_amount(amount) for amount in (0, 12.345, 1_500, 2e6, 3e10)] == [
        *("0", "12.3", "1.5k", "2M", "30G")
    ]
