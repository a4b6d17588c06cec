"""Partitioning of a table's files."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from penstock.spark.tables.errors import BadTableOption
from penstock.spark.tables.partitioning import (
    check_partition_fields,
    folder_of,
    parse_partitioning,
    split_rows,
    with_computed,
)

AT = pa.timestamp("us", tz="UTC")


def test_rows_are_split_by_partition_values_in_order() -> None:
    times = [datetime(2026, 1, 31, 23, 59, 59, 999999, UTC), datetime(2026, 2, 1, tzinfo=UTC), None]
    rows = pa.table({"at": pa.array(times, AT), "country": ["AT", "AT", "AT"], "n": [1, 2, 3]})
    partition_fields = parse_partitioning(["country", "day(at)"])
    whole = with_computed(rows, partition_fields)
    shares = {
        values: share.column("n").to_pylist()
        for values, share in split_rows(whole, partition_fields)
    }
    assert shares == {
        (("country", "AT"), ("at_day", "2026-01-31")): [1],
        (("country", "AT"), ("at_day", "2026-02-01")): [2],
        (("country", "AT"), ("at_day", None)): [3],
    }


@pytest.mark.parametrize(
    ("span", "value"), [("year", "2026"), ("month", "2026-01"), ("hour", "2026-01-31-23")]
)
def test_year_month_and_hour_of_a_timestamp(span: str, value: str) -> None:
    rows = pa.table({"at": pa.array([datetime(2026, 1, 31, 23, 59, tzinfo=UTC)], AT)})
    partition_fields = parse_partitioning([f"{span}(at)"])
    ((values, _),) = split_rows(with_computed(rows, partition_fields), partition_fields)
    assert values == ((f"at_{span}", value),)


def test_days_before_1970_start_at_midnight() -> None:
    rows = pa.table({"at": pa.array([datetime(1969, 12, 31, 12, tzinfo=UTC)], AT)})
    partition_fields = parse_partitioning(["day(at)"])
    ((values, _),) = split_rows(with_computed(rows, partition_fields), partition_fields)
    assert values == (("at_day", "1969-12-31"),)


def test_folder_names_escape_values() -> None:
    assert folder_of((("a", "x/y =z"), ("b", None))) == (
        "a=x%2Fy%20%3Dz/b=__HIVE_DEFAULT_PARTITION__/"
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("week(at)", "write a column, or one of year"),
        ("nothing", "which is not a column"),
        ("day(n)", "needs a time, and it is int64"),
        ("price", "which is double"),
    ],
)
def test_invalid_partition_fields_are_rejected(written: str, expected: str) -> None:
    schema = pa.schema([("at", AT), ("n", pa.int64()), ("price", pa.float64())])
    with pytest.raises(BadTableOption) as refused:
        check_partition_fields(parse_partitioning([written]), schema)
    assert expected in str(refused.value)


def test_duplicate_partition_fields_are_rejected() -> None:
    with pytest.raises(BadTableOption, match="twice"):
        parse_partitioning(["a", "a"])
