"""Topic to topic, exactly once: drivers, executors, Python workers and brokers are killed at the
worst moments, and every row is there once and in order. At-least-once shows what that is worth.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.interop.kafka_jars import Say
from tests.profile import scaled
from tests.spark.exactly_once_job import (
    PARTITIONS,
    CopyJob,
    let_go,
    numbered,
    open_transactions,
    read_output,
    run_to_its_end,
    running,
    wait_halted,
)
from tests.spark.topics import create_topic, send, wait_until

import penstock
from penstock.spark.exactly_once.decision_log import DECISIONS_TOPIC
from penstock.spark.exactly_once.halting import Point
from penstock.testing import Cluster

RECORDS = scaled(test=20_000, verify=200_000, release=200_000)
BATCHES = scaled(test=5, verify=10, release=10)
BROKER_KILLS = scaled(test=1, verify=3, release=3)
_numbers = itertools.count(1)
# Where each run of the driver is killed; a point in a batch twice: the second time, in recovery.
FEW = [f"{Point.DECIDED}@1", f"{Point.ENDING}@1"]
ALL = [
    *(f"{point}@{batch}" for batch, point in enumerate(Point)),
    *(f"{point}@7" for point in (Point.DECIDING, Point.DECIDED, Point.ENDING, Point.ENDED)),
    "offsets/8",  # planned, not begun
    "commits/8",  # done, the next one not planned
]
DRIVER_KILLS = {"test": FEW, "verify": ALL, "release": ALL}[os.environ.get("PROFILE", "test")]


def make_job(servers: str, tmp_path: Path, *, replicas: int = 1) -> CopyJob:
    number = next(_numbers)
    source, target = f"numbers-{number}", f"copied-{number}"
    for name in (source, target):
        create_topic(servers, name, partitions=PARTITIONS, replication_factor=replicas)
    records = numbered(RECORDS)
    for first in range(0, RECORDS, 20_000):
        send(servers, source, records[first : first + 20_000])
    return CopyJob(servers, source, target, str(tmp_path), RECORDS // BATCHES)


def assert_exactly_once(job: CopyJob) -> None:
    output = read_output(job.servers, job.target)
    assert output.counts == Counter(range(RECORDS))
    assert output.are_in_order
    assert open_transactions(job.servers) == []


def kill_driver(job: CopyJob, place: str, folder: Path) -> None:
    """When it has come to a point of the sink, or written a file of its checkpoint."""
    folder.mkdir()
    with running(job, folder / "job.log", halts=place, folder=folder) as child:
        if "@" in place:
            wait_halted(child, folder, place)
        else:
            wait_until(place, (job.checkpoint / place).exists, timeout_s=300)


@pytest.mark.usefixtures("java")
def test_a_driver_killed_at_every_point_writes_each_row_once(
    broker: penstock.Broker, tmp_path: Path
) -> None:
    job = make_job(broker.bootstrap_servers, tmp_path)
    for number, place in enumerate(DRIVER_KILLS):
        kill_driver(job, place, tmp_path / f"kill-{number}")
    run_to_its_end(job, tmp_path / "last.log")
    assert_exactly_once(job)


@pytest.mark.skipif(not scaled(test=0, verify=1, release=1), reason="the control: a minute more")
@pytest.mark.usefixtures("java")
def test_at_least_once_the_same_kill_shows_rows_twice(
    broker: penstock.Broker, tmp_path: Path, say: Say
) -> None:
    """The negative control: it is the transactions that make the difference."""
    job = make_job(broker.bootstrap_servers, tmp_path)._replace(delivery="at-least-once")
    kill_driver(job, f"{Point.COMMIT_BEGUN}@1", tmp_path / "kill")
    run_to_its_end(job, tmp_path / "last.log")
    counts = read_output(job.servers, job.target).counts
    assert set(counts) == set(range(RECORDS))
    twice = sum(1 for times in counts.values() if times > 1)
    say(f"at-least-once: {twice} of {RECORDS} rows are there more than once")
    assert twice > 0


@pytest.mark.usefixtures("java")
def test_executors_workers_and_brokers_are_killed_and_each_row_is_there_once(
    tmp_path: Path,
) -> None:
    """Two executors of their own, tasks that are tried twice to be quicker, three brokers."""
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
        job = job._replace(master="local-cluster[2,1,1024]", settings=settings)
        broker_kills = [f"{Point.DECIDING}@3", f"{Point.DECIDED}@4", f"{Point.TASK_PREPARED}@5"]
        broker_kills = broker_kills[:BROKER_KILLS]
        worker, executor = f"{Point.TASK_WRITTEN}@1", f"{Point.TASK_PREPARED}@2"
        halts = ",".join([worker, executor, *broker_kills])
        with running(job, tmp_path / "job.log", halts=halts, folder=tmp_path) as child:
            os.kill(wait_halted(child, tmp_path, worker), signal.SIGKILL)
            kill_executor_of(wait_halted(child, tmp_path, executor))
            for broker, place in enumerate(broker_kills, start=1):
                wait_halted(child, tmp_path, place)
                cluster.kill(broker)
                let_go(tmp_path, place)
                cluster.start(broker)
                cluster.wait_in_sync(DECISIONS_TOPIC, 0, 3)
            status = child.end(with_signal=None, timeout_s=300)
            assert status == 0, child.tail()
        assert_exactly_once(job)


def kill_executor_of(worker: int) -> None:
    """The JVM that started a Python worker: worker, daemon, executor."""
    daemon = _parent(worker)
    executor = _parent(daemon)
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    os.kill(executor, signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
