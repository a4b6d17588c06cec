"""The records of `__consumer_offsets` in Kafka's formats, as plain values. No state.

The key determines the kind of record; a value of None is a tombstone. Older versions are read; the
versions that are written can be read by every Kafka since 3.x.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.model.ids import TopicId
from penstock.protocol.coordinator_values import (
    MalformedRecord,
    UnknownKey,
    ValueReader,
    ValueWriter,
)

NO_TIME = -1
NO_EPOCH = -1


# Keys. The version of a key is the kind of its record.


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group: str


class ConsumerGroupKey(NamedTuple):
    group: str


class ConsumerTopicsKey(NamedTuple):
    """Written by Kafka before 4.0 only; read and ignored."""

    group: str


class ConsumerMemberKey(NamedTuple):
    group: str
    member: str


class TargetEpochKey(NamedTuple):
    group: str


class TargetMemberKey(NamedTuple):
    group: str
    member: str


class CurrentMemberKey(NamedTuple):
    group: str
    member: str


Key = (
    OffsetKey
    | GroupKey
    | ConsumerGroupKey
    | ConsumerTopicsKey
    | ConsumerMemberKey
    | TargetEpochKey
    | TargetMemberKey
    | CurrentMemberKey
)


# Values.


class OffsetValue(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = NO_TIME  # of old clients that set a retention of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """A member of a classic group."""

    member: str
    instance: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """A classic group as of its last stable generation."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[MemberValue, ...] = ()


class ConsumerGroupValue(NamedTuple):
    epoch: int


class ConsumerTopicsValue(NamedTuple):
    """Ignored."""


class ClassicMembership(NamedTuple):
    """The session and protocols of a classic member in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberValue:
    instance: str | None
    rack: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMembership | None = None


class TargetEpochValue(NamedTuple):
    epoch: int


class TopicPartitions(NamedTuple):
    topic_id: TopicId
    partitions: tuple[int, ...]


class TargetMemberValue(NamedTuple):
    assigned: tuple[TopicPartitions, ...]


class CurrentMemberValue(NamedTuple):
    epoch: int
    previous_epoch: int
    state: int
    assigned: tuple[TopicPartitions, ...]
    pending_revocation: tuple[TopicPartitions, ...]


Value = (
    OffsetValue
    | GroupValue
    | ConsumerGroupValue
    | ConsumerTopicsValue
    | ConsumerMemberValue
    | TargetEpochValue
    | TargetMemberValue
    | CurrentMemberValue
)


class GroupRecord(NamedTuple):
    key: Key
    value: Value | None  # None: a tombstone


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as in the log."""
    kind = _KINDS[type(record.key)]
    writer = ValueWriter(flexible=False)
    writer.int16(kind.key_version)
    for field in record.key:
        if isinstance(field, int):
            writer.int32(field)
        else:
            writer.string(field)
    if record.value is None:
        return writer.done(), None
    return writer.done(), kind.write(record.value)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord:
    """UnknownKey for an unknown kind, MalformedRecord for a damaged record."""
    reader = ValueReader(key, flexible=False)
    version = reader.int16()
    kind = _BY_VERSION.get(version)
    if kind is None:
        raise UnknownKey(f"no record of groups has a key of version {version}")
    decoded = kind.read_key(reader)
    reader.end()
    return GroupRecord(decoded, None if value is None else kind.read(value))


# The layouts, one pair of functions per value.


def _write_offset(value: OffsetValue) -> bytes:
    # Only version 1 has an expiry time; version 3 added the leader epoch.
    version = 1 if value.expires_ms != NO_TIME else 3
    writer = ValueWriter(flexible=False)
    writer.int16(version)
    writer.int64(value.offset)
    if version >= 3:
        writer.int32(value.leader_epoch)
    writer.string(value.metadata)
    writer.int64(value.committed_ms)
    if version == 1:
        writer.int64(value.expires_ms)
    return writer.done()


def _read_offset(data: bytes) -> OffsetValue:
    version, reader = _open(data, newest=4, flexible_from=4)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
    metadata = reader.string()
    committed_ms = reader.int64()
    expires_ms = reader.int64() if version == 1 else NO_TIME
    _close(reader)
    return OffsetValue(offset, leader_epoch, metadata, committed_ms, expires_ms)


