"""Micro-batches of a steady stream, topic to topic: 2,000 records a second. A child process of
bench.spark: one session, all contenders in turn, round after round.

Times are Spark's own: `durationMs` of each batch, from its trigger to its commit, and its phases.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from bench.broker.wire import Wire
from bench.spark.contenders import JVM, OURS, PENSTOCK, Contender
from bench.spark.sessions import print_figure, read_arguments, session
from bench.spark.topics import PARTITIONS, VALUE_BYTES, create_topic

STEADY = "micro-batch at 2,000 records/s, topic to topic, ms"
PHASES = "phase of that micro-batch, ms"
PERIOD = "from the start of that micro-batch to that of the next, ms"
RATE = 2_000
SOURCE, TARGET = "steady", "steady-copy"
WARM_UP_BATCHES = 30  # until the JVM has compiled the hot code
TIMEOUT_S = 300
_TICK_S = 0.01
_SKIPPED = 3  # the first batches of each run: processes start, the backlog is read


class Delivery(NamedTuple):
    name: str
    contender: Contender
    options: Mapping[str, str]


AT_LEAST_ONCE = "our connector, at least once"
EXACTLY_ONCE = "our connector, exactly once"
THEIRS = "JVM connector, at least once"
DELIVERIES = (
    Delivery(THEIRS, Contender(JVM, PENSTOCK), {}),
    Delivery(AT_LEAST_ONCE, Contender(OURS, PENSTOCK), {"delivery": "at-least-once"}),
    Delivery(EXACTLY_ONCE, Contender(OURS, PENSTOCK), {"delivery": "exactly-once"}),
)


def main() -> None:
    arguments = read_arguments()
    servers = arguments["servers"][PENSTOCK]
    _create_topics(servers)
    with (
        _steady_producer(servers),
        session(arguments["home"], arguments["class_path"], with_preset=True) as spark,
    ):
        for delivery in DELIVERIES:
            _run(spark, arguments, delivery, WARM_UP_BATCHES)
        for number in range(arguments["rounds"]):
            shift = number % len(DELIVERIES)
            for delivery in (*DELIVERIES[shift:], *DELIVERIES[:shift]):
                _print(delivery, _run(spark, arguments, delivery, arguments["batches"]))


def _create_topics(servers: str) -> None:
    wire = Wire(servers)
    for topic in (SOURCE, TARGET):
        create_topic(wire, topic)
    wire.close()


@contextmanager
def _steady_producer(servers: str) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.spark.steady_stream", "--produce", servers]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def produce(servers: str) -> None:
    """Until it is killed."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
    value, start, sent = b"v" * VALUE_BYTES, time.monotonic(), 0
    while True:
        due = int((time.monotonic() - start) * RATE)
        for number in range(sent, due):
            producer.produce(SOURCE, value, partition=number % PARTITIONS)
        sent = due
        producer.poll(_TICK_S)


def _run(
    spark: SparkSession, arguments: Mapping[str, Any], delivery: Delivery, batches: int
) -> list[dict[str, Any]]:
    """The progress of each micro-batch but the first ones."""
    servers, name = arguments["servers"][PENSTOCK], delivery.contender.format
    checkpoint = Path(arguments["home"]) / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    rows = (
        spark.readStream.format(name)
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": SOURCE})
        .load()
    )
    writer = rows.select("key", "value").writeStream.format(name).options(**delivery.options)
    writer = writer.options(**{"kafka.bootstrap.servers": servers, "topic": TARGET})
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    deadline = time.monotonic() + TIMEOUT_S
    seen: dict[int, dict[str, Any]] = {}
    while query.isActive and len(seen) < batches and time.monotonic() < deadline:
        query.awaitTermination(1)
        seen |= {batch["batchId"]: batch for batch in query.recentProgress if batch["numInputRows"]}
    query.stop()
    assert len(seen) >= batches, query.exception()
    return [seen[number] for number in sorted(seen)][_SKIPPED:]


def _print(delivery: Delivery, batches: list[dict[str, Any]]) -> None:
    for phase in sorted({phase for batch in batches for phase in batch["durationMs"]}):
        taken = statistics.median(batch["durationMs"].get(phase, 0) for batch in batches)
        if phase == "triggerExecution":
            print_figure(STEADY, delivery.name, taken)
        else:
            print_figure(f"{PHASES}: {phase}", delivery.name, taken)
    starts = [_seconds(batch["timestamp"]) for batch in batches]
    periods = [1000 * (after - before) for before, after in pairwise(starts)]
    print_figure(PERIOD, delivery.name, statistics.median(periods))


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


if __name__ == "__main__":
    if sys.argv[1] == "--produce":
        produce(sys.argv[2])
    else:
        main()
