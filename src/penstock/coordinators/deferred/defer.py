"""Decides whether messages are deferred: once per batch of their producer, within the limits. Pure.

A producer repeats a batch until it is answered, perhaps to another broker, so that its messages may
arrive here twice, even after later ones. Its order is not checked here, but by the target: batches
without deferred messages never arrive.
"""

from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import NamedTuple

from penstock.coordinators.deferred.records import (
    DeferredRecord,
    EndedRecord,
    MessageRecord,
    ProducerRecord,
)
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    ProducerBatches,
    SequenceRange,
    Target,
)
from penstock.coordinators.runtime.record_batches import WrittenBy
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.model.errors import ErrorCode
from penstock.protocol.batch import MAX_SEQUENCE

_SEQUENCES = MAX_SEQUENCE + 1
REMEMBERED_BATCHES = 5  # as many as a producer may have in flight


class DeferLimits(NamedTuple):
    max_delay_ms: int
    max_pending: int  # messages of a shard


class SentBy(NamedTuple):
    """The batch of an idempotent producer that the messages came in, up to the last of them."""

    target: Target
    producer_id: int
    producer_epoch: int
    sequences: SequenceRange


class DeferReply(NamedTuple):
    code: ErrorCode
    message: str | None = None


DONE = DeferReply(ErrorCode.NONE)


def defer_messages(
    state: DeferredShardState,
    messages: Sequence[DeferredMessage],
    sent_by: SentBy | None,
    limits: DeferLimits,
    *,
    now_ms: int,
    is_transactional: bool = False,
) -> CoordinatorResult[DeferReply, DeferredRecord]:
    """All or none of them. Newer messages replace those with the same delay id; those of a
    transaction once it is committed."""
    if sent_by is not None:
        refused = _check_producer(state, sent_by)
        if refused is not None:
            return CoordinatorResult(reply=refused)
    excess = _find_excess(state, messages, limits, now_ms)
    if excess is not None:
        return CoordinatorResult(reply=DeferReply(ErrorCode.POLICY_VIOLATION, excess))
    if is_transactional:
        assert sent_by is not None, "a transaction has a producer"
        numbered = enumerate(messages, start=state.next_number)
        return CoordinatorResult(
            reply=DONE,
            records=(*starmap(MessageRecord, numbered), _remember(state, sent_by, now_ms)),
            written_by=WrittenBy(sent_by.producer_id, sent_by.producer_epoch),
        )
    records: list[DeferredRecord] = list(_message_records(state, messages))
    if sent_by is not None:
        records.append(_remember(state, sent_by, now_ms))
    return CoordinatorResult(reply=DONE, records=records)


def _check_producer(state: DeferredShardState, sent_by: SentBy) -> DeferReply | None:
    """DONE for a batch that was deferred before; None: it is new."""
    before = state.producers.get((sent_by.target, sent_by.producer_id))
    if before is None or sent_by.producer_epoch > before.producer_epoch:
        return None
    if sent_by.producer_epoch < before.producer_epoch:
        return DeferReply(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {sent_by.producer_id} has the epoch {before.producer_epoch} by now",
        )
    is_done = any(_covers(done, sent_by.sequences) for done in before.ranges)
    return DONE if is_done or _is_older(sent_by.sequences, before.ranges[-1]) else None


def _is_older(wanted: SequenceRange, newest: SequenceRange) -> bool:
    """Its target took the newest batch only after all before it, so that this is a late repeat.
    After the wrap from 2^31-1 to 0 a larger number may be older."""
    return 0 < (newest.first - wanted.first) & MAX_SEQUENCE < _SEQUENCES // 2


def _covers(done: SequenceRange, wanted: SequenceRange) -> bool:
    """Both begin with a batch, whose messages arrive in one part or in several, in order."""
    if done.first != wanted.first:
        return False
    return (wanted.last - wanted.first) & MAX_SEQUENCE <= (done.last - done.first) & MAX_SEQUENCE


def find_long_delay(
    messages: Sequence[DeferredMessage], max_delay_ms: int, now_ms: int
) -> str | None:
    latest_ms = max(message.due_after(now_ms) for message in messages)
    if latest_ms - now_ms <= max_delay_ms:
        return None
    return (
        f"a message is due in {(latest_ms - now_ms) // 1000} s; the longest delay is "
        f"{max_delay_ms // 1000} s (penstock.delayed.max.ms)"
    )


def _find_excess(
    state: DeferredShardState,
    messages: Sequence[DeferredMessage],
    limits: DeferLimits,
    now_ms: int,
) -> str | None:
    """Why they are above a limit."""
    too_long = find_long_delay(messages, limits.max_delay_ms, now_ms)
    if too_long is not None:
        return too_long
    waiting = len(state.pending) + len(state.transactions)
    if waiting + len(messages) > limits.max_pending:
        return (
            f"{waiting} messages are waiting and {len(messages)} more are above the "
            f"limit of {limits.max_pending} (penstock.delayed.max.pending); send them later"
        )
    return None


def _message_records(
    state: DeferredShardState, messages: Sequence[DeferredMessage]
) -> Iterator[MessageRecord | EndedRecord]:
    """What has been sent to its target already cannot be replaced: both are delivered."""
    last = {message.delay_key: number for number, message in enumerate(messages)}
    for index, message in enumerate(messages):
        if message.delay_key is not None:
            if last[message.delay_key] != index:
                continue  # a later one of the same batch replaces it
            replaced = state.by_delay_key.get(message.delay_key)
            if replaced is not None and not state.is_sent(replaced):
                yield MessageRecord(replaced, None)
            if message.delay_key in state.ended:
                yield EndedRecord(message.delay_key, None)  # its id is used again
        yield MessageRecord(state.next_number + index, message)


def _remember(state: DeferredShardState, sent_by: SentBy, now_ms: int) -> ProducerRecord:
    before = state.producers.get((sent_by.target, sent_by.producer_id))
    is_same = before is not None and before.producer_epoch == sent_by.producer_epoch
    ranges = before.ranges if before is not None and is_same else ()
    others = (done for done in ranges if done.first != sent_by.sequences.first)
    latest = (*others, sent_by.sequences)[-REMEMBERED_BATCHES:]
    batches = ProducerBatches(sent_by.producer_epoch, latest, now_ms)
    return ProducerRecord(sent_by.target, sent_by.producer_id, batches)


def forget_producers(state: DeferredShardState, *, idle_since_ms: int) -> list[ProducerRecord]:
    """Of producers that repeat nothing any more."""
    return [
        ProducerRecord(target, producer_id, None)
        for (target, producer_id), batches in state.producers.items()
        if batches.updated_ms < idle_since_ms
    ]
