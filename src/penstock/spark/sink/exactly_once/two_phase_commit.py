"""Plans the commit of a batch and the recovery after a restart. Pure.

A decision is one record: the transactions to commit and those to abort. Invariants: one set of
transactions is committed per batch, regardless of who asks and how often; nothing is aborted before
the record that says so is written, so that nobody can decide to commit it afterwards.
"""

import json
from collections.abc import Collection
from typing import Any, NamedTuple

from penstock.client.transaction_values import PreparedState, TransactionalProducerId
from penstock.spark.errors import SparkSourceError

NO_BATCH = -1
_VERSION = 1
# Keeps the latest: a record of 1 MB, for a query that fails again and again.
_MAX_ABORTED = 10_000

_States = tuple[PreparedState, ...]


class CommitDecision(NamedTuple):
    """The latest one of a query is in effect."""

    batch_id: int  # every batch up to it is decided; NO_BATCH: none is
    committed: _States  # of this batch, and the unfinished ones of the batch before
    aborted: tuple[TransactionalProducerId, ...] = ()  # by any run, since this batch was decided
    has_timeout: bool = False  # the cluster aborts transactions that are committed too late


class PreparedBatch(NamedTuple):
    """A batch whose tasks are done."""

    query: str
    batch_id: int
    transactions: _States
    has_timeout: bool = False


class CommitPlan(NamedTuple):
    decision: CommitDecision
    is_new: bool  # must be written before any transaction is ended
    commits: _States
    aborts: tuple[TransactionalProducerId, ...]


class StaleBatch(SparkSourceError):
    """A later batch of the query is already committed."""


class AbortedByAnotherRun(SparkSourceError):
    """Another run of the query, or a broker, took this one for dead and aborted its
    transactions."""


class LostTransaction(SparkSourceError):
    """A transaction that was to be committed no longer exists."""


def plan_commit(
    last: CommitDecision | None,
    batch: PreparedBatch,
    ongoing: Collection[TransactionalProducerId],
) -> CommitPlan:
    """`ongoing`: every undecided transaction of the query, prepared for this batch or not."""
    last = last or CommitDecision(NO_BATCH, ())
    _check(last, batch)
    # A decision is final: Spark reran the batch because it did not see its end.
    is_rerun = batch.batch_id == last.batch_id
    # This record replaces the last one, so it must repeat what that one has left to commit.
    unfinished = tuple(state for state in last.committed if state in ongoing)
    committed = last.committed if is_rerun else (*batch.transactions, *unfinished)
    candidates = dict.fromkeys([*ongoing, *batch.transactions])
    aborts = tuple(state for state in candidates if state not in committed)
    if is_rerun:
        decision = _with_aborted(last, aborts)
    else:
        has_timeout = batch.has_timeout or (last.has_timeout and bool(unfinished))
        decision = CommitDecision(batch.batch_id, committed, aborts, has_timeout)
    return CommitPlan(decision, bool(aborts) or not is_rerun, committed, aborts)


def plan_recovery(
    last: CommitDecision | None, ongoing: Collection[TransactionalProducerId]
) -> CommitPlan:
    """Plan without a batch to commit: finish what was decided, abort the rest."""
    last = last or CommitDecision(NO_BATCH, ())
    commits = tuple(state for state in last.committed if state in ongoing)
    aborts = tuple(state for state in ongoing if state not in last.committed)
    return CommitPlan(_with_aborted(last, aborts), bool(aborts), commits, aborts)


def _with_aborted(
    last: CommitDecision, aborts: tuple[TransactionalProducerId, ...]
) -> CommitDecision:
    """Aborts accumulate until the next batch is decided, because a driver that was taken for dead
    may come back after several others. After that its batch is decided, so they can be dropped."""
    aborted = tuple(dict.fromkeys([*last.aborted, *aborts]))
    return last._replace(aborted=aborted[-_MAX_ABORTED:])


def _check(last: CommitDecision, batch: PreparedBatch) -> None:
    if batch.batch_id < last.batch_id:
        raise StaleBatch(
            f"batch {batch.batch_id} of query {batch.query} comes after batch {last.batch_id} was "
            "written: its checkpoint is older than the topic. Start the query with a new "
            "checkpoint, from the offsets that you want"
        )
    aborted = {*batch.transactions} & {*last.aborted}
    if aborted and batch.batch_id != last.batch_id:
        raise AbortedByAnotherRun(
            f"what query {batch.query} wrote for batch {batch.batch_id} ({len(aborted)} "
            "transactions) has been aborted: by another run (let one run at a time use a "
            "checkpoint), or by a broker because none of the batch's tasks gave a sign of life for "
            "too long (raise abandonedAfter); nothing of it is visible, and it is run again when "
            "the query is started again"
        )


# The record: the key is the query, the value JSON.


def encode_decision(decision: CommitDecision) -> bytes:
    fields = {
        "version": _VERSION,
        "batch": decision.batch_id,
        "committed": decision.committed,
        "aborted": decision.aborted,
        "timed": decision.has_timeout,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_decision(value: bytes) -> CommitDecision:
    try:
        return _read(json.loads(value))
    except (ValueError, TypeError, KeyError) as error:
        raise SparkSourceError(
            f"cannot read the commit decision of a batch ({error}): {value[:200]!r}; was it "
            "written by a later version of Penstock?"
        ) from None


def _read(fields: Any) -> CommitDecision:
    if fields["version"] != _VERSION:
        raise ValueError(f"version {fields['version']}")
    return CommitDecision(
        batch_id=int(fields["batch"]),
        committed=tuple(PreparedState(*state) for state in fields["committed"]),
        aborted=tuple(TransactionalProducerId(*producer) for producer in fields["aborted"]),
        has_timeout=bool(fields["timed"]),
    )
