"""Filter pushdown."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql import datasource as ds

from penstock.model.ids import TopicPartition
from penstock.spark.source.filters import least_time_ms, narrow_ranges, parse_filters
from penstock.spark.source.plan import OffsetRange

RANGES = [
    OffsetRange(TopicPartition("orders", 0), 0, 100),
    OffsetRange(TopicPartition("orders", 1), 50, 60),
    OffsetRange(TopicPartition("events", 0), 0, 10),
]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_767_268_800_000


def left(*filters: ds.Filter) -> list[tuple[str, int, int]]:
    return [
        (str(offset_range.tp), offset_range.start, offset_range.end)
        for offset_range in narrow_ranges(RANGES, parse_filters(filters))
    ]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([ds.EqualTo(("topic",), "events")], [("events-0", 0, 10)]),
        ([ds.In(("topic",), ("events", "x"))], [("events-0", 0, 10)]),
        ([ds.StringStartsWith(("topic",), "eve")], [("events-0", 0, 10)]),
        ([ds.EqualTo(("partition",), 1)], [("orders-1", 50, 60)]),
        ([ds.GreaterThan(("partition",), 0)], [("orders-1", 50, 60)]),
        ([ds.GreaterThan(("offset",), 54)], [("orders-0", 55, 100), ("orders-1", 55, 60)]),
        ([ds.GreaterThanOrEqual(("offset",), 55)], [("orders-0", 55, 100), ("orders-1", 55, 60)]),
        ([ds.LessThan(("offset",), 5)], [("orders-0", 0, 5), ("events-0", 0, 5)]),
        ([ds.LessThanOrEqual(("offset",), 5)], [("orders-0", 0, 6), ("events-0", 0, 6)]),
        ([ds.EqualTo(("offset",), 52)], [("orders-0", 52, 53), ("orders-1", 52, 53)]),
        ([ds.In(("offset",), (51, 58))], [("orders-0", 51, 59), ("orders-1", 51, 59)]),
        ([ds.In(("offset",), ())], []),
        (
            [ds.GreaterThan(("offset",), 4), ds.LessThan(("offset",), 4)],
            [],
        ),
        (
            [ds.EqualTo(("topic",), "orders"), ds.LessThan(("offset",), 55)],
            [("orders-0", 0, 55), ("orders-1", 50, 55)],
        ),
    ],
)
def test_filters_narrow_ranges(
    filters: list[ds.Filter], expected: list[tuple[str, int, int]]
) -> None:
    assert left(*filters) == expected


@pytest.mark.parametrize(
    "unknown",
    [
        ds.EqualTo(("value",), b"x"),
        ds.EqualTo(("headers", "key"), "x"),
        ds.Not(ds.EqualTo(("topic",), "orders")),
        ds.IsNotNull(("topic",)),
        ds.EqualNullSafe(("topic",), None),
        ds.StringEndsWith(("topic",), "s"),
    ],
)
def test_unsupported_filters_are_ignored(unknown: ds.Filter) -> None:
    assert parse_filters([unknown]) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (NOON, NOON_MS),
        (NOON + timedelta(microseconds=1500), NOON_MS + 1),
        (NOON.astimezone(timezone(timedelta(hours=5))), NOON_MS),
    ],
)
def test_timestamps_have_a_lower_bound(value: datetime, expected: int) -> None:
    for kind in (ds.GreaterThan, ds.GreaterThanOrEqual, ds.EqualTo):
        filters: list[Any] = [kind(("timestamp",), value)]
        assert least_time_ms(parse_filters(filters)) == expected


def test_latest_of_several_lower_bounds_applies() -> None:
    later = NOON + timedelta(hours=1)
    filters = [ds.GreaterThan(("timestamp",), NOON), ds.In(("timestamp",), (later, later))]
    assert least_time_ms(parse_filters(filters)) == NOON_MS + 3_600_000


def test_timestamps_have_no_upper_bound() -> None:
    assert least_time_ms(parse_filters([ds.LessThan(("timestamp",), NOON)])) is None
