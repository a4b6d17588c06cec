"""Decides what becomes of a message that its sender wants to cancel. Pure.

Whoever asks twice gets the same answer, until the end is forgotten.
"""

from enum import Enum

from penstock.coordinators.deferred.records import DeferredRecord, EndedRecord, MessageRecord
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.coordinators.deferred.values import DelayKey, EndedMessage, MessageEnd
from penstock.coordinators.runtime.result import CoordinatorResult


class CancelReply(Enum):
    """The words of `penstock.Producer.cancel`."""

    CANCELLED = "cancelled"  # it is never delivered
    DELIVERED = "delivered"  # it was, or is on its way and cannot be held back
    UNKNOWN = "unknown"


def cancel_message(
    state: DeferredShardState, delay_key: DelayKey, *, now_ms: int
) -> CoordinatorResult[CancelReply, DeferredRecord]:
    number, ended = state.by_delay_key.get(delay_key), state.ended.get(delay_key)
    # What was sent before the last message of this id has ended is not what is asked for.
    if number is None or (ended is not None and state.is_sent(number)):
        reply = CancelReply.UNKNOWN if ended is None else CancelReply(ended.end.value)
        return CoordinatorResult(reply=reply)
    if state.is_sent(number):
        return CoordinatorResult(reply=CancelReply.DELIVERED)
    records = (
        MessageRecord(number, None),
        EndedRecord(delay_key, EndedMessage(MessageEnd.CANCELLED, now_ms)),
    )
    return CoordinatorResult(reply=CancelReply.CANCELLED, records=records)


def forget_ended(state: DeferredShardState, *, ended_before_ms: int) -> list[EndedRecord]:
    """Of messages that ended so long ago that nobody will ask."""
    return [
        EndedRecord(delay_key, None)
        for delay_key, ended in state.ended.items()
        if ended.ended_ms < ended_before_ms
    ]
