"""Undecided transactions of killed writers are found and ended by others, on a real broker."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.unit.spark.sink.exactly_once.sink_process import Work
from tests.unit.spark.sink.exactly_once.sink_state import (
    PROCESS_TIMEOUT_S,
    decide_only,
    halt_and_kill,
    read_last,
    seen,
    settled,
    undecided,
)

from penstock.client.errors import RefusedByBroker
from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.sink.exactly_once.batch_commit import abort_batch, commit_batch
from penstock.spark.sink.exactly_once.fail_points import FailPoint
from penstock.spark.sink.exactly_once.orphaned_transactions import end_orphaned_transactions
from penstock.spark.sink.exactly_once.transactional_ids import (
    driver_transactional_id,
    new_batch_query,
)

pytestmark = pytest.mark.xdist_group("exactly-once sink")
HOUR_MS = 3_600_000


def test_next_writer_ends_killed_batch_writes(work: Work, tmp_path: Path) -> None:
    """The decided one is committed, the other one aborted, and neither leaves a decision."""
    decided, dead = (work._replace(query=new_batch_query()) for _ in range(2))
    halt_and_kill(decided, FailPoint.DECIDED, tmp_path / "decided")
    halt_and_kill(dead, FailPoint.TASK_PREPARED, tmp_path / "dead")
    assert seen(work) == []
    next_one = work._replace(batch=1)
    prepared = next_one.write_all()
    assert (undecided(decided), undecided(dead)) == (work.tasks, 1)
    options = work.options._replace(abandoned_after_ms=0)
    commit_batch(options, next_one.query, next_one.batch, prepared)
    assert settled(work) == sorted([*decided.values(), *next_one.values()])
    assert undecided(decided) == undecided(dead) == 0
    assert read_last(decided) is read_last(dead) is None


def test_old_transactions_of_dead_queries_are_ended_by_hand(work: Work) -> None:
    decided, dead = (work._replace(query=f"{work.query}-{name}") for name in ("decided", "dead"))
    decide_only(decided, [transaction.state for transaction in decided.write_all()])
    dead._replace(batch=7).write_all()
    assert seen(work) == []
    assert end_orphaned_transactions(work.servers, older_than_ms=HOUR_MS) == []
    assert end_orphaned_transactions(work.servers, older_than_ms=-1) == [dead.query, decided.query]
    assert undecided(dead) == undecided(decided) == 0
    assert settled(work) == sorted(work.values())


def test_task_that_writes_after_its_job_failed_leaves_no_transaction(work: Work) -> None:
    """Spark kills such a task and calls abort without waiting for it."""
    watching = threading.Thread(
        target=abort_batch, args=(work.options, work.query, 0), kwargs={"watch_s": 2}
    )
    watching.start()
    wait_until_aborted_once(work)
    work.write(0)
    watching.join(PROCESS_TIMEOUT_S)
    assert undecided(work) == 0
    assert settled(work) == []


def wait_until_aborted_once(work: Work) -> None:
    """Wait until its driver has begun; writing takes longer than the abort that follows."""
    client = shared_client(ClientSettings(work.servers))
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            client.run(
                lambda cluster: cluster.transactions.describe(driver_transactional_id(work.query))
            )
        except RefusedByBroker:
            time.sleep(0.01)
        else:
            return
    raise AssertionError("no driver has begun")
