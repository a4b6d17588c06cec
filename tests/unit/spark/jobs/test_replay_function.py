"""A user's replay function: loaded, pickled with its module, applied to Arrow batches."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from penstock.spark.codec.row_columns import COLUMN_TYPES
from penstock.spark.jobs.failures import JobRefused
from penstock.spark.jobs.replay_function import (
    BadReplayFunction,
    RecordFunction,
    ReplayRecord,
    change_batches,
    load_function,
)

SOURCE = """
PREFIX = b"seen "

def mark(record):
    if record.value is None:
        return None
    return record._replace(value=PREFIX + record.value)
"""
ROWS: list[dict[str, Any]] = [
    {
        "key": b"k",
        "value": value,
        "topic": "t",
        "partition": 1,
        "offset": 7 + index,
        "timestamp": datetime.fromtimestamp(12.345, UTC),
        "headers": [{"key": "h", "value": None}] if index else None,
    }
    for index, value in enumerate([b"a", None, b"c"])
]
SCHEMA = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in ROWS[0]])


def apply(change: RecordFunction) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
    return [row for made in change_batches(change, [batch]) for row in made.to_pylist()]


def test_function_changes_and_drops_records(tmp_path: Path) -> None:
    file = tmp_path / "marking_for_test.py"
    file.write_text(SOURCE)
    rows = apply(load_function(f"{file}:mark"))
    assert [(row["value"], row["offset"]) for row in rows] == [(b"seen a", 7), (b"seen c", 9)]
    assert rows[0]["timestamp"] == ROWS[0]["timestamp"]
    assert [row["headers"] for row in rows] == [None, [{"key": "h", "value": None}]]


def test_function_is_pickled_with_its_module(tmp_path: Path) -> None:
    file = tmp_path / "travelling_for_test.py"
    file.write_text(SOURCE)
    dumps: Any = cloudpickle.dumps
    assert b"seen " in dumps(load_function(f"{file}:mark"))


def test_function_may_return_several_records() -> None:
    rows = apply(lambda record: [record, record._replace(key=None)])
    assert [row["key"] for row in rows] == [b"k", None] * 3


def test_function_sees_all_fields_of_the_record() -> None:
    seen: list[ReplayRecord] = []
    assert apply(lambda record: seen.append(record)) == []
    assert seen[1] == ReplayRecord(b"k", None, (("h", None),), "t", 1, 8, 12_345)


def test_function_errors_name_the_record() -> None:
    def fail(record: ReplayRecord) -> ReplayRecord:
        raise KeyError("price")

    with pytest.raises(BadReplayFunction, match=r"failed for t-1 offset 7: KeyError: 'price'"):
        apply(fail)
    with pytest.raises(
        BadReplayFunction, match=r"returned int for t-1 offset 7: return the record"
    ):
        apply(lambda record: [1])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing", "write MODULE:FUNCTION"),
        ("no_such_module_here:f", "cannot import no_such_module_here"),
        ("no_such_file.py:f", "cannot load it: FileNotFoundError"),
        ("json:no_such_function", "json has no function 'no_such_function'"),
    ],
)
def test_function_that_cannot_be_loaded_is_refused(text: str, expected: str) -> None:
    with pytest.raises(JobRefused, match=expected):
        load_function(text)
