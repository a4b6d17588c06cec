"""Records about half messages in `__penstock_deferred`, their values to bytes and back. Pure."""

from typing import NamedTuple

from penstock.coordinators.deferred.half_values import Half, HalfStatus, SentCheck
from penstock.coordinators.deferred.values import HalfKey, Hold, Target
from penstock.model.ids import TopicId
from penstock.protocol.coordinator_values import MalformedRecord, ValueReader, ValueWriter

_STATUSES = tuple(HalfStatus)  # by number


class HalfIdRecord(NamedTuple):
    """None: it was decided so long ago that nobody asks."""

    key: HalfKey
    value: Half | None


class SourceRecord(NamedTuple):
    """How far a partition of a half topic, or of its decisions, is read for a group."""

    group: str
    source: Target
    offset: int


def write_half_key(writer: ValueWriter, key: HalfKey) -> None:
    writer.string(key.group)
    writer.string(key.half_id)


def read_half_key(reader: ValueReader) -> HalfKey:
    return HalfKey(reader.string(), reader.string())


def write_hold(writer: ValueWriter, hold: Hold) -> None:
    write_half_key(writer, hold.key)
    writer.string(hold.topic)
    writer.int64(hold.delay_ms)


def read_hold(reader: ValueReader) -> Hold:
    return Hold(read_half_key(reader), reader.string(), reader.int64())


def write_half(writer: ValueWriter, half: Half) -> None:
    writer.int8(_STATUSES.index(half.status))
    writer.int64(half.since_ms)
    writer.int32(half.checks)
    writer.int64(half.next_check_ms)
    writer.int8(half.check is not None)
    if half.check is not None:
        _write_check(writer, half.check)
    writer.int32(half.copied)


def read_half(reader: ValueReader) -> Half:
    number = reader.int8()
    if not 0 <= number < len(_STATUSES):
        raise MalformedRecord(f"{number} is no status of a half id")
    return Half(
        _STATUSES[number],
        reader.int64(),
        reader.int32(),
        reader.int64(),
        _read_check(reader) if reader.int8() else None,
        reader.int32(),
    )


def _write_check(writer: ValueWriter, check: SentCheck) -> None:
    writer.int64(check.number)
    writer.uuid(check.target.topic_id)
    writer.int32(check.target.partition)
    writer.int64(check.offset)
    writer.int64(check.sent_ms)


def _read_check(reader: ValueReader) -> SentCheck:
    number = reader.int64()
    target = Target(TopicId(reader.uuid()), reader.int32())
    return SentCheck(number, target, reader.int64(), reader.int64())
