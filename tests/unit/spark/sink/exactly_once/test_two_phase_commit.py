"""What follows from what is known, and how it is kept."""

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


def test_a_new_batch_is_decided_and_what_is_not_its_own_is_aborted() -> None:
    follows = plan_commit(CommitDecision(3, OLD), PreparedBatch("q", 4, NEW), [*NEW, STRAY])
    assert follows.decision == CommitDecision(4, NEW, (STRAY,))
    assert follows.is_new
    assert follows.commits == NEW
    assert follows.aborts == (STRAY,)


def test_a_batch_that_was_decided_is_finished_and_its_second_writing_aborted() -> None:
    follows = plan_commit(CommitDecision(4, OLD), PreparedBatch("q", 4, NEW), [OLD[1], *NEW])
    assert follows.commits == OLD
    assert follows.aborts == NEW
    assert follows.is_new
    assert follows.decision == CommitDecision(4, OLD, NEW)


def test_what_was_decided_and_not_ended_is_committed_even_when_a_later_batch_asks() -> None:
    follows = plan_commit(CommitDecision(3, OLD), PreparedBatch("q", 4, NEW), [OLD[0], *NEW])
    assert follows.commits == (*NEW, OLD[0])
    assert follows.aborts == ()


def test_a_batch_without_rows_is_decided_too() -> None:
    """What was aborted before counts until then, and no longer."""
    follows = plan_commit(CommitDecision(3, OLD, (STRAY,)), PreparedBatch("q", 4, ()), [])
    assert follows.is_new
    assert follows.decision == CommitDecision(4, ())
    assert follows.commits == follows.aborts == ()


def test_what_was_aborted_is_kept_until_the_next_batch_is_decided() -> None:
    """A driver that was given up may come after several others."""
    given_up = plan_recovery(CommitDecision(3, OLD, NEW), [STRAY]).decision
    assert given_up == CommitDecision(3, OLD, (*NEW, STRAY))
    repeated = plan_commit(given_up, PreparedBatch("q", 3, (state("x"),)), []).decision
    with pytest.raises(AbortedByAnotherRun):
        plan_commit(repeated, PreparedBatch("q", 4, NEW), NEW)


def test_the_same_id_with_a_later_epoch_is_another_transaction() -> None:
    again = (state("old-1", epoch=1),)
    follows = plan_commit(CommitDecision(3, OLD, (STRAY,)), PreparedBatch("q", 4, again), again)
    assert follows.commits == again
    assert (
        plan_commit(
            CommitDecision(3, OLD, (state("old-1"),)), PreparedBatch("q", 4, again), again
        ).aborts
        == ()
    )


def test_a_batch_before_the_last_decided_one_is_refused() -> None:
    with pytest.raises(StaleBatch, match=r"batch 3 of query q comes after batch 4.*new checkpoint"):
        plan_commit(CommitDecision(4, OLD), PreparedBatch("q", 3, NEW), NEW)


def test_who_was_given_up_by_another_run_cannot_decide() -> None:
    with pytest.raises(AbortedByAnotherRun, match="another run of query q has aborted"):
        plan_commit(CommitDecision(3, OLD, (NEW[0],)), PreparedBatch("q", 4, NEW), [NEW[1]])


def test_giving_up_finishes_what_was_decided_and_aborts_the_rest() -> None:
    follows = plan_recovery(CommitDecision(4, OLD), [OLD[1], STRAY])
    assert follows.commits == (OLD[1],)
    assert follows.aborts == (STRAY,)
    assert follows.decision == CommitDecision(4, OLD, (STRAY,))
    assert plan_recovery(None, [STRAY]).decision == CommitDecision(NO_BATCH, (), (STRAY,))
    assert not plan_recovery(CommitDecision(4, OLD), []).is_new


def test_a_decision_is_kept_as_it_was_made() -> None:
    decision = CommitDecision(4, OLD, (STRAY,), is_timed=True)
    kept = decode_decision(encode_decision(decision))
    assert kept == decision
    assert isinstance(kept.committed[0], PreparedState)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"version":2}', b'{"version":1,"batch":1}'])
def test_a_decision_that_cannot_be_read_stops_the_query(value: bytes) -> None:
    with pytest.raises(SparkSourceError, match="a decision about a batch cannot be read"):
        decode_decision(value)
