"""Topic to topic, exactly once: drivers, executors, Python workers and brokers are killed at the
worst moments, and every row is written once and in order. At-least-once is the control.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.kafka_jars import KafkaJars, KafkaUnavailableError, Say, resolve_kafka_jars
from tests.profile import is_long, scaled
from tests.spark.exactly_once_job import (
    HALTING,
    PARTITIONS,
    PLANNED,
    PLANNING,
    CopyJob,
    numbered,
    open_transactions,
    read_output,
    resume,
    run_to_completion,
    running,
    wait_halted,
)
from tests.spark.topics import create_topic, send

import penstock
from penstock.spark.sink.exactly_once.decision_log import DECISIONS_TOPIC
from penstock.spark.sink.exactly_once.fail_points import FailPoint
from penstock.testing import Cluster

RECORDS = scaled(test=20_000, verify=200_000, release=200_000)
BATCHES = scaled(test=5, verify=10, release=10)
BROKER_KILLS = scaled(test=1, verify=3, release=3)
_numbers = itertools.count(1)
# Where each run of the driver is killed; a batch named twice is killed again in recovery.
FEW = [f"{FailPoint.DECIDED}@1"]
ALL = [
    *(f"{point}@{batch}" for batch, point in enumerate(FailPoint)),
    *(
        f"{point}@7"
        for point in (FailPoint.DECIDING, FailPoint.DECIDED, FailPoint.ENDING, FailPoint.ENDED)
    ),
    f"{PLANNING}@8",
    f"{PLANNED}@8",
]
DRIVER_KILLS = ALL if is_long() else FEW
CONTROL_KILLS = [f"{FailPoint.COMMIT_BEGUN}@1", f"{PLANNED}@3", f"{FailPoint.COMMIT_BEGUN}@5"]


def make_job(servers: str, tmp_path: Path, *, replicas: int = 1) -> CopyJob:
    number = next(_numbers)
    source, target = f"numbers-{number}", f"copied-{number}"
    for name in (source, target):
        create_topic(servers, name, partitions=PARTITIONS, replication_factor=replicas)
    records = numbered(RECORDS)
    for first in range(0, RECORDS, 20_000):
        send(servers, source, records[first : first + 20_000])
    return CopyJob(servers, source, target, str(tmp_path), RECORDS // BATCHES, format=HALTING)


def assert_exactly_once(job: CopyJob, say: Say, what: str) -> None:
    output = read_output(job.servers, job.target)
    assert output.counts == Counter(range(RECORDS))
    assert output.are_in_order
    assert open_transactions(job.servers) == []
    say(f"exactly-once: {RECORDS} rows are written once, after kills of {what}")


def run_killed(job: CopyJob, points: Sequence[str], home: Path) -> None:
    """Kills the driver at one fail point after the other, then runs the job to completion."""
    for number, point in enumerate(points):
        kill_driver(job, point, home / f"kill-{number}")
    run_to_completion(job, home / "last.log")


def kill_driver(job: CopyJob, point: str, folder: Path) -> None:
    """Kills the driver at a fail point."""
    folder.mkdir()
    with running(job, folder / "job.log", halts=point, folder=folder) as child:
        wait_halted(child, folder, point)


@pytest.mark.usefixtures("java")
def test_driver_killed_at_every_fail_point_writes_each_row_once(
    broker: penstock.Broker, tmp_path: Path, say: Say
) -> None:
    job = make_job(broker.bootstrap_servers, tmp_path)
    run_killed(job, DRIVER_KILLS, tmp_path)
    assert_exactly_once(job, say, f"the driver at {', '.join(DRIVER_KILLS)}")


@pytest.mark.skipif(
    not is_long(), reason="three starts of Spark and one of Kafka: in `make verify`"
)
@pytest.mark.usefixtures("java")
def test_killed_driver_writes_each_row_once_on_kafka(tmp_path: Path, say: Say) -> None:
    """Kafka has no two-phase commit, so prepared transactions stay open and have a timeout."""
    with KafkaBroker(find_kafka(say), tmp_path / "kafka") as kafka:
        job = make_job(kafka.bootstrap, tmp_path)
        points = [f"{FailPoint.TASK_PREPARED}@1", f"{FailPoint.DECIDED}@2"]
        run_killed(job, points, tmp_path)
        assert_exactly_once(job, say, f"the driver at {', '.join(points)}, on Kafka")


def find_kafka(say: Say) -> KafkaJars:
    try:
        return resolve_kafka_jars(say)
    except KafkaUnavailableError as error:
        pytest.skip(f"skipped: {error}")


@pytest.mark.skipif(not is_long(), reason="the control: four starts of Spark, in `make verify`")
@pytest.mark.usefixtures("java")
def test_at_least_once_duplicates_rows_after_kills(
    broker: penstock.Broker, tmp_path: Path, say: Say
) -> None:
    """The negative control: only transactions prevent duplicates."""
    job = make_job(broker.bootstrap_servers, tmp_path)._replace(delivery="at-least-once")
    run_killed(job, CONTROL_KILLS, tmp_path)
    counts = read_output(job.servers, job.target).counts
    assert set(counts) == set(range(RECORDS))
    twice = sum(1 for times in counts.values() if times > 1)
    say(f"at-least-once: {twice} of {RECORDS} rows are written more than once")
    assert twice > 0


@pytest.mark.skipif(not is_long(), reason="a standalone Spark and three brokers, in `make verify`")
@pytest.mark.usefixtures("java")
def test_each_row_is_written_once_when_executors_workers_and_brokers_are_killed(
    tmp_path: Path, say: Say
) -> None:
    """Two separate executors, speculative tasks, three brokers."""
    config = {
        "transaction.state.log.num.partitions": 3,
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
    }
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.task.maxFailures": "8",
        "spark.executor.memory": "512m",
    }
    with Cluster(brokers=3, config=config) as cluster:
        job = make_job(cluster.bootstrap_servers, tmp_path, replicas=3)
        job = job._replace(master="local-cluster[2,1,1024]", settings=settings, format="penstock")
        broker_kills = [
            f"{FailPoint.DECIDING}@3",
            f"{FailPoint.DECIDED}@4",
            f"{FailPoint.TASK_PREPARED}@5",
        ]
        broker_kills = broker_kills[:BROKER_KILLS]
        worker, executor = f"{FailPoint.TASK_WRITTEN}@1", f"{FailPoint.TASK_PREPARED}@2"
        halts = ",".join([worker, executor, *broker_kills])
        with running(job, tmp_path / "job.log", halts=halts, folder=tmp_path) as child:
            os.kill(wait_halted(child, tmp_path, worker), signal.SIGKILL)
            kill_executor_of(wait_halted(child, tmp_path, executor))
            for broker, point in enumerate(broker_kills, start=1):
                wait_halted(child, tmp_path, point)
                cluster.kill(broker)
                resume(tmp_path, point)
                cluster.start(broker)
                cluster.wait_in_sync(DECISIONS_TOPIC, 0, 3)
            status = child.end(with_signal=None, timeout_s=300)
            assert status == 0, child.tail()
        assert_exactly_once(job, say, f"a worker, an executor and {BROKER_KILLS} of 3 brokers")


def kill_executor_of(worker: int) -> None:
    """The JVM that started a Python worker: worker, daemon, executor."""
    daemon = _parent(worker)
    executor = _parent(daemon)
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    os.kill(executor, signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
