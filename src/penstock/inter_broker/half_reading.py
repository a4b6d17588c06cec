"""Decodes what was read from a partition of halves or decisions, for one group. No I/O.

Takes nothing on trust: produce has checked the records, but perhaps under another setting. What
cannot be understood goes to the topic of expired halves, with a reason; an unreadable decision is
left alone.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.coordinators.deferred.half_values import HalfDecision, HalfWord
from penstock.coordinators.deferred.values import DeferredMessage, HalfKey, Hold, Target
from penstock.coordinators.runtime.record_batches import iter_sound_batches
from penstock.protocol.batch import BatchHeader, CorruptBatch
from penstock.protocol.half_headers import (
    HALF_GROUP,
    HALF_REASON,
    HALF_TOPIC,
    InvalidHalf,
    read_decision,
    read_half,
    without_half_headers,
)
from penstock.protocol.records import Record, iter_records

Report = Callable[[str], None]


class AbortedRange(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int


class SourceChunk(NamedTuple):
    """Whole batches below the last stable offset."""

    batches: bytes
    end_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedRange]


class HalfContext(NamedTuple):
    group: str
    groups: Sequence[str]  # all that are bound to the topic
    topic: str
    target: Target  # where the halves of this partition are delivered to


def read_messages_of(
    chunk: SourceChunk, context: HalfContext, report: Report
) -> list[DeferredMessage]:
    """Those of other groups are left out."""
    messages = (_read_message(record, context) for record in _records(chunk, report))
    return [message for message in messages if message is not None]


def read_decisions_of(
    chunk: SourceChunk, context: HalfContext, report: Report
) -> list[HalfDecision]:
    decisions = []
    for record in _records(chunk, report):
        group = dict(record.headers).get(HALF_GROUP)
        if group is not None and group != context.group.encode():
            continue
        try:
            half_id, word = read_decision(record)
        except InvalidHalf as error:
            report(f"the decision at offset {record.offset} is not understood: {error}")
        else:
            decisions.append(HalfDecision(half_id, HalfWord(word.decode())))
    return decisions


def _read_message(record: Record, context: HalfContext) -> DeferredMessage | None:
    try:
        half = read_half(record, context.groups)
    except InvalidHalf as error:
        is_ours = context.group == min(context.groups)  # one group's reader reports it
        return _as_invalid(record, context, str(error)) if is_ours else None
    if half.group != context.group:
        return None
    hold = Hold(HalfKey(half.group, half.half_id), context.topic, half.delay_ms)
    return DeferredMessage(
        due_ms=half.deliver_at_ms,
        target=context.target,
        delay_id=None,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=without_half_headers(record.headers),
        hold=hold,
    )


def _as_invalid(record: Record, context: HalfContext, reason: str) -> DeferredMessage:
    headers = (
        *record.headers,
        (HALF_TOPIC, context.topic.encode()),
        (HALF_REASON, reason.encode()),
    )
    return DeferredMessage(
        0, context.target, None, record.timestamp_ms, record.key, record.value, headers
    )


def _records(chunk: SourceChunk, report: Report) -> Iterator[Record]:
    for sound in iter_sound_batches(chunk.batches, report):
        if sound is None or sound[1].is_control or _is_aborted(sound[1], chunk.aborted):
            continue
        try:
            yield from iter_records(sound[0])
        except CorruptBatch as error:
            report(f"skipping the rest of a batch: {error}")


def _is_aborted(header: BatchHeader, aborted: Sequence[AbortedRange]) -> bool:
    return header.is_transactional and any(
        ended.producer_id == header.producer_id
        and ended.first_offset <= header.base_offset <= ended.last_offset
        for ended in aborted
    )
