"""Decides what a shard sends to a target, and what ends when the target has it. Pure.

A delivery is written down before it is sent: its messages, their order and their first sequence.
Whoever leads the shard later sends the same again, and the target drops what it has already. So
there is at most one unconfirmed delivery per target, and a message that was sent cannot be
cancelled. All records of a decision fit into one batch, which is written whole or not at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.coordinators.deferred.due_index import DueEntry
from penstock.coordinators.deferred.half_records import HalfIdRecord
from penstock.coordinators.deferred.records import (
    DeferredRecord,
    DeliveryRecord,
    EndedRecord,
    MessageRecord,
)
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.coordinators.deferred.values import Delivery, EndedMessage, MessageEnd, Target
from penstock.coordinators.runtime.result import CoordinatorResult

_SEQUENCES = 2**31  # then they start at 0 again
UNKNOWN_OFFSET = -1
LOST_CHECK_PAUSE_MS = 30_000


class DeliveryLimits(NamedTuple):
    max_messages: int
    max_bytes: int


def begin_delivery(
    state: DeferredShardState, target: Target, limits: DeliveryLimits
) -> CoordinatorResult[bool, DeferredRecord]:
    """The reply says whether there is something to send."""
    delivery = state.find_delivery(target)
    assert not delivery.numbers, "the target has not confirmed what was sent before"
    numbers = tuple(entry.number for entry in _choose(state.ready(target), limits))
    if not numbers:
        return CoordinatorResult(reply=False)
    return CoordinatorResult(
        reply=True, records=(DeliveryRecord(target, delivery._replace(numbers=numbers)),)
    )


def _choose(ready: Iterable[DueEntry], limits: DeliveryLimits) -> Iterator[DueEntry]:
    """At least one, however large."""
    size_bytes = 0
    for count, entry in enumerate(ready):
        size_bytes += entry.size_bytes
        if count == limits.max_messages or (count and size_bytes > limits.max_bytes):
            return
        yield entry


def confirm_delivery(
    state: DeferredShardState, target: Target, *, base_offset: int = UNKNOWN_OFFSET, now_ms: int
) -> CoordinatorResult[None, DeferredRecord]:
    """The target has all of it, whether from this broker or from one before; from `base_offset`
    on, if that is known."""
    delivery = state.find_delivery(target)
    sequence = (delivery.sequence + len(delivery.numbers)) % _SEQUENCES
    records: list[DeferredRecord] = [DeliveryRecord(target, Delivery(sequence, ()))]
    records += _end(state, delivery.numbers, now_ms)
    records += _confirm_checks(state, delivery.numbers, base_offset, now_ms)
    return CoordinatorResult(reply=None, records=records)


def _end(
    state: DeferredShardState, numbers: Iterable[int], now_ms: int
) -> Iterator[MessageRecord | EndedRecord]:
    for number in numbers:
        yield MessageRecord(number, None)
        delay_key = state.find_delay_key(number)
        # Not if another message has the id by now, or had it last: asking for it means that one.
        is_last = delay_key is not None and state.by_delay_key.get(delay_key) == number
        if delay_key is not None and is_last and delay_key not in state.ended:
            yield EndedRecord(delay_key, EndedMessage(MessageEnd.DELIVERED, now_ms))


def _confirm_checks(
    state: DeferredShardState, numbers: Sequence[int], base_offset: int, now_ms: int
) -> Iterator[HalfIdRecord]:
    """A check waits for its consumer from now on. One whose offset is not known could wait for
    ever, and one whose topic is deleted does: they are sent again."""
    for index, number in enumerate(numbers):
        key = state.halves.under_way.get(number)
        half = None if key is None else state.halves.halves.get(key)
        if key is None or half is None or half.check is None:
            continue
        if base_offset == UNKNOWN_OFFSET:
            again_ms = now_ms + LOST_CHECK_PAUSE_MS
            yield HalfIdRecord(key, half._replace(check=None, next_check_ms=again_ms))
        else:
            check = half.check._replace(offset=base_offset + index)
            yield HalfIdRecord(key, half._replace(check=check))


def drop_delivery(
    state: DeferredShardState, target: Target, *, now_ms: int
) -> CoordinatorResult[int, DeferredRecord]:
    """The target's topic is deleted: nobody will ever read them. The reply is how many."""
    numbers = state.find_delivery(target).numbers
    records: list[DeferredRecord] = [DeliveryRecord(target, None)]
    records += (MessageRecord(number, None) for number in numbers)
    records += _confirm_checks(state, numbers, UNKNOWN_OFFSET, now_ms)
    return CoordinatorResult(reply=len(numbers), records=records)
