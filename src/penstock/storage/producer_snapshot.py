"""Kafka's `.snapshot` files, version 1: the producers of one log at an offset.

Bytes and names only; the log decides when to take snapshots and which to keep. Only a producer's
last batch is stored, so after a restart its duplicate window is one batch deep.
"""

import re
import struct
from collections.abc import Iterable

from penstock.io.disk import Disk, read_file, replace_file
from penstock.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from penstock.protocol.checksum import crc32c
from penstock.storage.errors import CorruptSnapshot
from penstock.storage.producer_state_manager import ProducerStateEntry

_VERSION = 1
_HEADER = struct.Struct(">hIi")  # version, CRC-32C of what follows it, count of entries
_COUNT = struct.Struct(">i")
_CRC_END = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_NAME = re.compile(r"([0-9]{20})\.snapshot")


def snapshot_name(offset: int) -> str:
    """The file with the producer state up to, not including, the offset."""
    return f"{offset:020d}.snapshot"


def find_snapshot_offset(name: str) -> Offset | None:
    match = _NAME.fullmatch(name)
    return None if match is None else Offset(int(match[1]))


def read_snapshot(disk: Disk, path: str) -> list[ProducerStateEntry] | None:
    content = read_file(disk, path)
    return None if content is None else decode(content, path)


def write_snapshot(disk: Disk, path: str, entries: Iterable[ProducerStateEntry]) -> None:
    replace_file(disk, path, encode(entries))


def encode(entries: Iterable[ProducerStateEntry]) -> bytes:
    packed = [_pack(entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEADER.pack(_VERSION, crc32c(body), len(packed)) + body[_COUNT.size :]


def decode(content: bytes, path: str = "producer snapshot") -> list[ProducerStateEntry]:
    if len(content) < _HEADER.size:
        raise CorruptSnapshot(f"{path} ends within its header ({len(content)} bytes)")
    version, crc, count = _HEADER.unpack_from(content)
    if version != _VERSION:
        raise CorruptSnapshot(f"{path} has version {version}, only {_VERSION} is known")
    if crc != crc32c(memoryview(content)[_CRC_END:]):
        raise CorruptSnapshot(f"{path} does not match its CRC")
    if len(content) != _HEADER.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{path} announces {count} producers in {len(content)} bytes")
    return [_unpack(fields) for fields in _ENTRY.iter_unpack(content[_HEADER.size :])]


def _pack(entry: ProducerStateEntry) -> bytes:
    first_offset = entry.current_txn_first_offset
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_offset,
        entry.offset_delta,
        entry.timestamp_ms,
        entry.coordinator_epoch,
        -1 if first_offset is None else first_offset,
    )


def _unpack(fields: tuple[int, ...]) -> ProducerStateEntry:
    (
        producer_id,
        producer_epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp_ms,
        coordinator_epoch,
        first_offset,
    ) = fields
    return ProducerStateEntry(
        ProducerId(producer_id),
        ProducerEpoch(producer_epoch),
        last_sequence,
        Offset(last_offset),
        offset_delta,
        TimestampMs(timestamp_ms),
        coordinator_epoch,
        None if first_offset < 0 else Offset(first_offset),
    )
