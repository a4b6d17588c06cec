"""HalfIntake and HalfEnds (private keys 31013 and 31014), version 0: bodies, to bytes and back."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.coordinators.deferred.half_records import read_hold, write_hold
from penstock.coordinators.deferred.half_values import (
    HalfDecision,
    HalfIntake,
    HalfWord,
    IntakeReply,
    ReadUpTo,
)
from penstock.coordinators.deferred.records import (
    read_message,
    read_target,
    write_message,
    write_target,
)
from penstock.coordinators.deferred.values import DeferredMessage, Target
from penstock.model.errors import ErrorCode
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import MalformedRecord, ValueReader, ValueWriter
from penstock.protocol.request_budget import RequestBudget

HALF_VERSIONS = range(1)
_WORDS = tuple(HalfWord)  # by number


class HalfEndsRequest(NamedTuple):
    """The log end offsets of partitions that the receiver leads."""

    sources: Sequence[Target]


def encode_half_intake(intake: HalfIntake) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.string(intake.group)
    writer.string(intake.topic)
    write_target(writer, intake.source)
    writer.int64(intake.base_offset)
    writer.int64(intake.end_offset)
    writer.int64(intake.log_start_offset)
    write_target(writer, intake.expired)
    writer.array(intake.messages, _write_message)
    writer.array(intake.decisions, _write_decision)
    writer.array(intake.after, _write_read_up_to)
    writer.tags()
    return writer.done()


def decode_half_intake(body: Buffer, budget: RequestBudget | None = None) -> HalfIntake:
    reader = ValueReader(body, flexible=True, budget=budget)
    intake = HalfIntake(
        reader.string(),
        reader.string(),
        read_target(reader),
        reader.int64(),
        reader.int64(),
        reader.int64(),
        read_target(reader),
        reader.array(_read_message),
        reader.array(_read_decision),
        reader.array(_read_up_to),
    )
    _close(reader)
    return intake


def encode_half_ends(request: HalfEndsRequest) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.array(request.sources, write_target)
    writer.tags()
    return writer.done()


def decode_half_ends(body: Buffer, budget: RequestBudget | None = None) -> HalfEndsRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    request = HalfEndsRequest(reader.array(read_target))
    _close(reader)
    return request


# -- payloads of the responses -------------------------------------------------------------


def encode_offsets(offsets: Sequence[int]) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.array(offsets, ValueWriter.int64)
    writer.tags()
    return writer.done()


def decode_offsets(payload: Buffer) -> list[int]:
    reader = ValueReader(payload, flexible=True)
    offsets = reader.array(ValueReader.int64)
    _close(reader)
    return offsets


def encode_intake_reply(reply: IntakeReply) -> bytes:
    """Counts stay where they were counted."""
    return encode_offsets([reply.next_offset, int(reply.is_full)])


def read_intake_reply(code: ErrorCode, payload: Buffer) -> IntakeReply:
    """Older brokers know no limit, and send one number."""
    if code is not ErrorCode.NONE:
        return IntakeReply(code)
    next_offset, *is_full = decode_offsets(payload)
    return IntakeReply(code, next_offset, is_full=is_full == [1])


def _write_message(writer: ValueWriter, message: DeferredMessage) -> None:
    write_message(writer, message)
    writer.int8(message.hold is not None)
    if message.hold is not None:
        write_hold(writer, message.hold)


def _read_message(reader: ValueReader) -> DeferredMessage:
    message = read_message(reader)
    return message._replace(hold=read_hold(reader)) if reader.int8() else message


def _write_decision(writer: ValueWriter, decision: HalfDecision) -> None:
    writer.string(decision.half_id)
    writer.int8(_WORDS.index(decision.word))


def _read_decision(reader: ValueReader) -> HalfDecision:
    half_id, number = reader.string(), reader.int8()
    if not 0 <= number < len(_WORDS):
        raise MalformedRecord(f"{number} is no decision")
    return HalfDecision(half_id, _WORDS[number])


def _write_read_up_to(writer: ValueWriter, read: ReadUpTo) -> None:
    write_target(writer, read.source)
    writer.int64(read.offset)


def _read_up_to(reader: ValueReader) -> ReadUpTo:
    return ReadUpTo(read_target(reader), reader.int64())


def _close(reader: ValueReader) -> None:
    reader.tags()
    reader.end()
