"""The records of the topic `__transaction_state`, in Kafka's format, as plain values. No state.

Key version 0, value versions 0 and 1; 1 is written, whose tagged fields other brokers may skip.
The record of a transactional id is its whole state: the last one counts, None takes it away.
"""

import struct
from dataclasses import dataclass
from enum import Enum
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

NO_TIMEOUT_MS = INT_MAX  # of those that take part in a two-phase commit (KIP-939)

_KEY_VERSION = 0
_VERSION = 1
_PREVIOUS_PRODUCER_ID = 0
_NEXT_PRODUCER_ID = 1
_CLIENT_VERSION = 2
_NEXT_PRODUCER_EPOCH = 3  # KIP-939
# Ours alone: without it a repeated InitProducerId (KIP-360) is told from a zombie's only until the
# coordinator moves. Far from the numbers that Kafka gives out.
_LAST_PRODUCER_EPOCH = 10_000

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")


class State(Enum):
    """With the names that DescribeTransactions shows."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"  # decided, and being told to the partitions
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


_STATES = tuple(State)  # by number; Kafka has two more, which it never writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id, its producer, and the transaction that it is in or has ended last."""

    producer_id: int
    producer_epoch: int  # while one is open or being ended: that of its data, and of its markers
    previous_producer_id: int = NO_PRODUCER_ID  # before the last change of ids, until the next data
    # Who goes on when what is open has ended, where that is somebody else than the above.
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH  # whose owner may repeat its request; NO_EPOCH: nobody
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int
    started_ms: int = NO_TIME
    client_version: int = CLASSIC

    @property
    def owner(self) -> ProducerIdAndEpoch:
        """The only one whose requests count."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, self.next_producer_epoch)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_kept(self) -> bool:
        """Open, and left behind by its producer for the owner to end (KIP-939)."""
        return self.state is State.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT_MS


class TransactionRecord(NamedTuple):
    transactional_id: str
    value: Transaction | None  # None: a tombstone


# -- writing -------------------------------------------------------------------------------


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
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
    """Those that say something else than their default."""
    tagged = []
    if value.previous_producer_id != NO_PRODUCER_ID:
        tagged.append((_PREVIOUS_PRODUCER_ID, _INT64.pack(value.previous_producer_id)))
    if value.next_producer_id != NO_PRODUCER_ID:
        tagged.append((_NEXT_PRODUCER_ID, _INT64.pack(value.next_producer_id)))
    if value.client_version != CLASSIC:
        tagged.append((_CLIENT_VERSION, _INT16.pack(value.client_version)))
    if value.next_producer_epoch > 0:  # one that is not told begins at 0
        tagged.append((_NEXT_PRODUCER_EPOCH, _INT16.pack(value.next_producer_epoch)))
    if value.last_producer_epoch != NO_EPOCH:
        tagged.append((_LAST_PRODUCER_EPOCH, _INT16.pack(value.last_producer_epoch)))
    return tagged


# -- reading -------------------------------------------------------------------------------


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord:
    """UnknownKey for a kind that is not known, MalformedRecord for what is damaged."""
    reader = ValueReader(key, flexible=False)
    version = reader.int16()
    if version != _KEY_VERSION:
        raise UnknownKey(f"no record of transactions has a key of version {version}")
    transactional_id = reader.string()
    reader.end()
    return TransactionRecord(transactional_id, None if value is None else _decode_value(value))


def _decode_value(value: bytes) -> Transaction:
    version = ValueReader(value[:2], flexible=False).int16()
    if not 0 <= version <= _VERSION:
        raise MalformedRecord(f"version {version} of a value is not known, only 0 to {_VERSION}")
    reader = ValueReader(value[2:], flexible=version > 0)
    producer_id = reader.int64()
    producer_epoch = reader.int16()
    timeout_ms = reader.int32()
    state = _read_state(reader)
    partitions = frozenset(one for some in reader.nullable_array(_read_topic) or () for one in some)
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
        raise MalformedRecord(f"{number} is no state of a transaction")
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
