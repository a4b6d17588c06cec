"""A batch whose tasks are done lives as long as its driver and its query, and no longer."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.interop.kafka_broker import Child
from tests.profile import is_long
from tests.spark.exactly_once_job import (
    FAILED,
    JOB_TIMEOUT_S,
    PARTITIONS,
    CopyJob,
    numbered,
    open_transactions,
    read_output,
    resume,
    run_to_completion,
    running,
    wait_halted,
)
from tests.spark.topics import create_topic, send, wait_until
from tests.unit.spark.sink.exactly_once.sink_state import count_renewals

import penstock
from penstock.spark.sink.exactly_once.fail_points import ABORT_BEGUN, FailPoint
from penstock.spark.sink.exactly_once.lease import LEAST_ABANDONED_AFTER_MS, renewal_interval_ms
from penstock.spark.sink.exactly_once.two_phase_commit import AbortedByAnotherRun

pytestmark = [pytest.mark.usefixtures("java"), pytest.mark.xdist_group("exactly-once sink")]
BOUND_MS = LEAST_ABANDONED_AFTER_MS
RENEWALS = 2 * BOUND_MS // renewal_interval_ms(BOUND_MS)  # in two bounds
BATCH = 1_000
BATCHES = 4
SLOW = f"{FailPoint.COMMIT_BEGUN}@1"
ABORTING = f"{ABORT_BEGUN}@1"
DECIDED = f"{FailPoint.DECIDED}@2"


def make_job(broker: penstock.Broker, topic: str, home: Path) -> CopyJob:
    servers = broker.bootstrap_servers
    source, target = (
        create_topic(servers, f"{topic}-{role}", partitions=PARTITIONS)
        for role in ("source", "target")
    )
    send(servers, source, numbered(BATCH * BATCHES))
    bound = f"{BOUND_MS // 1000}s"
    return CopyJob(servers, source, target, str(home), BATCH, abandoned_after=bound)


@contextmanager
def halted(job: CopyJob, home: Path, *points: str) -> Iterator[Child]:
    """A driver that waits at each of these points until it is told to go on."""
    halts = ",".join(points)
    with running(job, home / "job.log", halts=halts, folder=home) as child:
        wait_halted(child, home, points[0])
        yield child


def wait_for_renewals(job: CopyJob) -> None:
    """Waits until the query has lived for two bounds without a task."""
    query = json.loads((job.checkpoint / "metadata").read_text())["id"]
    before = count_renewals(job.servers, query)
    wait_until(
        "the driver renews its lease",
        lambda: count_renewals(job.servers, query) >= before + RENEWALS,
        timeout_s=JOB_TIMEOUT_S,
    )


def wait_for_release(job: CopyJob) -> None:
    wait_until(
        "no undecided transaction",
        lambda: not open_transactions(job.servers),
        timeout_s=JOB_TIMEOUT_S,
    )


def test_slow_driver_keeps_its_batch_and_a_dead_one_without_checkpoint_holds_nobody_back(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """It is killed between a decision and the end of its transactions, and never starts again."""
    job = make_job(broker, topic_name, tmp_path)
    with halted(job, tmp_path, SLOW, DECIDED) as child:
        wait_for_renewals(job)
        assert open_transactions(job.servers)
        resume(tmp_path, SLOW)
        wait_halted(child, tmp_path, DECIDED)
    shutil.rmtree(job.checkpoint)
    wait_for_release(job)
    counts = read_output(job.servers, job.target).counts
    assert counts.total() == 3 * BATCH
    assert set(counts.values()) == {1}


@pytest.mark.skipif(not is_long(), reason="two starts of Spark: in `make verify`")
def test_driver_that_is_paused_past_the_bound_is_fenced(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """Only the driver: the processes that it started run on, but they do not speak for it."""
    job = make_job(broker, topic_name, tmp_path)
    with halted(job, tmp_path, SLOW) as child:
        wait_for_renewals(job)
        os.killpg(child.process.pid, signal.SIGSTOP)
        wait_for_release(job)
        os.killpg(child.process.pid, signal.SIGCONT)
        resume(tmp_path, SLOW)
        assert child.end(with_signal=None, timeout_s=JOB_TIMEOUT_S) == 1
    assert AbortedByAnotherRun.__name__ in (tmp_path / "job.err").read_text()
    run_to_completion(job, tmp_path / "last.log")
    assert read_output(job.servers, job.target).counts == Counter(range(BATCH * BATCHES))


@pytest.mark.skipif(not is_long(), reason="two starts of Spark: in `make verify`")
def test_failed_query_holds_nobody_back_although_its_driver_lives(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """Like a query that was stopped while it cleaned up: its commit and its abort are killed."""
    job = make_job(broker, topic_name, tmp_path)
    with halted(job._replace(outlives_query=True), tmp_path, SLOW, ABORTING) as child:
        wait_for_renewals(job)
        os.kill(wait_halted(child, tmp_path, SLOW), signal.SIGKILL)
        os.kill(wait_halted(child, tmp_path, ABORTING), signal.SIGKILL)
        child.wait_line(FAILED, timeout_s=JOB_TIMEOUT_S)
        assert open_transactions(job.servers)
        wait_for_release(job)
        assert child.process.poll() is None
    run_to_completion(job, tmp_path / "last.log")
    assert read_output(job.servers, job.target).counts == Counter(range(BATCH * BATCHES))