def _write_group(value: GroupValue) -> bytes:
    writer = ValueWriter(flexible=False)
    writer.int16(3)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    writer.int64(value.state_since_ms)
    writer.array(value.members, _write_member)
    return writer.done()


def _write_member(writer: ValueWriter, member: MemberValue) -> None:
    writer.string(member.member)
    writer.string(member.instance)
    writer.string(member.client_id)
    writer.string(member.client_host)
    writer.int32(member.rebalance_timeout_ms)
    writer.int32(member.session_timeout_ms)
    writer.data(member.subscription)
    writer.data(member.assignment)


def _read_group(data: bytes) -> GroupValue:
    version, reader = _open(data, newest=4, flexible_from=4)
    value = GroupValue(
        protocol_type=reader.string(),
        generation=reader.int32(),
        protocol=reader.nullable_string(),
        leader=reader.nullable_string(),
        state_since_ms=reader.int64() if version >= 2 else NO_TIME,
        members=tuple(reader.array(lambda entry: _read_member(entry, version))),
    )
    _close(reader)
    return value


def _read_member(reader: ValueReader, version: int) -> MemberValue:
    member = reader.string()
    instance = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    value = MemberValue(
        member=member,
        instance=instance,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_timeout_ms if version < 1 else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.data(),
        assignment=reader.data(),
    )
    reader.tags()
    return value


def _write_epoch(value: ConsumerGroupValue | TargetEpochValue) -> bytes:
    writer = _flexible()
    writer.int32(value.epoch)
    writer.tags()
    return writer.done()


def _read_consumer_group(data: bytes) -> ConsumerGroupValue:
    return ConsumerGroupValue(_read_epoch(data))


def _read_target_epoch(data: bytes) -> TargetEpochValue:
    return TargetEpochValue(_read_epoch(data))


def _read_epoch(data: bytes) -> int:
    _, reader = _open(data, newest=0, flexible_from=0)
    epoch = reader.int32()
    _close(reader)
    return epoch


def _read_consumer_topics(data: bytes) -> ConsumerTopicsValue:
    return ConsumerTopicsValue()


def _never_written(value: ConsumerTopicsValue) -> bytes:
    raise AssertionError("only its tombstone is written")


def _write_consumer_member(value: ConsumerMemberValue) -> bytes:
    writer = _flexible()
    writer.string(value.instance)
    writer.string(value.rack)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.array(value.topics, ValueWriter.string)
    writer.string(value.topic_regex)
    writer.int32(value.rebalance_timeout_ms)
    writer.string(value.assignor)
    if value.classic is None:
        writer.tags()
    else:
        writer.tags((0, _write_classic(value.classic)))
    return writer.done()


def _write_classic(classic: ClassicMembership) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int8(1)  # present: a nullable structure starts with this byte
    writer.int32(classic.session_timeout_ms)
    writer.array(classic.protocols, _write_protocol)
    writer.tags()
    return writer.done()


def _write_protocol(writer: ValueWriter, protocol: tuple[str, bytes]) -> None:
    writer.string(protocol[0])
    writer.data(protocol[1])
    writer.tags()


def _read_consumer_member(data: bytes) -> ConsumerMemberValue:
    _, reader = _open(data, newest=0, flexible_from=0)
    fields: dict[str, Any] = {
        "instance": reader.nullable_string(),
        "rack": reader.nullable_string(),
        "client_id": reader.string(),
        "client_host": reader.string(),
        "topics": tuple(reader.array(ValueReader.string)),
        "topic_regex": reader.nullable_string(),
        "rebalance_timeout_ms": reader.int32(),
        "assignor": reader.nullable_string(),
    }
    tagged = _close(reader)
    return ConsumerMemberValue(**fields, classic=_read_classic(tagged.get(0)))


def _read_classic(data: memoryview | None) -> ClassicMembership | None:
    if data is None:
        return None
    reader = ValueReader(data, flexible=True)
    if reader.int8() <= 0:  # Kafka 4.3 writes -1 for an absent structure
        return None
    session_timeout_ms = reader.int32()
    protocols = tuple(reader.array(_read_protocol))
    _close(reader)
    return ClassicMembership(session_timeout_ms, protocols)


