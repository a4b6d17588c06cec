"""The cost of a small micro-batch, in a session with or without the preset. A child process of
bench.spark: one session, both connectors.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.spark.contenders import JVM, OURS, PENSTOCK, Contender, reading
from bench.spark.sessions import print_figure, read_arguments, session

QUERY_TIMEOUT_S = 300
MICRO_BATCH = "micro-batch of 100 rows, ms"
PRESET = "preset"
DEFAULT = "Spark's default"
WARM_UP_BATCHES = 15  # until the JVM has compiled the hot code


def contender_name(format_name: str, *, with_preset: bool) -> str:
    return f"{Contender(format_name, PENSTOCK).name}, {PRESET if with_preset else DEFAULT}"


def main() -> None:
    arguments = read_arguments()
    with_preset: bool = arguments["with_preset"]
    home, class_path = arguments["home"], arguments["class_path"]
    with session(home, class_path, with_preset=with_preset) as spark:
        for connector in (JVM, OURS):
            _run(spark, arguments, connector, WARM_UP_BATCHES)
        for connector in (JVM, OURS):
            durations_ms = _run(spark, arguments, connector, arguments["batches"])
            name = contender_name(connector, with_preset=with_preset)
            print_figure(MICRO_BATCH, name, statistics.median(durations_ms))


def _run(
    spark: SparkSession, arguments: dict[str, Any], format_name: str, batches: int
) -> list[int]:
    """Milliseconds of each micro-batch, from the trigger to the commit."""
    contender = Contender(format_name, PENSTOCK)
    options = reading(arguments["servers"], contender, arguments["topic"])
    options["maxOffsetsPerTrigger"] = "100"
    rows = spark.readStream.format(format_name).options(**options).load()
    checkpoint = Path(arguments["home"]) / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="0 seconds").start()
    while query.isActive and len(query.recentProgress) <= batches:
        query.awaitTermination(1)
    query.stop()
    with_rows = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert len(with_rows) > batches, query.exception()
    return [progress["durationMs"]["triggerExecution"] for progress in with_rows][1:]


if __name__ == "__main__":
    main()
