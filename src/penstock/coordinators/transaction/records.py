"""The records of `__transaction_state` in Kafka's format, as plain values. No state.

Key version 0, value versions 0 and 1; version 1 is written, whose tagged fields other brokers may
skip. A record holds the whole state of a transactional id: the last one counts, None removes it.
"""

import struct
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import NamedTuple

from penstock.config.setting import INT_MAX
from penstock.coordinators.transaction.requests import NO_EPOCH, NO_TIME, ProducerIdAndEpoch
from penstock.coordinators.transaction.transaction_version import CLASSIC
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition
from penstock.protocol.coordinator_values import (
    MalformedRecord,
    UnknownKey,
    ValueReader,
    ValueWriter,
)

NO_TIMEOUT_MS = INT_MAX  # of two-phase commit transactions (KIP-939)

_KEY_VERSION = 0
_VERSION = 1
_PREVIOUS_PRODUCER_ID = 0
_NEXT_PRODUCER_ID = 1
_CLIENT_VERSION = 2
_NEXT_PRODUCER_EPOCH = 3  # KIP-939
# Ours alone: without it, a repeated InitProducerId (KIP-360) could be distinguished from a zombie's
# only until the coordinator moves. Far from the tag numbers that Kafka assigns.
_LAST_PRODUCER_EPOCH = 10_000

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")


class State(Enum):
    """The states, with the names that DescribeTransactions returns."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"  # decided; markers are being written
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"  # every partition has its marker
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

    @property
    def commits(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


_STATES = tuple(State)  # by number; Kafka has two more that it never writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id: its producer, and its ongoing or last transaction."""

    producer_id: int
    producer_epoch: int  # while ongoing: of its data; while ending: of its markers
    previous_producer_id: int = NO_PRODUCER_ID  # before the last change of id, until the next data
    # The producer of the next transaction, if it differs from the above.
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH  # its owner may repeat its request; NO_EPOCH: none may
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int
    started_ms: int = NO_TIME
    client_version: int = CLASSIC

    @property
    def owner(self) -> ProducerIdAndEpoch:
        """The only producer whose requests are accepted."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, self.next_producer_epoch)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_kept(self) -> bool:
        """Open, and left by its producer for the owner to end (KIP-939)."""
        return self.state is State.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT_MS


class TransactionRecord(NamedTuple):
    transactional_id: str
    value: Transaction | None  # None: a tombstone


# -- writing -------------------------------------------------------------------------------


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value as in the log."""
    writer = ValueWriter(flexible=False)
    writer.int16(_KEY_VERSION)
    writer.string(record.transactional_id)
    return writer.done(), None if record.value is None else _encode_value(record.value)


def _encode_value(value: Transaction) -> bytes:
    writer = ValueWriter(flexible=True)
    version = ValueWriter(flexible=False)
    version.int16(_VERSION)
    writer.int64(value.producer_id)
    writer.int16(value.producer_epoch)
    writer.int32(value.timeout_ms)
    writer.int8(_STATES.index(value.state))
    writer.array(None if value.state is State.EMPTY else _by_topic(value.partitions), _write_topic)
    writer.int64(value.updated_ms)
    writer.int64(value.started_ms)
    writer.tags(*_tagged(value))
    return version.done() + writer.done()


def _by_topic(partitions: frozenset[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _write_topic(writer: ValueWriter, item: tuple[str, list[int]]) -> None:
    topic, partitions = item
    writer.string(topic)
    writer.array(partitions, ValueWriter.int32)
    writer.tags()


def _tagged(value: Transaction) -> list[tuple[int, bytes]]:
    """Fields that differ from their default."""
    tagged = []
    if value.previous_producer_id != NO_PRODUCER_ID:
        tagged.append((_PREVIOUS_PRODUCER_ID, _INT64.pack(value.previous_producer_id)))
    if value.next_producer_id != NO_PRODUCER_ID:
        tagged.append((_NEXT_PRODUCER_ID, _INT64.pack(value.next_producer_id)))
    if value.client_version != CLASSIC:
        tagged.append((_CLIENT_VERSION, _INT16.pack(value.client_version)))
    if value.next_producer_epoch > 0:  # absent means 0
        tagged.append((_NEXT_PRODUCER_EPOCH, _INT16.pack(value.next_producer_epoch)))
    if value.last_producer_epoch != NO_EPOCH:
        tagged.append((_LAST_PRODUCER_EPOCH, _INT16.pack(value.last_producer_epoch)))
    return tagged


# -- reading -------------------------------------------------------------------------------


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord:
    """UnknownKey for an unknown kind, MalformedRecord for a damaged record."""
    reader = ValueReader(key, flexible=False)
    version = reader.int16()
    if version != _KEY_VERSION:
        raise UnknownKey(f"key version {version} is not a transaction record")
    transactional_id = reader.string()
    reader.end()
    return TransactionRecord(transactional_id, None if value is None else _decode_value(value))


def _decode_value(value: bytes) -> Transaction:
    version = ValueReader(value[:2], flexible=False).int16()
    if not 0 <= version <= _VERSION:
        raise MalformedRecord(f"value version {version} is unknown; known are 0 to {_VERSION}")
    reader = ValueReader(value[2:], flexible=version > 0)
    producer_id = reader.int64()
    producer_epoch = reader.int16()
    timeout_ms = reader.int32()
    state = _read_state(reader)
    partitions = frozenset(chain.from_iterable(reader.nullable_array(_read_topic) or ()))
    updated_ms = reader.int64()
    started_ms = reader.int64()
    tags = reader.tags()
    reader.end()
    next_producer_id = _tag(tags, _NEXT_PRODUCER_ID, _INT64, NO_PRODUCER_ID)
    has_next = next_producer_id != NO_PRODUCER_ID
    return Transaction(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=_tag(tags, _PREVIOUS_PRODUCER_ID, _INT64, NO_PRODUCER_ID),
        next_producer_id=next_producer_id,
        next_producer_epoch=_tag(tags, _NEXT_PRODUCER_EPOCH, _INT16, 0) if has_next else NO_EPOCH,
        last_producer_epoch=_tag(tags, _LAST_PRODUCER_EPOCH, _INT16, NO_EPOCH),
        timeout_ms=timeout_ms,
        state=state,
        partitions=partitions,
        updated_ms=updated_ms,
        started_ms=started_ms,
        client_version=_tag(tags, _CLIENT_VERSION, _INT16, CLASSIC),
    )


def _read_state(reader: ValueReader) -> State:
    number = reader.int8()
    if not 0 <= number < len(_STATES):
        raise MalformedRecord(f"{number} is not a transaction state")
    return _STATES[number]


def _read_topic(reader: ValueReader) -> list[TopicPartition]:
    topic = reader.string()
    partitions = reader.array(ValueReader.int32)
    reader.tags()
    return [TopicPartition(topic, partition) for partition in partitions]


def _tag(tags: dict[int, memoryview], number: int, kind: struct.Struct, default: int) -> int:
    data = tags.get(number)
    if data is None:
        return default
    if len(data) != kind.size:
        raise MalformedRecord(f"tagged field {number} has {len(data)} bytes, not {kind.size}")
    return int(kind.unpack(data)[0])
