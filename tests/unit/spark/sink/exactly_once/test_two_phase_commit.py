"""Commit plans, recovery plans, and the format of decisions."""

import pytest

from penstock.client.transaction_values import PreparedState
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.exactly_once.two_phase_commit import (
    NO_BATCH,
    AbortedByAnotherRun,
    CommitDecision,
    PreparedBatch,
    StaleBatch,
    decode_decision,
    encode_decision,
    plan_commit,
    plan_recovery,
)


def state(name: str, epoch: int = 0) -> PreparedState:
    return PreparedState(name, 11, epoch)


OLD, NEW, STRAY = (state("old-1"), state("old-2")), (state("new-1"), state("new-2")), state("stray")


def test_new_batch_is_committed_and_other_transactions_are_aborted() -> None:
    plan = plan_commit(CommitDecision(3, OLD), PreparedBatch("q", 4, NEW), [*NEW, STRAY])
    assert plan.decision == CommitDecision(4, NEW, (STRAY,))
    assert plan.is_new
    assert plan.commits == NEW
    assert plan.aborts == (STRAY,)


def test_decided_batch_is_finished_and_its_rerun_aborted() -> None:
    plan = plan_commit(CommitDecision(4, OLD), PreparedBatch("q", 4, NEW), [OLD[1], *NEW])
    assert plan.commits == OLD
    assert plan.aborts == NEW
    assert plan.is_new
    assert plan.decision == CommitDecision(4, OLD, NEW)


def test_unfinished_commits_are_carried_over_to_a_later_batch() -> None:
    plan = plan_commit(CommitDecision(3, OLD), PreparedBatch("q", 4, NEW), [OLD[0], *NEW])
    assert plan.commits == (*NEW, OLD[0])
    assert plan.aborts == ()


def test_batch_without_rows_is_decided_too() -> None:
    """Earlier aborts are kept until then, and no longer."""
    plan = plan_commit(CommitDecision(3, OLD, (STRAY,)), PreparedBatch("q", 4, ()), [])
    assert plan.is_new
    assert plan.decision == CommitDecision(4, ())
    assert plan.commits == plan.aborts == ()


def test_aborts_are_kept_until_the_next_batch_is_decided() -> None:
    """A driver that was considered dead may come back after several others."""
    recovered = plan_recovery(CommitDecision(3, OLD, NEW), [STRAY]).decision
    assert recovered == CommitDecision(3, OLD, (*NEW, STRAY))
    rerun = plan_commit(recovered, PreparedBatch("q", 3, (state("x"),)), []).decision
    with pytest.raises(AbortedByAnotherRun):
        plan_commit(rerun, PreparedBatch("q", 4, NEW), NEW)


def test_same_id_with_a_later_epoch_is_another_transaction() -> None:
    again = (state("old-1", epoch=1),)
    plan = plan_commit(CommitDecision(3, OLD, (STRAY,)), PreparedBatch("q", 4, again), again)
    assert plan.commits == again
    assert (
        plan_commit(
            CommitDecision(3, OLD, (state("old-1"),)), PreparedBatch("q", 4, again), again
        ).aborts
        == ()
    )


def test_batch_before_the_last_decided_one_is_rejected() -> None:
    with pytest.raises(StaleBatch, match=r"batch 3 of query q comes after batch 4.*new checkpoint"):
        plan_commit(CommitDecision(4, OLD), PreparedBatch("q", 3, NEW), NEW)


def test_run_whose_transactions_were_aborted_cannot_commit() -> None:
    with pytest.raises(
        AbortedByAnotherRun,
        match=r"what query q wrote for batch 4 .* has been aborted: by another run",
    ):
        plan_commit(CommitDecision(3, OLD, (NEW[0],)), PreparedBatch("q", 4, NEW), [NEW[1]])


def test_recovery_commits_decided_transactions_and_aborts_the_rest() -> None:
    plan = plan_recovery(CommitDecision(4, OLD), [OLD[1], STRAY])
    assert plan.commits == (OLD[1],)
    assert plan.aborts == (STRAY,)
    assert plan.decision == CommitDecision(4, OLD, (STRAY,))
    assert plan_recovery(None, [STRAY]).decision == CommitDecision(NO_BATCH, (), (STRAY,))
    assert not plan_recovery(CommitDecision(4, OLD), []).is_new


def test_decision_survives_encoding() -> None:
    decision = CommitDecision(4, OLD, (STRAY,), has_timeout=True)
    decoded = decode_decision(encode_decision(decision))
    assert decoded == decision
    assert isinstance(decoded.committed[0], PreparedState)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"version":2}', b'{"version":1,"batch":1}'])
def test_unreadable_decision_stops_the_query(value: bytes) -> None:
    with pytest.raises(SparkSourceError, match="cannot read the commit decision"):
        decode_decision(value)
