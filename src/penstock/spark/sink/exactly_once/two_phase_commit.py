"""What is to be done with the transactions of a batch, and what a restart finds. Pure.

A decision is one record: what is committed, what is aborted. Invariants: of a batch, one set of
transactions is committed, whoever asks and however often; nothing is aborted before the record that
says so is written, so that nobody can decide on it afterwards.
"""

import json
from collections.abc import Collection
from typing import Any, NamedTuple

from penstock.client.transaction_values import PreparedState, TransactionalProducerId
from penstock.spark.errors import SparkSourceError

NO_BATCH = -1
_VERSION = 1
_MOST_ABORTED = 10_000  # the latest; a record of 1 MB, of a query that fails again and again

_States = tuple[PreparedState, ...]


class CommitDecision(NamedTuple):
    """The last one of a query holds."""

    batch: int  # all up to it are decided; NO_BATCH: none is
    committed: _States  # of this batch, and what was left of the one before
    aborted: tuple[TransactionalProducerId, ...] = ()  # whoever's, since this batch was decided
    is_timed: bool = False  # the cluster aborts what it commits too late


class PreparedBatch(NamedTuple):
    """A batch whose tasks are done."""

    query: str
    batch: int
    prepared: _States
    is_timed: bool = False


class CommitPlan(NamedTuple):
    decision: CommitDecision
    is_new: bool  # it has to be written before anything is ended
    commits: _States
    aborts: tuple[TransactionalProducerId, ...]


class StaleBatch(SparkSourceError):
    """A later batch of the query was committed."""


class AbortedByAnotherRun(SparkSourceError):
    """Another run of the query has given this one up."""


class LostTransaction(SparkSourceError):
    """A transaction that was to be committed is not there any more."""


def plan_commit(
    last: CommitDecision | None,
    asked: PreparedBatch,
    still_open: Collection[TransactionalProducerId],
) -> CommitPlan:
    """`still_open`: all of the query that is undecided, what was prepared for this batch or not."""
    last = last or CommitDecision(NO_BATCH, ())
    _check(last, asked)
    # What was decided stays so: the batch was run again since its end had not been seen.
    is_repeated = asked.batch == last.batch
    # This record replaces the last one: what that has left to do has to stand here, too.
    unfinished = tuple(each for each in last.committed if each in still_open)
    committed = last.committed if is_repeated else (*asked.prepared, *unfinished)
    candidates = dict.fromkeys([*still_open, *asked.prepared])
    aborts = tuple(each for each in candidates if each not in committed)
    if is_repeated:
        decision = _with_aborted(last, aborts)
    else:
        is_timed = asked.is_timed or (last.is_timed and bool(unfinished))
        decision = CommitDecision(asked.batch, committed, aborts, is_timed)
    return CommitPlan(decision, bool(aborts) or not is_repeated, committed, aborts)


def plan_recovery(
    last: CommitDecision | None, still_open: Collection[TransactionalProducerId]
) -> CommitPlan:
    """No batch is asked for: finish what was decided, abort the rest."""
    last = last or CommitDecision(NO_BATCH, ())
    commits = tuple(each for each in last.committed if each in still_open)
    aborts = tuple(each for each in still_open if each not in last.committed)
    return CommitPlan(_with_aborted(last, aborts), bool(aborts), commits, aborts)


def _with_aborted(
    last: CommitDecision, aborts: tuple[TransactionalProducerId, ...]
) -> CommitDecision:
    """A driver that was given up may come after several others: while no batch is decided, all that
    was aborted is kept. With the next batch it is over: then that driver's batch is decided."""
    aborted = tuple(dict.fromkeys([*last.aborted, *aborts]))
    return last._replace(aborted=aborted[-_MOST_ABORTED:])


def _check(last: CommitDecision, asked: PreparedBatch) -> None:
    if asked.batch < last.batch:
        raise StaleBatch(
            f"batch {asked.batch} of query {asked.query} comes after batch {last.batch} was "
            "written: its checkpoint is older than the topic. Start the query with a new "
            "checkpoint, from the offsets that you want"
        )
    overruled = {*asked.prepared} & {*last.aborted}
    if overruled and asked.batch != last.batch:
        raise AbortedByAnotherRun(
            f"another run of query {asked.query} has aborted what this one wrote for batch "
            f"{asked.batch} ({len(overruled)} transactions): let one run at a time use a "
            "checkpoint; this batch is run again when the query is started again"
        )


# As it is kept: the key is the query, the value JSON.


def encode_decision(decision: CommitDecision) -> bytes:
    fields = {
        "version": _VERSION,
        "batch": decision.batch,
        "committed": decision.committed,
        "aborted": decision.aborted,
        "timed": decision.is_timed,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_decision(value: bytes) -> CommitDecision:
    try:
        return _read(json.loads(value))
    except (ValueError, TypeError, KeyError) as error:
        raise SparkSourceError(
            f"a decision about a batch cannot be read ({error}): {value[:200]!r}; was it written "
            "by a later version of Penstock?"
        ) from None


def _read(fields: Any) -> CommitDecision:
    if fields["version"] != _VERSION:
        raise ValueError(f"version {fields['version']}")
    return CommitDecision(
        batch=int(fields["batch"]),
        committed=tuple(PreparedState(*each) for each in fields["committed"]),
        aborted=tuple(TransactionalProducerId(*each) for each in fields["aborted"]),
        is_timed=bool(fields["timed"]),
    )
