"""SIGKILL of a streaming query's processes: the query resumes from its checkpoint and misses no
record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.interop.kafka_broker import Child
from tests.profile import is_long
from tests.spark.parity import OURS, QUERY_TIMEOUT_S
from tests.spark.streaming_job import STARTED, Job, hangs
from tests.spark.topics import Sent, create_topic, send, wait_until
from tests.spark.worker_processes import find_planners, find_workers

import penstock

JOB_TIMEOUT_S = 300
PARTITIONS = 2


def numbered(first: int, count: int) -> list[Sent]:
    return [
        Sent(str(number).encode(), None, number % PARTITIONS)
        for number in range(first, first + count)
    ]


def read_output(job: Job, *, below_batch: int = sys.maxsize) -> list[int]:
    """The numbers in all micro-batches."""
    output = pyarrow.dataset.dataset(job.output, format="parquet", partitioning="hive")
    kept = output.to_table(columns=["value"], filter=pyarrow.dataset.field("batch") < below_batch)
    return sorted(int(value) for value in kept.column("value").to_pylist())


def describe_group(servers: str, group: str) -> dict[str, Any]:
    """Describes the group with the command line, like a user."""
    program = str(Path(sys.executable).with_name("penstock"))
    command = [program, "--bootstrap", servers, "group", "describe", group, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    described: dict[str, Any] = json.loads(done.stdout)
    return described


@contextmanager
def running(job: Job, log: Path) -> Iterator[Child]:
    """Kills driver and JVM with SIGKILL when the context ends."""
    child = Child(job.command(), log)
    try:
        yield child
    finally:
        os.killpg(child.process.pid, signal.SIGKILL)
        child.end(with_signal=None, timeout_s=JOB_TIMEOUT_S)


def run_to_completion(job: Job, log: Path) -> None:
    child = Child(job.command(), log)
    status = child.end(with_signal=None, timeout_s=JOB_TIMEOUT_S)
    assert status == 0, child.tail()


@pytest.mark.skipif(
    not is_long(), reason="two starts of Spark; test_exactly_once kills a driver in `make test`"
)
@pytest.mark.usefixtures("java")
def test_driver_killed_in_its_first_and_a_later_batch_misses_no_record(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """With `latest`, the query starts at the end as it first saw it, although the kill fell into
    batch 0. A batch that was written but not committed is written again, unchanged."""
    servers, group = broker.bootstrap_servers, f"{topic_name}-group"
    create_topic(servers, topic_name, partitions=PARTITIONS)
    send(servers, topic_name, numbered(0, 10))
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic_name,
        "startingOffsets": "latest",
        "maxOffsetsPerTrigger": "20",
        "kafka.group.id": group,
    }
    drained = Job(options, str(tmp_path))

    with running(drained._replace(hang_before=0), tmp_path / "first.log") as child:
        child.wait_line(STARTED, timeout_s=JOB_TIMEOUT_S)
        send(servers, topic_name, numbered(10, 40))
        child.wait_line(hangs(0), timeout_s=JOB_TIMEOUT_S)
    assert not drained.output.exists()
    send(servers, topic_name, numbered(50, 50))

    with running(drained._replace(hang_after=2), tmp_path / "second.log") as child:
        child.wait_line(hangs(2), timeout_s=JOB_TIMEOUT_S)
        lag = describe_group(servers, group)["lag"]
    done = read_output(drained, below_batch=2)
    assert lag == 90 - len(done)
    assert 0 < lag < 90
    send(servers, topic_name, numbered(100, 10))

    run_to_completion(drained, tmp_path / "third.log")
    assert read_output(drained) == list(range(10, 110))
    assert describe_group(servers, group)["lag"] == 0


class CopyQuery:
    """A query of the shared Spark that copies a topic to Parquet each time it is started."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, home: Path) -> None:
        self._spark = spark
        self._options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        self._home = home

    @contextmanager
    def started(self) -> Iterator[StreamingQuery]:
        rows = self._spark.readStream.format(OURS).options(**self._options).load()
        writer = rows.select("value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._home / "checkpoint"))
        query = writer.option("path", str(self._home / "output")).start()
        try:
            yield query
        finally:
            query.stop()

    def numbers(self) -> list[int]:
        rows = self._spark.read.parquet(str(self._home / "output")).collect()
        return sorted(int(row.value) for row in rows)


def running_tasks(spark: SparkSession) -> int:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
    return sum(info.numActiveTasks for info in stages if info is not None)


def wait_failed(query: StreamingQuery) -> None:
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(QUERY_TIMEOUT_S)


def test_query_resumes_from_its_checkpoint_after_its_workers_are_killed(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """They are stopped while idle, so that they hold the next batch when they die."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    copying = CopyQuery(spark, servers, topic_name, tmp_path)
    with copying.started() as query:
        send(servers, topic_name, numbered(0, 100))
        query.processAllAvailable()
        workers = find_workers(spark)
        assert workers
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        send(servers, topic_name, numbered(100, 100))
        # One task may read both partitions.
        wait_until("tasks are running", lambda: running_tasks(spark) > 0)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        with suppress(StreamingQueryException):  # not raised if Spark has not used them yet
            query.processAllAvailable()
    with copying.started() as query:
        query.processAllAvailable()
    assert copying.numbers() == list(range(200))


@pytest.mark.skipif(not is_long(), reason="workers are killed in `make test`")
def test_query_resumes_from_its_checkpoint_after_its_planner_is_killed(
    spark: SparkSession, broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """The planner is the Python process that finds new records, one per query."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    copying = CopyQuery(spark, servers, topic_name, tmp_path)
    before = set(find_planners(spark))
    with copying.started() as query:
        send(servers, topic_name, numbered(0, 100))
        query.processAllAvailable()
        (planner,) = set(find_planners(spark)) - before
        os.kill(planner, signal.SIGKILL)
        wait_failed(query)
    send(servers, topic_name, numbered(100, 100))
    with copying.started() as query:
        query.processAllAvailable()
    assert copying.numbers() == list(range(200))