def _read_protocol(reader: ValueReader) -> tuple[str, bytes]:
    name, metadata = reader.string(), reader.data()
    reader.tags()
    return name, metadata


def _write_target_member(value: TargetMemberValue) -> bytes:
    writer = _flexible()
    writer.array(value.assigned, _write_partitions)
    writer.tags()
    return writer.done()


def _read_target_member(data: bytes) -> TargetMemberValue:
    _, reader = _open(data, newest=0, flexible_from=0)
    assigned = tuple(reader.array(_read_partitions))
    _close(reader)
    return TargetMemberValue(assigned)


def _write_current_member(value: CurrentMemberValue) -> bytes:
    writer = _flexible()
    writer.int32(value.epoch)
    writer.int32(value.previous_epoch)
    writer.int8(value.state)
    writer.array(value.assigned, _write_partitions)
    writer.array(value.pending_revocation, _write_partitions)
    writer.tags()
    return writer.done()


def _read_current_member(data: bytes) -> CurrentMemberValue:
    _, reader = _open(data, newest=0, flexible_from=0)
    value = CurrentMemberValue(
        epoch=reader.int32(),
        previous_epoch=reader.int32(),
        state=reader.int8(),
        assigned=tuple(reader.array(_read_partitions)),
        pending_revocation=tuple(reader.array(_read_partitions)),
    )
    _close(reader)
    return value


def _write_partitions(writer: ValueWriter, topic: TopicPartitions) -> None:
    writer.uuid(topic.topic_id)
    writer.array(topic.partitions, ValueWriter.int32)
    writer.tags()


def _read_partitions(reader: ValueReader) -> TopicPartitions:
    topic_id = TopicId(reader.uuid())
    partitions = tuple(reader.array(ValueReader.int32))
    reader.tags()
    return TopicPartitions(topic_id, partitions)


def _flexible() -> ValueWriter:
    writer = ValueWriter(flexible=True)
    writer.int16(0)
    return writer


def _open(data: bytes, *, newest: int, flexible_from: int) -> tuple[int, ValueReader]:
    """The version of a value, and a reader positioned after it."""
    version = ValueReader(data, flexible=False).int16()
    if not 0 <= version <= newest:
        raise MalformedRecord(f"version {version} of a value is not known, only 0 to {newest}")
    reader = ValueReader(data, flexible=version >= flexible_from)
    reader.int16()
    return version, reader


def _close(reader: ValueReader) -> dict[int, memoryview]:
    tagged = reader.tags()
    reader.end()
    return tagged


# The table of kinds.


class _Kind(NamedTuple):
    key_version: int
    read_key: Callable[[ValueReader], Any]
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


def _of_group(make: Callable[[str], Any]) -> Callable[[ValueReader], Any]:
    return lambda reader: make(reader.string())


def _of_member(make: Callable[[str, str], Any]) -> Callable[[ValueReader], Any]:
    return lambda reader: make(reader.string(), reader.string())


def _read_offset_key(reader: ValueReader) -> OffsetKey:
    return OffsetKey(reader.string(), reader.string(), reader.int32())


_KINDS: dict[type[Any], _Kind] = {
    OffsetKey: _Kind(1, _read_offset_key, _write_offset, _read_offset),
    GroupKey: _Kind(2, _of_group(GroupKey), _write_group, _read_group),
    ConsumerGroupKey: _Kind(3, _of_group(ConsumerGroupKey), _write_epoch, _read_consumer_group),
    ConsumerTopicsKey: _Kind(
        4, _of_group(ConsumerTopicsKey), _never_written, _read_consumer_topics
    ),
    ConsumerMemberKey: _Kind(
        5, _of_member(ConsumerMemberKey), _write_consumer_member, _read_consumer_member
    ),
    TargetEpochKey: _Kind(6, _of_group(TargetEpochKey), _write_epoch, _read_target_epoch),
    TargetMemberKey: _Kind(
        7, _of_member(TargetMemberKey), _write_target_member, _read_target_member
    ),
    CurrentMemberKey: _Kind(
        8, _of_member(CurrentMemberKey), _write_current_member, _read_current_member
    ),
}
_BY_VERSION = {kind.key_version: kind for kind in _KINDS.values()}
_BY_VERSION[0] = _KINDS[OffsetKey]  # the same layout, from Kafka 0.8
