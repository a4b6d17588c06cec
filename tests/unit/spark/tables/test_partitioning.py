"""What a table is divided by."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from penstock.spark.tables.errors import BadTableOption
from penstock.spark.tables.partitioning import (
    check_divisions,
    folder_of,
    parse_partitioning,
    split_rows,
    with_computed,
)

AT = pa.timestamp("us", tz="UTC")


def test_rows_are_divided_by_values_and_spans_of_time_in_their_order() -> None:
    times = [datetime(2026, 1, 31, 23, 59, 59, 999999, UTC), datetime(2026, 2, 1, tzinfo=UTC), None]
    rows = pa.table({"at": pa.array(times, AT), "country": ["AT", "AT", "AT"], "n": [1, 2, 3]})
    divisions = parse_partitioning(["country", "day(at)"])
    whole = with_computed(rows, divisions)
    found = {
        values: share.column("n").to_pylist() for values, share in split_rows(whole, divisions)
    }
    assert found == {
        (("country", "AT"), ("at_day", "2026-01-31")): [1],
        (("country", "AT"), ("at_day", "2026-02-01")): [2],
        (("country", "AT"), ("at_day", None)): [3],
    }


@pytest.mark.parametrize(
    ("span", "value"), [("year", "2026"), ("month", "2026-01"), ("hour", "2026-01-31-23")]
)
def test_spans_of_time(span: str, value: str) -> None:
    rows = pa.table({"at": pa.array([datetime(2026, 1, 31, 23, 59, tzinfo=UTC)], AT)})
    divisions = parse_partitioning([f"{span}(at)"])
    ((values, _),) = split_rows(with_computed(rows, divisions), divisions)
    assert values == ((f"at_{span}", value),)


def test_before_1970_a_day_begins_at_midnight_too() -> None:
    rows = pa.table({"at": pa.array([datetime(1969, 12, 31, 12, tzinfo=UTC)], AT)})
    divisions = parse_partitioning(["day(at)"])
    ((values, _),) = split_rows(with_computed(rows, divisions), divisions)
    assert values == (("at_day", "1969-12-31"),)


def test_folders_take_any_value() -> None:
    assert folder_of((("a", "x/y =z"), ("b", None))) == (
        "a=x%2Fy%20%3Dz/b=__HIVE_DEFAULT_PARTITION__/"
    )


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("week(at)", "write a column, or one of year"),
        ("nothing", "which it has not"),
        ("day(n)", "needs a time, and it is int64"),
        ("price", "which is double"),
    ],
)
def test_what_cannot_divide_is_told(written: str, told: str) -> None:
    schema = pa.schema([("at", AT), ("n", pa.int64()), ("price", pa.float64())])
    with pytest.raises(BadTableOption) as refused:
        check_divisions(parse_partitioning([written]), schema)
    assert told in str(refused.value)


def test_nothing_divides_twice() -> None:
    with pytest.raises(BadTableOption, match="twice"):
        parse_partitioning(["a", "a"])
