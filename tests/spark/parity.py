"""Runs the same query with both connectors: each gives rows or an error.

Rows are plain tuples, sorted by partition and offset, so that they can be compared as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

JVM = "kafka"
OURS = "penstock"
FORMATS = (JVM, OURS)
QUERY_TIMEOUT_S = 180
# Not every exception of the JVM has a name in Python.
FAILURES = (PySparkException, Py4JJavaError)

Options = Mapping[str, str]


class Read(NamedTuple):
    """One row, in the order of the connector's columns; headers only on request."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] | None


class Streamed(NamedTuple):
    """The output of a streaming query that has drained its topics."""

    rows: list[Read]
    batch_rows: list[int]  # row count of each micro-batch that had any
    batch_ends: list[dict[str, dict[str, int]]]  # topic, partition: where each micro-batch ended


class Refused(NamedTuple):
    """The query failed. The connectors' messages differ, but they name the same problem."""

    message: str


def both(
    spark: SparkSession, options: Options
) -> tuple[list[Read] | Refused, list[Read] | Refused]:
    """The results of the JVM connector and of ours for a batch query with these options."""
    return batch_result(spark, JVM, options), batch_result(spark, OURS, options)


def batch_result(spark: SparkSession, format_name: str, options: Options) -> list[Read] | Refused:
    try:
        return read_batch(spark, format_name, options)
    except FAILURES as error:
        return Refused(str(error))


def read_batch(spark: SparkSession, format_name: str, options: Options) -> list[Read]:
    return to_reads(load(spark, format_name, options).collect())


def load(spark: SparkSession, format_name: str, options: Options) -> DataFrame:
    return spark.read.format(format_name).options(**options).load()


def stream_result(
    spark: SparkSession, format_name: str, checkpoint: Path, options: Options
) -> Streamed | Refused:
    try:
        return read_stream(spark, format_name, checkpoint, options)
    except FAILURES as error:
        return Refused(str(error))


def read_stream(
    spark: SparkSession, format_name: str, checkpoint: Path, options: Options
) -> Streamed:
    """Drain the topics (AvailableNow); an existing checkpoint is continued."""
    batches: dict[int, list[Row]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        batches[number] = batch.collect()

    loaded = spark.readStream.format(format_name).options(**options).load()
    writer = loaded.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), f"still running: {query.lastProgress}"
    finally:
        query.stop()
    ends = {
        progress["batchId"]: _plain_offsets(progress["sources"][0]["endOffset"])
        for progress in query.recentProgress
    }
    filled = [number for number, rows in batches.items() if rows]
    return Streamed(
        to_reads(row for number in filled for row in batches[number]),
        [len(batches[number]) for number in filled],
        [ends[number] for number in filled],
    )


def to_reads(rows: Iterable[Row]) -> list[Read]:
    return sorted((_to_read(row) for row in rows), key=lambda row: row[:3])


def _to_read(row: Row) -> Read:
    columns: dict[str, Any] = row.asDict()
    headers = columns.get("headers")
    return Read(
        columns["topic"],
        columns["partition"],
        columns["offset"],
        _to_bytes(columns["key"]),
        _to_bytes(columns["value"]),
        columns["timestamp"],
        columns["timestampType"],
        None
        if headers is None
        else tuple((header.key, _to_bytes(header.value)) for header in headers),
    )


def _to_bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _plain_offsets(offset: Any) -> dict[str, dict[str, int]]:
    """The topics only: everything else in an offset is private to its source."""
    fields: dict[str, Any] = json.loads(offset) if isinstance(offset, str) else offset
    return {
        topic: {partition: int(at) for partition, at in offsets.items()}
        for topic, offsets in fields.items()
        if isinstance(offsets, dict) and all(partition.isdigit() for partition in offsets)
    }
