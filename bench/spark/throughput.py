"""Rows per second: to noop, to Parquet, topic to topic, to a topic. A child process of bench.spark.

Contenders alternate in one warm session. Every contender's work runs once before it is measured,
and is checked: all rows are read, all rows are written.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.broker.wire import Wire
from bench.spark.contenders import CONTENDERS, Contender, reading, rotated, writing
from bench.spark.sessions import print_figure, read_arguments, session
from bench.spark.topics import VALUE_BYTES, create_topic

QUERY_TIMEOUT_S = 300
NOOP = "source to noop, seven columns"
STREAM = "stream to noop, seven columns"
PARQUET = "source to Parquet, seven columns"
SINK = "sink, keys of 8 bytes and values of 100"
SINK_HEADERS = "sink, keys of 8 bytes, values of 100 and null headers"
SINK_ONCE = "sink, ours exactly once and the JVM connector's at least once"
COPY = "topic to topic, values of 100 bytes"


class Workloads:
    """The measured workloads; each processes all its rows and returns their number."""

    def __init__(self, spark: SparkSession, arguments: Mapping[str, Any]) -> None:
        self._spark = spark
        self._servers: Mapping[str, str] = arguments["servers"]
        self._many: tuple[str, int] = tuple(arguments["many"])
        self._some: tuple[str, int] = tuple(arguments["some"])
        self._home = Path(arguments["home"])
        self._written = self._make_rows(self._some[1])

    def table(self) -> dict[str, Callable[[Contender], int]]:
        return {
            NOOP: self._to_noop,
            STREAM: self._stream_to_noop,
            PARQUET: self._to_parquet,
            SINK: self._to_topic,
            SINK_HEADERS: self._to_topic_with_headers,
            SINK_ONCE: self._to_topic_once,
            COPY: self._copy,
        }

    def check(self, contender: Contender) -> None:
        """Checks that all rows are read completely."""
        for topic, count in (self._many, self._some):
            totals = self._read(contender, topic).selectExpr("count(value)", "sum(length(value))")
            assert tuple(totals.first() or ()) == (count, count * VALUE_BYTES)

    def _make_rows(self, count: int) -> DataFrame:
        """Rows cached in memory before the clock starts."""
        rows = self._spark.range(count, numPartitions=2).selectExpr(
            "cast(lpad(cast(id AS string), 8, '0') AS binary) AS key",
            "cast(lpad(cast(id AS string), 100, 'value ') AS binary) AS value",
        )
        rows.cache().count()
        return rows

    def _read(self, contender: Contender, topic: str) -> DataFrame:
        options = reading(self._servers, contender, topic)
        return self._spark.read.format(contender.format).options(**options).load()

    def _to_noop(self, contender: Contender) -> int:
        topic, count = self._many
        self._read(contender, topic).write.format("noop").mode("overwrite").save()
        return count

    def _to_parquet(self, contender: Contender) -> int:
        topic, count = self._some
        out = self._home / "parquet"
        self._read(contender, topic).write.mode("overwrite").parquet(str(out))
        return count

    def _stream_to_noop(self, contender: Contender) -> int:
        topic, count = self._many
        options = reading(self._servers, contender, topic)
        rows = self._spark.readStream.format(contender.format).options(**options).load()
        checkpoint = self._home / "checkpoint"
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        assert sum(progress["numInputRows"] for progress in query.recentProgress) == count
        shutil.rmtree(checkpoint)
        return count

    def _to_topic(self, contender: Contender) -> int:
        self._write(self._written, contender, "at-least-once")
        return self._some[1]

    def _to_topic_with_headers(self, contender: Contender) -> int:
        null = "CAST(NULL AS array<struct<key:string,value:binary>>) AS headers"
        self._write(self._written.selectExpr("*", null), contender, "at-least-once")
        return self._some[1]

    def _to_topic_once(self, contender: Contender) -> int:
        self._write(self._written, contender, "exactly-once")
        return self._some[1]

    def _copy(self, contender: Contender) -> int:
        topic, count = self._some
        rows = self._read(contender, topic).select("key", "value")
        self._write(rows, contender, "at-least-once")
        return count

    def _write(self, rows: DataFrame, contender: Contender, delivery: str) -> None:
        """The JVM connector ignores the option: it always writes at least once."""
        options = {**writing(self._servers, contender, "target"), "delivery": delivery}
        rows.write.format(contender.format).options(**options).mode("append").save()

    def fresh_target(self, contender: Contender) -> None:
        """Recreates the target topic."""
        wire = Wire(self._servers[contender.broker])
        wire.delete_topic("target")
        create_topic(wire, "target")
        wire.close()


def main() -> None:
    arguments = read_arguments()
    with session(arguments["home"], arguments["class_path"], with_preset=True) as spark:
        workloads = Workloads(spark, arguments)
        for contender in CONTENDERS:
            workloads.check(contender)
        for metric, work in workloads.table().items():
            for number in range(-1, arguments["rounds"]):
                for contender in rotated(max(number, 0)):
                    rate = _measure(workloads, work, contender)
                    if number >= 0:  # the first round warms up the compilers
                        print_figure(metric, contender.name, rate)


def _measure(workloads: Workloads, work: Callable[[Contender], int], contender: Contender) -> float:
    workloads.fresh_target(contender)
    start = time.perf_counter()
    count = work(contender)
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
