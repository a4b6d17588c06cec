"""The records of `__penstock_deferred`, as plain values. No state.

Each kind has its own key; the last record of a key counts, and a value of None removes it. The
first two bytes of a key are its kind, those of a value its version, so that later kinds and
versions are recognised.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from penstock.coordinators.deferred.half_records import (
    HalfIdRecord,
    SourceRecord,
    read_half,
    read_half_key,
    read_hold,
    write_half,
    write_half_key,
    write_hold,
)
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    Delivery,
    EndedMessage,
    MessageEnd,
    ProducerBatches,
    SequenceRange,
    Target,
)
from penstock.model.ids import TopicId
from penstock.protocol.coordinator_values import (
    MalformedRecord,
    UnknownKey,
    ValueReader,
    ValueWriter,
)

_MESSAGE, _PRODUCER, _DELIVERY, _ENDED, _DELIVERER, _HALF, _SOURCE = range(7)  # kinds
_VERSION = 0
_HELD_VERSION = 1  # of a message that is held
_TRANSACTION_VERSION = 2  # of a message of a transaction
_ENDS = tuple(MessageEnd)  # by number


class MessageRecord(NamedTuple):
    """None: it is delivered, cancelled or replaced."""

    number: int
    value: DeferredMessage | None


class ProducerRecord(NamedTuple):
    target: Target
    producer_id: int
    value: ProducerBatches | None


class DeliveryRecord(NamedTuple):
    target: Target
    value: Delivery | None


class EndedRecord(NamedTuple):
    delay_key: DelayKey
    value: EndedMessage | None


class DelivererRecord(NamedTuple):
    """The producer as which the shard delivers."""

    producer_id: int
    producer_epoch: int


DeferredRecord: TypeAlias = (
    MessageRecord
    | ProducerRecord
    | DeliveryRecord
    | EndedRecord
    | DelivererRecord
    | HalfIdRecord
    | SourceRecord
)

# -- writing -------------------------------------------------------------------------------


def encode_record(record: DeferredRecord) -> tuple[bytes, bytes | None]:
    """Key and value as in the log."""
    if isinstance(record, HalfIdRecord | SourceRecord):
        return _encode_half_record(record)
    key = ValueWriter(flexible=True)
    value = ValueWriter(flexible=True)
    value.int16(_version_of(record))
    match record:
        case MessageRecord(number, message):
            key.int16(_MESSAGE)
            key.int64(number)
            is_tombstone = message is None
            if message is not None:
                _write_any_message(value, message)
        case ProducerRecord(target, producer_id, batches):
            key.int16(_PRODUCER)
            write_target(key, target)
            key.int64(producer_id)
            is_tombstone = batches is None
            if batches is not None:
                _write_batches(value, batches)
        case DeliveryRecord(target, delivery):
            key.int16(_DELIVERY)
            write_target(key, target)
            is_tombstone = delivery is None
            if delivery is not None:
                value.int32(delivery.sequence)
                value.array(delivery.numbers, ValueWriter.int64)
        case EndedRecord(delay_key, ended):
            key.int16(_ENDED)
            key.uuid(delay_key.topic_id)
            key.string(delay_key.delay_id)
            is_tombstone = ended is None
            if ended is not None:
                value.int8(_ENDS.index(ended.end))
                value.int64(ended.ended_ms)
        case DelivererRecord(producer_id, producer_epoch):
            key.int16(_DELIVERER)
            is_tombstone = False
            value.int64(producer_id)
            value.int16(producer_epoch)
    value.tags()
    return key.done(), None if is_tombstone else value.done()


def _encode_half_record(record: HalfIdRecord | SourceRecord) -> tuple[bytes, bytes | None]:
    key = ValueWriter(flexible=True)
    value = ValueWriter(flexible=True)
    value.int16(_VERSION)
    is_tombstone = False
    if isinstance(record, SourceRecord):
        key.int16(_SOURCE)
        key.string(record.group)
        write_target(key, record.source)
        value.int64(record.offset)
    else:
        key.int16(_HALF)
        write_half_key(key, record.key)
        is_tombstone = record.value is None
        if record.value is not None:
            write_half(value, record.value)
    value.tags()
    return key.done(), None if is_tombstone else value.done()


def _version_of(record: DeferredRecord) -> int:
    if not isinstance(record, MessageRecord) or record.value is None:
        return _VERSION
    if record.value.hold is not None:
        return _HELD_VERSION
    return _VERSION if record.value.commit_delay_ms is None else _TRANSACTION_VERSION


def write_target(writer: ValueWriter, target: Target) -> None:
    writer.uuid(target.topic_id)
    writer.int32(target.partition)


def _write_any_message(writer: ValueWriter, message: DeferredMessage) -> None:
    """With what its version has in addition."""
    write_message(writer, message)
    if message.hold is not None:
        write_hold(writer, message.hold)
    elif message.commit_delay_ms is not None:
        writer.int64(message.commit_delay_ms)


def write_message(writer: ValueWriter, message: DeferredMessage) -> None:
    writer.int64(message.due_ms)
    write_target(writer, message.target)
    writer.string(message.delay_id)
    writer.int64(message.timestamp_ms)
    writer.nullable_data(message.key)
    writer.nullable_data(message.value)
    writer.array(message.headers, _write_header)


def _write_header(writer: ValueWriter, header: tuple[str, bytes | None]) -> None:
    name, value = header
    writer.string(name)
    writer.nullable_data(value)


def _write_batches(writer: ValueWriter, batches: ProducerBatches) -> None:
    writer.int16(batches.producer_epoch)
    writer.array(batches.ranges, _write_range)
    writer.int64(batches.updated_ms)


def _write_range(writer: ValueWriter, sequences: SequenceRange) -> None:
    writer.int32(sequences.first)
    writer.int32(sequences.last)


# -- reading -------------------------------------------------------------------------------


def decode_record(key: bytes, value: bytes | None) -> DeferredRecord:
    """UnknownKey for an unknown kind, MalformedRecord for a damaged record."""
    reader = ValueReader(key, flexible=True)
    kind = reader.int16()
    decode = _DECODERS.get(kind)
    if decode is None:
        raise UnknownKey(f"a record of kind {kind}; known are 0 to {len(_DECODERS) - 1}")
    record = decode(reader, None if value is None else _open(value))
    reader.end()
    return record


def _open(value: bytes) -> ValueReader:
    """At its version."""
    return ValueReader(value, flexible=True)


def _check_version(reader: ValueReader, newest: int = _VERSION) -> int:
    version = reader.int16()
    if not _VERSION <= version <= newest:
        raise MalformedRecord(f"value version {version} is unknown; known is {newest}")
    return version


def _close(reader: ValueReader) -> None:
    reader.tags()
    reader.end()


def _decode_message(key: ValueReader, value: ValueReader | None) -> MessageRecord:
    number = key.int64()
    if value is None:
        return MessageRecord(number, None)
    version = _check_version(value, _TRANSACTION_VERSION)
    message = read_message(value)
    if version == _HELD_VERSION:
        message = message._replace(hold=read_hold(value))
    elif version == _TRANSACTION_VERSION:
        message = message._replace(commit_delay_ms=value.int64())
    _close(value)
    return MessageRecord(number, message)


def read_message(reader: ValueReader) -> DeferredMessage:
    return DeferredMessage(
        due_ms=reader.int64(),
        target=read_target(reader),
        delay_id=reader.nullable_string(),
        timestamp_ms=reader.int64(),
        key=reader.nullable_data(),
        value=reader.nullable_data(),
        headers=tuple(reader.array(_read_header)),
    )


def _decode_producer(key: ValueReader, value: ValueReader | None) -> ProducerRecord:
    target, producer_id = read_target(key), key.int64()
    if value is None:
        return ProducerRecord(target, producer_id, None)
    _check_version(value)
    batches = ProducerBatches(value.int16(), tuple(value.array(_read_range)), value.int64())
    _close(value)
    return ProducerRecord(target, producer_id, batches)


def _decode_delivery(key: ValueReader, value: ValueReader | None) -> DeliveryRecord:
    target = read_target(key)
    if value is None:
        return DeliveryRecord(target, None)
    _check_version(value)
    delivery = Delivery(value.int32(), tuple(value.array(ValueReader.int64)))
    _close(value)
    return DeliveryRecord(target, delivery)


def _decode_ended(key: ValueReader, value: ValueReader | None) -> EndedRecord:
    delay_key = DelayKey(TopicId(key.uuid()), key.string())
    if value is None:
        return EndedRecord(delay_key, None)
    _check_version(value)
    number = value.int8()
    if not 0 <= number < len(_ENDS):
        raise MalformedRecord(f"{number} is no end of a message")
    ended = EndedMessage(_ENDS[number], value.int64())
    _close(value)
    return EndedRecord(delay_key, ended)


def _decode_deliverer(_: ValueReader, value: ValueReader | None) -> DelivererRecord:
    if value is None:
        raise MalformedRecord("the shard's producer cannot be removed")
    _check_version(value)
    record = DelivererRecord(value.int64(), value.int16())
    _close(value)
    return record


def _decode_half(key: ValueReader, value: ValueReader | None) -> HalfIdRecord:
    half_key = read_half_key(key)
    if value is None:
        return HalfIdRecord(half_key, None)
    _check_version(value)
    half = read_half(value)
    _close(value)
    return HalfIdRecord(half_key, half)


def _decode_source(key: ValueReader, value: ValueReader | None) -> SourceRecord:
    group, source = key.string(), read_target(key)
    if value is None:
        raise MalformedRecord("the position of a source cannot be removed")
    _check_version(value)
    record = SourceRecord(group, source, value.int64())
    _close(value)
    return record


def read_target(reader: ValueReader) -> Target:
    return Target(TopicId(reader.uuid()), reader.int32())


def _read_header(reader: ValueReader) -> tuple[str, bytes | None]:
    return reader.string(), reader.nullable_data()


def _read_range(reader: ValueReader) -> SequenceRange:
    return SequenceRange(reader.int32(), reader.int32())


_DECODERS: dict[int, Callable[[ValueReader, ValueReader | None], DeferredRecord]] = {
    _MESSAGE: _decode_message,
    _PRODUCER: _decode_producer,
    _DELIVERY: _decode_delivery,
    _ENDED: _decode_ended,
    _DELIVERER: _decode_deliverer,
    _HALF: _decode_half,
    _SOURCE: _decode_source,
}
