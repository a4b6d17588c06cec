"""Two-phase commit on a real broker without Spark: tasks prepare, drivers decide."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.spark.sink.exactly_once.sink_process import Work
from tests.unit.spark.sink.exactly_once.sink_state import (
    TIMEOUT_MS,
    decide_only,
    halt_and_kill,
    read_last,
    seen,
    settled,
    undecided,
    work_on,
)

import penstock
from penstock.client.cluster import ClusterClient
from penstock.client.errors import RefusedByBroker
from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.sink.exactly_once.batch_commit import abort_batch, commit_batch
from penstock.spark.sink.exactly_once.decision_log import DecisionLog
from penstock.spark.sink.exactly_once.fail_points import FailPoint
from penstock.spark.sink.exactly_once.transactional_ids import new_batch_query
from penstock.spark.sink.exactly_once.two_phase_commit import (
    AbortedByAnotherRun,
    CommitDecision,
    LostTransaction,
    StaleBatch,
)

pytestmark = pytest.mark.xdist_group("exactly-once sink")


def test_rows_are_invisible_until_the_driver_commits(work: Work) -> None:
    prepared = work.write_all()
    assert not any(transaction.has_timeout for transaction in prepared)
    assert seen(work) == []
    assert undecided(work) == 3
    work.commit(prepared)
    assert seen(work) == sorted(work.values())
    assert undecided(work) == 0


def test_consecutive_batches_reuse_transactional_ids(work: Work) -> None:
    used = set()
    for batch in range(3):
        next_batch = work._replace(batch=batch)
        prepared = next_batch.write_all()
        used |= {transaction.state.transactional_id for transaction in prepared}
        next_batch.commit(prepared)
    assert len(used) == work.tasks
    expected = [value for batch in range(3) for value in work._replace(batch=batch).values()]
    assert settled(work) == sorted(expected)


def test_only_the_task_attempt_that_reported_is_committed(work: Work) -> None:
    lost = work.write(0)
    prepared = work.write_all()
    assert lost.state not in [transaction.state for transaction in prepared]
    work.commit(prepared)
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_rerun_of_a_batch_is_committed_once(work: Work) -> None:
    work.commit(work.write_all())
    again = work._replace(run="run-2")
    again.commit(again.write_all())
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_aborted_batch_leaves_no_rows(work: Work) -> None:
    work.write_all()
    abort_batch(work.options, work.query, work.batch)
    assert undecided(work) == 0
    assert settled(work) == []


def test_abort_commits_a_batch_that_was_decided(work: Work) -> None:
    """Spark calls abort after a failed commit, however far the commit got."""
    prepared = work.write_all()
    decide_only(work, [transaction.state for transaction in prepared])
    assert seen(work) == []
    abort_batch(work.options, work.query, work.batch)
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_late_driver_finishes_the_decision_of_another(work: Work) -> None:
    late, other = work.write_all(), work._replace(run="run-2")
    decide_only(work, [transaction.state for transaction in other.write_all()])
    work.commit(late)
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_driver_whose_batch_was_aborted_cannot_commit(work: Work) -> None:
    work.commit(work.write_all())
    late = work._replace(batch=1)
    prepared = late.write_all()
    abort_batch(work.options, work.query, 1)
    with pytest.raises(AbortedByAnotherRun):
        late.commit(prepared)
    assert settled(work) == sorted(work.values())


def test_decision_of_a_fenced_driver_is_rejected(work: Work) -> None:
    async def decide_twice(cluster: ClusterClient) -> None:
        first = await DecisionLog.begin(cluster, work.query, None, timeout_ms=TIMEOUT_MS)
        await DecisionLog.begin(cluster, work.query, None, timeout_ms=TIMEOUT_MS)
        await first.write(CommitDecision(0, ()), timeout_ms=TIMEOUT_MS)

    with pytest.raises(RefusedByBroker):
        shared_client(ClientSettings(work.servers)).run(decide_twice)
    assert read_last(work) is None


def test_older_checkpoint_is_rejected(work: Work) -> None:
    later = work._replace(batch=5)
    later.commit(later.write_all())
    with pytest.raises(StaleBatch):
        work.commit(work.write_all())
    abort_batch(work.options, work.query, work.batch)
    assert undecided(work) == 0
    assert settled(work) == sorted(later.values())


def test_transaction_aborted_by_an_administrator_fails_the_commit(work: Work) -> None:
    prepared = work.write_all()
    client = shared_client(ClientSettings(work.servers))
    client.run(lambda cluster: cluster.transactions.end(prepared[0].state, commit=False))
    with pytest.raises(LostTransaction, match="its rows are missing"):
        work.commit(prepared)


def test_batch_write_leaves_no_decision(work: Work) -> None:
    single = work._replace(query=new_batch_query())
    single.commit(single.write_all())
    assert settled(work) == sorted(work.values())
    assert read_last(single) is None


def test_task_without_rows_has_no_transaction(work: Work) -> None:
    commit_batch(work.options, work.query, 0, [None, None])
    assert read_last(work) == CommitDecision(0, ())
    assert undecided(work) == 0


def test_driver_killed_at_every_fail_point_writes_each_row_once(work: Work, tmp_path: Path) -> None:
    """Each run recovers from the previous one and crashes at a later point."""
    many = work._replace(tasks=12)
    for number, point in enumerate(FailPoint):
        halt_and_kill(many._replace(run=f"run-{number}"), point, tmp_path / point)
    last = many._replace(run="last")
    last.commit(last.write_all())
    assert settled(work) == sorted(many.values())
    assert undecided(work) == 0


def test_batch_is_committed_once_without_two_phase_commit(plain_broker: penstock.Broker) -> None:
    work = work_on(plain_broker)
    prepared = work.write_all()
    assert all(transaction.has_timeout for transaction in prepared)
    work.commit(prepared)
    again = work._replace(run="run-2")
    again.commit(again.write_all())
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_timed_out_batch_is_not_decided_without_two_phase_commit(
    plain_broker: penstock.Broker,
) -> None:
    work = work_on(plain_broker)
    prepared = work.write_all()
    client = shared_client(ClientSettings(work.servers))
    client.run(lambda cluster: cluster.transactions.end(prepared[0].state, commit=False))
    with pytest.raises(LostTransaction, match="took longer than the cluster keeps"):
        work.commit(prepared)
    abort_batch(work.options, work.query, work.batch)
    assert settled(work) == []
    assert undecided(work) == 0
