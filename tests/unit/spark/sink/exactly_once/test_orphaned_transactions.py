"""Undecided transactions of killed writers are found and ended by others, on a real broker."""

from __future__ import annotations

import json
import threading
import time
from typing import NamedTuple

import pytest
from tests.unit.spark.sink.exactly_once.sink_process import Work
from tests.unit.spark.sink.exactly_once.sink_state import (
    PROCESS_TIMEOUT_S,
    decide_only,
    seen,
    settled,
    undecided,
)
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.client.errors import RefusedByBroker
from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.sink.exactly_once.batch_commit import abort_batch
from penstock.spark.sink.exactly_once.orphaned_transactions import end_orphaned_transactions
from penstock.spark.sink.exactly_once.transactional_ids import driver_transactional_id
from penstock.spark.sink.stopping import end_left_overs, stop_query

pytestmark = pytest.mark.xdist_group("exactly-once sink")
HOUR_MS = 3_600_000


def test_old_transactions_of_dead_queries_are_ended_by_hand(work: Work) -> None:
    decided, dead = (work._replace(query=f"{work.query}-{name}") for name in ("decided", "dead"))
    decide_only(decided, [transaction.state for transaction in decided.write_all()])
    dead._replace(batch=7).write_all()
    assert seen(work) == []
    assert end_orphaned_transactions(work.servers, older_than_ms=HOUR_MS) == []
    assert end_orphaned_transactions(work.servers, older_than_ms=-1) == [dead.query, decided.query]
    assert undecided(dead) == undecided(decided) == 0
    assert settled(work) == sorted(work.values())


def test_command_line_shows_and_ends_what_a_query_holds(work: Work) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(
            app, ["transaction", *arguments], env={"PENSTOCK_BOOTSTRAP": work.servers}
        )
        assert result.exit_code == 0, result.stderr
        return result.stdout

    decide_only(work, [work.write(0).state])
    work.write(1)
    shown = json.loads(run("holding", "--topic", work.topic, "--json"))
    assert [one["spark_query"] for one in shown] == [work.query] * 2
    assert f"Spark query {work.query}" in run("holding", "--topic", work.topic)
    assert "committed 1 and aborted 1 transactions" in run("end-query", work.query)
    assert settled(work) == sorted(work.rows_of(0)["value"].to_pylist())
    assert json.loads(run("holding", "--topic", work.topic, "--json")) == []


def test_command_line_does_not_fence_a_query_that_holds_nothing(work: Work) -> None:
    result = CliRunner().invoke(
        app, ["transaction", "end-query", work.query], env={"PENSTOCK_BOOTSTRAP": work.servers}
    )
    assert result.exit_code == 1
    assert "it has no undecided transaction" in result.stderr


class StoppedQuery(NamedTuple):
    """A streaming query that ends in the middle of a batch when it is stopped."""

    work: Work

    @property
    def id(self) -> str:
        return self.work.query

    def stop(self) -> None:
        decide_only(self.work, [self.work.write(0).state])
        self.work.write(1)


def test_stopped_query_leaves_nothing_undecided(work: Work) -> None:
    stop_query(StoppedQuery(work), work.servers)
    assert undecided(work) == 0
    assert settled(work) == sorted(work.rows_of(0)["value"].to_pylist())


def test_stop_without_a_cluster_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    end_left_overs("127.0.0.1:1", ["some-query"])
    assert "cannot end the undecided transactions of query some-query" in caplog.text


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
