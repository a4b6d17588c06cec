"""The state of one partition at a position of its commit log, as bytes.

In checkpoints, and in frames that create a partition or carry its state forward. A checkpoint adds
the consume queue. Bytes and values only.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.storage.errors import StorageError
from penstock.storage.leader_epoch_cache import EpochEntry
from penstock.storage.transaction_index import AbortedTxn, decode_entries, encode_entry

# Number, partition, log start, high watermark, cleaned offset, applied position, position of the
# last frame and of the one with the state, virtual segment's base, bytes and first time.
_HEAD = struct.Struct(">Iiqqqqqqqqq")
_EPOCH = struct.Struct(">iq")
_LENGTH = struct.Struct(">I")
_SNAPSHOT = struct.Struct(">q")
_LIVE = struct.Struct(">qq")


class ProducersAt(NamedTuple):
    """A snapshot of the producers, in Kafka's format, as of an offset."""

    offset: int
    content: bytes


class StoredPartition(NamedTuple):
    number: int
    tp: TopicPartition
    topic_id: TopicId
    log_start_offset: int
    high_watermark: int
    cleaned_offset: int
    applied: int  # the effect of every frame below this position is in the state
    last_frame: int
    state_frame: int  # the one that would create the partition in a replay of everything
    segment_base: int
    segment_bytes: int
    segment_first_ms: int
    epochs: Sequence[EpochEntry]
    snapshots: Sequence[ProducersAt]  # oldest first
    aborted: Sequence[AbortedTxn]
    live: Sequence[tuple[int, int]]  # base of a file, live bytes in it


class MalformedState(ValueError):
    """These bytes are not the state of a partition."""


def encode_state(state: StoredPartition) -> bytes:
    head = _HEAD.pack(state.number, state.tp.partition, *state[3:12])
    parts = [
        head,
        state.topic_id.bytes,
        _blob(state.tp.topic.encode()),
        _blob(b"".join(_EPOCH.pack(*entry) for entry in state.epochs)),
        _LENGTH.pack(len(state.snapshots)),
    ]
    for snapshot in state.snapshots:
        parts += [_SNAPSHOT.pack(snapshot.offset), _blob(snapshot.content)]
    parts += [
        _blob(b"".join(map(encode_entry, state.aborted))),
        _blob(b"".join(_LIVE.pack(*pair) for pair in state.live)),
    ]
    return b"".join(parts)


def _blob(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def decode_state(content: bytes | memoryview) -> StoredPartition:
    """MalformedState if the bytes end early or do not decode."""
    try:
        return _decode(StateReader(content))
    except (ValueError, struct.error, StorageError) as error:
        raise MalformedState(str(error)) from error


def _decode(reader: "StateReader") -> StoredPartition:
    number, partition, *offsets = reader.fields(_HEAD)
    topic_id = TopicId(UUID(bytes=reader.take(16)))
    topic = reader.blob().decode()
    epochs = [
        EpochEntry(LeaderEpoch(epoch), Offset(start))
        for epoch, start in _EPOCH.iter_unpack(reader.blob())
    ]
    (count,) = reader.fields(_LENGTH)
    snapshots = [ProducersAt(reader.fields(_SNAPSHOT)[0], reader.blob()) for _ in range(count)]
    aborted = decode_entries(reader.blob())
    live = [(base, size) for base, size in _LIVE.iter_unpack(reader.blob())]
    fields = (number, TopicPartition(topic, partition), topic_id, *offsets)
    return StoredPartition._make((*fields, epochs, snapshots, aborted, live))


class StateReader:
    """Takes values from bytes in order."""

    def __init__(self, content: bytes | memoryview) -> None:
        self._content = memoryview(content)
        self._at = 0

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def blob(self) -> bytes:
        (length,) = self.fields(_LENGTH)
        return self.take(length)

    def take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._content):
            raise MalformedState(f"{length} bytes expected at {self._at}, the content ends early")
        taken = bytes(self._content[self._at : end])
        self._at = end
        return taken
