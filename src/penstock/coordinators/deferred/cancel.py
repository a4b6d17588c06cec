"""Decides what becomes of a message that its sender wants to cancel, or to have now. Pure.

Whoever asks twice gets the same answer, until the end is forgotten.
"""

from collections.abc import Sequence
from enum import Enum
from itertools import islice
from typing import NamedTuple

from penstock.coordinators.deferred.records import DeferredRecord, EndedRecord, MessageRecord
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    EndedMessage,
    MessageEnd,
)
from penstock.coordinators.runtime.result import CoordinatorResult


class StoredMessage(NamedTuple):
    number: int
    message: DeferredMessage  # as it was read from the log


class CancelReply(Enum):
    """The words of `penstock.Producer.cancel`."""

    CANCELLED = "cancelled"  # it is never delivered
    DELIVERED = "delivered"  # it was, or is on its way and cannot be held back
    UNKNOWN = "unknown"


def cancel_message(
    state: DeferredShardState, delay_key: DelayKey, *, now_ms: int
) -> CoordinatorResult[CancelReply, DeferredRecord]:
    reply, records = _cancel(state, delay_key, now_ms)
    return CoordinatorResult(reply=reply, records=records)


def cancel_messages(
    state: DeferredShardState, delay_keys: Sequence[DelayKey], *, now_ms: int
) -> CoordinatorResult[tuple[CancelReply, ...], DeferredRecord]:
    """Of different messages: none of them changes what becomes of another."""
    assert len(set(delay_keys)) == len(delay_keys), "a delay id is cancelled twice at once"
    ends = [_cancel(state, delay_key, now_ms) for delay_key in delay_keys]
    return CoordinatorResult(
        reply=tuple(reply for reply, _ in ends),
        records=tuple(record for _, records in ends for record in records),
    )


def _cancel(
    state: DeferredShardState, delay_key: DelayKey, now_ms: int
) -> tuple[CancelReply, tuple[DeferredRecord, ...]]:
    number = state.find_waiting(delay_key)
    if number is None:
        return _find_end(state, delay_key), ()
    return CancelReply.CANCELLED, (
        MessageRecord(number, None),
        EndedRecord(delay_key, EndedMessage(MessageEnd.CANCELLED, now_ms)),
    )


def deliver_now(
    state: DeferredShardState, delay_key: DelayKey, message: StoredMessage, *, now_ms: int
) -> CoordinatorResult[CancelReply, DeferredRecord]:
    """The same message under a new number, due now; it may have ended since it was read."""
    if state.find_waiting(delay_key) != message.number:
        return CoordinatorResult(reply=_find_end(state, delay_key))
    records = (
        MessageRecord(message.number, None),
        MessageRecord(
            state.next_number, message.message._replace(due_ms=now_ms, commit_delay_ms=None)
        ),
    )
    return CoordinatorResult(reply=CancelReply.DELIVERED, records=records)


def _find_end(state: DeferredShardState, delay_key: DelayKey) -> CancelReply:
    number, ended = state.by_delay_key.get(delay_key), state.ended.get(delay_key)
    # What was sent before the last message of this id has ended is not what is asked for.
    if ended is not None:
        return CancelReply(ended.end.value)
    return CancelReply.UNKNOWN if number is None else CancelReply.DELIVERED


def forget_replaced(state: DeferredShardState, limit: int) -> list[DeferredRecord]:
    """What the messages of committed transactions have replaced. The log says so as long as it has
    their markers; from now on, without them."""
    records: list[DeferredRecord] = [
        MessageRecord(number, None) for number in islice(state.replaced, limit)
    ]
    left = limit - len(records)
    records += (EndedRecord(delay_key, None) for delay_key in islice(state.reused, left))
    return records


def forget_ended(state: DeferredShardState, *, ended_before_ms: int) -> list[EndedRecord]:
    """Of messages that ended so long ago that nobody will ask."""
    return [
        EndedRecord(delay_key, None)
        for delay_key, ended in state.ended.items()
        if ended.ended_ms < ended_before_ms
    ]
