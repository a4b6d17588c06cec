"""The checkpoint of a commit log: every partition's state and queue, and where a replay begins.

Bytes and one file. Invariant: everything that the states tell of is durable in the commit log
before the checkpoint is written.
"""

import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

from penstock.io.disk import Disk, read_file, replace_file
from penstock.protocol.checksum import crc32c
from penstock.storage.commit_log.consume_queue import ConsumeQueue, QueueFile
from penstock.storage.commit_log.frames import FrameEnding, FrameKind
from penstock.storage.commit_log.partition_entries import PartitionEntries
from penstock.storage.commit_log.partition_state import (
    MalformedState,
    StateReader,
    StoredPartition,
    decode_state,
    encode_state,
)
from penstock.storage.errors import MalformedCheckpoint

STATE_CHECKPOINT_FILE = "commitlog-checkpoint"
QUEUE_FOLDER = "consumequeue"
_HEAD = struct.Struct(">IIqqIII")  # CRC of the rest, version, then as in StateCheckpoint
_VERSION = 0
_CRC_END = 4
_ENDING = struct.Struct(">qBIqqq")
# Valid entries of the file and their CRC, index of the first live one.
_QUEUE = struct.Struct(">qIq")
_LENGTH = struct.Struct(">I")


class QueueRecord(NamedTuple):
    name: str  # of the file; empty: none
    entry_count: int
    crc: int
    first: int
    unsaved: bytes  # entries after those of the file

    def open(self, folder: str) -> tuple[QueueFile | None, int]:
        if not self.name:
            return None, 0
        return QueueFile(f"{folder}/{self.name}", self.entry_count, self.crc), self.first


class EncodedPartition(NamedTuple):
    queue_name: str  # the file that the content names; empty: none
    content: bytes


class StateCheckpoint(NamedTuple):
    replay_from: int  # frames below are in every state
    durable_end: int  # damage below is no torn end
    next_number: int
    endings: Sequence[tuple[int, FrameEnding]]  # with the position of their frame
    partitions: Sequence[tuple[StoredPartition, QueueRecord]]


def encode_partition(log: PartitionEntries, applied: int) -> EncodedPartition:
    """A partition's part of the checkpoint, as it is now."""
    queue = log.queue
    saved = queue.saved
    if saved is None or queue.first >= saved.entry_count:
        name, layout = b"", _QUEUE.pack(0, 0, 0)
    else:
        name = os.path.basename(saved.path).encode()
        layout = _QUEUE.pack(saved.entry_count, saved.crc, queue.first)
    state = encode_state(log.state(applied))
    parts = [_blob(state), _blob(name), layout, _blob(queue.unsaved)]
    return EncodedPartition(os.fsdecode(name), b"".join(parts))


def encode_checkpoint(
    replay_from: int,
    durable_end: int,
    next_number: int,
    endings: Sequence[tuple[int, FrameEnding]],
    partitions: Sequence[bytes],
) -> bytes:
    head = _HEAD.pack(
        0, _VERSION, replay_from, durable_end, next_number, len(endings), len(partitions)
    )
    packed = (
        _ENDING.pack(position, item.kind, item.number, item.first, item.last, item.before)
        for position, item in endings
    )
    body = head[_CRC_END:] + b"".join(packed) + b"".join(partitions)
    return crc32c(body).to_bytes(_CRC_END, "big") + body


def write_checkpoint(disk: Disk, directory: str, content: bytes) -> None:
    replace_file(disk, f"{directory}/{STATE_CHECKPOINT_FILE}", content)


def read_checkpoint(disk: Disk, directory: str) -> StateCheckpoint | None:
    """None if there is none; MalformedCheckpoint if it is damaged."""
    path = f"{directory}/{STATE_CHECKPOINT_FILE}"
    content = read_file(disk, path)
    return None if content is None else decode_checkpoint(content, path)


def decode_checkpoint(content: bytes, path: str) -> StateCheckpoint:
    if len(content) < _HEAD.size:
        raise MalformedCheckpoint(path, 1, f"{len(content)} bytes are too few")
    if crc32c(memoryview(content)[_CRC_END:]) != int.from_bytes(content[:_CRC_END], "big"):
        raise MalformedCheckpoint(path, 1, "the CRC does not match")
    try:
        return _decode(StateReader(content))
    except (MalformedState, struct.error, ValueError) as error:
        raise MalformedCheckpoint(path, 1, str(error)) from error


def _decode(reader: StateReader) -> StateCheckpoint:
    _, version, replay_from, durable_end, next_number, endings, partitions = reader.fields(_HEAD)
    if version != _VERSION:
        raise ValueError(f"version {version} is unknown, {_VERSION} expected")
    return StateCheckpoint(
        replay_from,
        durable_end,
        next_number,
        [_decode_ending(reader) for _ in range(endings)],
        [_decode_partition(reader) for _ in range(partitions)],
    )


def _decode_ending(reader: StateReader) -> tuple[int, FrameEnding]:
    position, kind, number, first, last, before = reader.fields(_ENDING)
    return position, FrameEnding(FrameKind(kind), number, first, last, before)


def _decode_partition(reader: StateReader) -> tuple[StoredPartition, QueueRecord]:
    state = decode_state(reader.blob())
    name = reader.blob().decode("ascii")
    count, crc, first = reader.fields(_QUEUE)
    return state, QueueRecord(name, count, crc, first, reader.blob())


def _blob(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def make_queue(queue: ConsumeQueue, record: QueueRecord) -> ConsumeQueue:
    """The queue with the entries that only the checkpoint has."""
    queue.extend(record.unsaved)
    return queue
