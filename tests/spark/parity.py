"""What a connector gives for some options: rows, or a refusal; the same question put to both.

Rows come back sorted by place, as plain tuples, so that they can be compared whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
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
    """One row, in the order of the connector's columns; headers only where they were asked for."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] | None


class Streamed(NamedTuple):
    """What a streaming query gave until it had drained its topics."""

    rows: list[Read]
    batch_rows: list[int]  # of each micro-batch that had any
    batch_ends: list[dict[str, dict[str, int]]]  # topic, partition: where each micro-batch ended


class Refused(NamedTuple):
    """The query failed; what both connectors say about it differs, what it is about does not."""

    said: str


def both(
    spark: SparkSession, options: Options
) -> tuple[list[Read] | Refused, list[Read] | Refused]:
    """The outcome of the JVM's connector, and ours, of a batch query with these options."""
    return batch_outcome(spark, JVM, options), batch_outcome(spark, OURS, options)


def batch_outcome(spark: SparkSession, format_name: str, options: Options) -> list[Read] | Refused:
    try:
        return read_batch(spark, format_name, options)
    except FAILURES as error:
        return Refused(str(error))


def read_batch(spark: SparkSession, format_name: str, options: Options) -> list[Read]:
    return to_reads(load(spark, format_name, options).collect())


def load(spark: SparkSession, format_name: str, options: Options) -> DataFrame:
    return spark.read.format(format_name).options(**options).load()


def stream_outcome(
    spark: SparkSession, format_name: str, checkpoint: Path, options: Options
) -> Streamed | Refused:
    try:
        return read_stream(spark, format_name, checkpoint, options)
    except FAILURES as error:
        return Refused(str(error))


def read_stream(
    spark: SparkSession, format_name: str, checkpoint: Path, options: Options
) -> Streamed:
    """Drain the topics (AvailableNow); a used checkpoint goes on where it ended."""
    batches: dict[int, list[Row]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        batches[number] = batch.collect()

    loaded = spark.readStream.format(format_name).options(**options).load()
    writer = loaded.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), f"still at work: {query.lastProgress}"
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
    found: dict[str, Any] = row.asDict()
    headers = found.get("headers")
    return Read(
        found["topic"],
        found["partition"],
        found["offset"],
        _to_bytes(found["key"]),
        _to_bytes(found["value"]),
        found["timestamp"],
        found["timestampType"],
        None
        if headers is None
        else tuple((header.key, _to_bytes(header.value)) for header in headers),
    )


def _to_bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _plain_offsets(offset: Any) -> dict[str, dict[str, int]]:
    """Topics alone: what else an offset carries is its source's own matter."""
    found: dict[str, Any] = json.loads(offset) if isinstance(offset, str) else offset
    return {
        topic: {partition: int(at) for partition, at in places.items()}
        for topic, places in found.items()
        if isinstance(places, dict) and all(each.isdigit() for each in places)
    }
