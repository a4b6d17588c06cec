"""Encodes the OffsetCommit response: little more than a number and a code per partition.

Written by position, not through kio's dataclasses: 100,000 partitions take 20 ms instead of 270.
Invariant: the bytes equal those of the generic encoder.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.protocol.unsigned_varint import encode_unsigned_varint

FIRST_WITH_THROTTLE = 3
FIRST_FLEXIBLE = 8
FIRST_WITH_TOPIC_ID = 10

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">ih")
_FLEXIBLE_PARTITION = struct.Struct(">ihx")
_NOT_THROTTLED = _INT32.pack(0)


def encode_commit_response(
    version: int, topics: Sequence[Any], codes: Iterable[Sequence[ErrorCode]]
) -> bytes:
    """`topics` are the request's; `codes` has the same order, topics and partitions."""
    pieces = [_NOT_THROTTLED] if version >= FIRST_WITH_THROTTLE else []
    pieces.append(_count(version, len(topics)))
    for topic, topic_codes in zip(topics, codes, strict=True):
        pieces += (_name(version, topic), _count(version, len(topic_codes)))
        pieces.append(_partitions(version, topic.partitions, topic_codes))
        pieces.append(_end(version))
    pieces.append(_end(version))
    return b"".join(pieces)


def _partitions(version: int, partitions: Sequence[Any], codes: Sequence[ErrorCode]) -> bytes:
    pack = (_FLEXIBLE_PARTITION if version >= FIRST_FLEXIBLE else _PARTITION).pack
    return b"".join(
        [pack(entry.partition_index, code) for entry, code in zip(partitions, codes, strict=True)]
    )


def _count(version: int, entries: int) -> bytes:
    flexible = version >= FIRST_FLEXIBLE
    return encode_unsigned_varint(entries + 1) if flexible else _INT32.pack(entries)


def _name(version: int, topic: Any) -> bytes:
    if version >= FIRST_WITH_TOPIC_ID:
        return bytes(16) if topic.topic_id is None else bytes(topic.topic_id.bytes)
    encoded: bytes = topic.name.encode()
    flexible = version >= FIRST_FLEXIBLE
    size = encode_unsigned_varint(len(encoded) + 1) if flexible else _INT16.pack(len(encoded))
    return size + encoded


def _end(version: int) -> bytes:
    return b"\0" if version >= FIRST_FLEXIBLE else b""
