"""The batch source against a real broker, called like Spark does."""

import pickle
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from pyspark.sql import datasource as ds
from tests.unit.spark.source.source_log import Log, Rows

import penstock
from penstock.spark.codec import decode
from penstock.spark.errors import SparkSourceError
from penstock.spark.source.batch_reader import FilteringReader, PenstockReader
from penstock.spark.source.options import ReadMode

pytestmark = pytest.mark.xdist_group("spark-source")

_numbers = count(1)
COLUMNS = ("partition", "offset", "value")


@pytest.fixture
def log(penstock_broker: penstock.Broker) -> Log:
    log = Log(penstock_broker.bootstrap_servers, f"batch-reader-{next(_numbers)}")
    log.create(partitions=2)
    log.write(0, [b"a", b"b", b"c"], time_ms=1_000)
    log.write(0, [b"d", b"e"], time_ms=2_000)
    log.write(1, [b"f"], time_ms=3_000)
    return log


def make(
    log: Log, kind: type[PenstockReader] = PenstockReader, /, **options: str
) -> PenstockReader:
    named = {name: text.replace("TOPIC", log.topic) for name, text in options.items()}
    return kind(log.options(ReadMode.BATCH, **named), COLUMNS)


def read(reader: PenstockReader) -> Rows:
    rows: Rows = []
    for part in reader.partitions():
        elsewhere, work = pickle.loads(pickle.dumps((reader, part)))
        for batch in elsewhere.read(work):
            assert batch.schema.names == list(COLUMNS)
            rows += [tuple(row.values()) for row in batch.to_pylist()]
    return rows


def letters(rows: Rows) -> str:
    return b"".join(row[2] for row in rows).decode()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "abcdef"),
        ({"startingOffsets": '{"TOPIC": {"0": 1, "1": -2}}'}, "bcdef"),
        ({"endingOffsets": '{"TOPIC": {"0": 2, "1": -1}}'}, "abf"),
        ({"startingTimestamp": "2000"}, "def"),
        ({"endingTimestamp": "2000"}, "abc"),
        ({"endingTimestamp": "9000"}, "abcdef"),
        ({"endingOffsetsByTimestamp": '{"TOPIC": {"0": 2000, "1": 9000}}'}, "abcf"),
        ({"assign": '{"TOPIC": [1]}'}, "f"),
        ({"subscribePattern": "TOPIC"}, "abcdef"),
        ({"subscribePattern": "nothing-matches"}, ""),
        ({"minPartitions": "5"}, "abcdef"),
        ({"maxRecordsPerPartition": "1"}, "abcdef"),
    ],
)
def test_query_reads_the_requested_range(log: Log, options: dict[str, str], expected: str) -> None:
    assert letters(read(make(log, **options))) == expected


def test_end_is_fixed_at_planning(log: Log) -> None:
    reader = make(log)
    planned = reader.partitions()
    log.write(1, [b"later"])
    rows = [row for part in planned for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == [b"a", b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"TOPIC": {"0": 99, "1": 0}}'},
        {"endingOffsets": '{"TOPIC": {"0": 99, "1": 0}}'},
    ],
)
def test_missing_offsets_fail_or_are_skipped(log: Log, options: dict[str, str]) -> None:
    with pytest.raises(SparkSourceError, match=r"99.* the log holds 0 to 5.*failOnDataLoss"):
        make(log, **options).partitions()
    rows = read(make(log, **options, failOnDataLoss="false"))
    assert letters(rows) in ("f", "abcde")


def test_highly_compressed_data_is_decoded_in_several_steps(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "MAX_DECODED_BYTES", 1)
    assert letters(read(make(log))) == "abcdef"


def test_empty_range_is_one_task_without_rows(log: Log) -> None:
    reader = make(log, subscribePattern="nothing-matches")
    assert len(reader.partitions()) == 1
    assert read(reader) == []


FILTERS: list[tuple[list[Any], str]] = [
    ([ds.EqualTo(("partition",), 1)], "f"),
    ([ds.GreaterThan(("offset",), 2)], "de"),
    ([ds.EqualTo(("topic",), "another")], ""),
    ([ds.GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(2, UTC))], "def"),
    ([ds.GreaterThan(("timestamp",), datetime.fromtimestamp(2.5, UTC))], "f"),
    ([ds.GreaterThan(("timestamp",), datetime.fromtimestamp(9, UTC))], ""),
    ([ds.EqualTo(("value",), b"a")], "abcdef"),
    ([ds.LessThan(("timestamp",), datetime.fromtimestamp(2, UTC))], "abcdef"),
]


@pytest.mark.parametrize(("filters", "expected"), FILTERS)
def test_pushed_filters_narrow_reading_and_are_returned_to_spark(
    log: Log, filters: list[Any], expected: str
) -> None:
    reader = make(log, FilteringReader)
    assert isinstance(reader, FilteringReader)
    assert list(reader.pushFilters(filters)) == filters
    assert letters(read(reader)) == expected
