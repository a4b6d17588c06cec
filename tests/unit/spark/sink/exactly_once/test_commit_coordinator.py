"""Tasks that prepare and drivers that decide, on a real broker and without Spark."""

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


def test_rows_show_when_the_driver_has_committed_and_not_before(work: Work) -> None:
    prepared = work.write_all()
    assert not any(transaction.is_timed for transaction in prepared)
    assert seen(work) == []
    assert undecided(work) == 3
    work.commit(prepared)
    assert seen(work) == sorted(work.values())
    assert undecided(work) == 0


def test_batches_follow_each_other_under_the_same_ids(work: Work) -> None:
    used = set()
    for batch in range(3):
        each = work._replace(batch=batch)
        prepared = each.write_all()
        used |= {one.state.transactional_id for one in prepared}
        each.commit(prepared)
    assert len(used) == work.tasks
    expected = [value for batch in range(3) for value in work._replace(batch=batch).values()]
    assert settled(work) == sorted(expected)


def test_of_two_attempts_of_a_task_the_one_that_reported_counts(work: Work) -> None:
    lost = work.write(0)
    prepared = work.write_all()
    assert lost.state not in [transaction.state for transaction in prepared]
    work.commit(prepared)
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_a_batch_that_is_run_again_counts_once(work: Work) -> None:
    work.commit(work.write_all())
    again = work._replace(run="run-2")
    again.commit(again.write_all())
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_an_aborted_batch_leaves_nothing(work: Work) -> None:
    work.write_all()
    abort_batch(work.options, work.query, work.batch)
    assert undecided(work) == 0
    assert settled(work) == []


def test_a_batch_that_was_decided_is_not_aborted_any_more(work: Work) -> None:
    """Spark asks for an abort when a commit has failed, however far it had come."""
    prepared = work.write_all()
    decide_only(work, [transaction.state for transaction in prepared])
    assert seen(work) == []
    abort_batch(work.options, work.query, work.batch)
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_a_driver_that_comes_late_finishes_what_the_other_has_decided(work: Work) -> None:
    late, other = work.write_all(), work._replace(run="run-2")
    decide_only(work, [transaction.state for transaction in other.write_all()])
    work.commit(late)
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_a_driver_that_was_given_up_cannot_commit(work: Work) -> None:
    work.commit(work.write_all())
    late = work._replace(batch=1)
    prepared = late.write_all()
    abort_batch(work.options, work.query, 1)
    with pytest.raises(AbortedByAnotherRun):
        late.commit(prepared)
    assert settled(work) == sorted(work.values())


def test_a_decision_of_a_fenced_driver_is_refused(work: Work) -> None:
    async def decide_twice(cluster: ClusterClient) -> None:
        first = await DecisionLog.begin(cluster, work.query, None, timeout_ms=TIMEOUT_MS)
        await DecisionLog.begin(cluster, work.query, None, timeout_ms=TIMEOUT_MS)
        await first.write(CommitDecision(0, ()), timeout_ms=TIMEOUT_MS)

    with pytest.raises(RefusedByBroker):
        shared_client(ClientSettings(work.servers)).run(decide_twice)
    assert read_last(work) is None


def test_an_older_checkpoint_is_refused(work: Work) -> None:
    later = work._replace(batch=5)
    later.commit(later.write_all())
    with pytest.raises(StaleBatch):
        work.commit(work.write_all())
    abort_batch(work.options, work.query, work.batch)
    assert undecided(work) == 0
    assert settled(work) == sorted(later.values())


def test_what_an_administrator_aborted_is_told_and_not_taken_for_done(work: Work) -> None:
    prepared = work.write_all()
    client = shared_client(ClientSettings(work.servers))
    client.run(lambda cluster: cluster.transactions.end(prepared[0].state, commit=False))
    with pytest.raises(LostTransaction, match="its rows are missing"):
        work.commit(prepared)


def test_a_write_that_is_no_streams_leaves_no_decision_behind(work: Work) -> None:
    single = work._replace(query=new_batch_query())
    single.commit(single.write_all())
    assert settled(work) == sorted(work.values())
    assert read_last(single) is None


def test_a_task_without_rows_has_no_transaction(work: Work) -> None:
    commit_batch(work.options, work.query, 0, [None, None])
    assert read_last(work) == CommitDecision(0, ())
    assert undecided(work) == 0


def test_a_driver_killed_at_every_point_writes_each_row_once(work: Work, tmp_path: Path) -> None:
    """Each run finds what the one before has left, and dies further on."""
    many = work._replace(tasks=12)
    for number, point in enumerate(FailPoint):
        halt_and_kill(many._replace(run=f"run-{number}"), point, tmp_path / point)
    last = many._replace(run="last")
    last.commit(last.write_all())
    assert settled(work) == sorted(many.values())
    assert undecided(work) == 0


def test_without_two_phase_commit_a_batch_counts_once_too(plain_broker: penstock.Broker) -> None:
    work = work_on(plain_broker)
    prepared = work.write_all()
    assert all(transaction.is_timed for transaction in prepared)
    work.commit(prepared)
    again = work._replace(run="run-2")
    again.commit(again.write_all())
    assert settled(work) == sorted(work.values())
    assert undecided(work) == 0


def test_without_two_phase_commit_a_batch_that_took_too_long_is_not_decided(
    plain_broker: penstock.Broker,
) -> None:
    work = work_on(plain_broker)
    prepared = work.write_all()
    client = shared_client(ClientSettings(work.servers))
    client.run(lambda cluster: cluster.transactions.end(prepared[0].state, commit=False))
    with pytest.raises(LostTransaction, match="took longer than the cluster lets"):
        work.commit(prepared)
    abort_batch(work.options, work.query, work.batch)
    assert settled(work) == []
    assert undecided(work) == 0
