"""The frames of a commit log: a header of 32 bytes, a payload, zeros up to a multiple of 8 bytes.

Bytes only. A frame names its own position, so that a reader finds the next one after damage, and
the previous frame of its partition, so that the loss of one never goes unnoticed.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from penstock.io.disk import Buffer
from penstock.protocol.checksum import crc32c

# CRC-32C of everything after it, payload length, kind, version, reserved, partition number,
# position, position of the partition's previous frame.
FRAME = Struct(">IIBBHIqq")
_CHECKED = Struct(">IBBHIqq")  # all but the CRC
_pack_checked = _CHECKED.pack
FRAME_BYTES = 32
ALIGNMENT = 8
VERSION = 0
MAX_PAYLOAD_BYTES = 2**31 - 1
NO_POSITION = -1
_CRC_END = 4
_PADDING = tuple(bytes(count) for count in range(ALIGNMENT))
_SELF = Struct(">q")
_SELF_AT = 16


class FrameKind(IntEnum):
    BATCHES = 1  # as a leader or a follower appended them
    MOVED = 2  # live batches, written again so that an older file may go
    STATE = 3  # a partition's creation, or its state carried forward
    DELETED = 4
    TRUNCATED = 5
    LOG_START = 6
    RESTARTED = 7
    COMPACTED = 8  # the batches that take the place of an offset range, maybe none
    EPOCH = 9  # one that began without a batch
    HIGH_WATERMARKS = 10  # of many partitions


# These end batches of older frames, and their payloads begin with `ENDED`. Carried forward they
# keep the position before which they do.
ENDING = frozenset(
    (
        FrameKind.DELETED,
        FrameKind.TRUNCATED,
        FrameKind.LOG_START,
        FrameKind.RESTARTED,
        FrameKind.COMPACTED,
    )
)
WITH_BATCHES = frozenset((FrameKind.BATCHES, FrameKind.MOVED, FrameKind.COMPACTED))

ENDED = Struct(">qqq")  # first and last offset of what is ended, and the position before which
EPOCH_START = Struct(">iq")
PARTITION_OFFSET = Struct(">Iq")
LAST_OFFSET = 2**63 - 1


class FrameEnding(NamedTuple):
    """Entries of a partition that are over: those in the offset range of frames before a position.

    The range of a truncation begins at the new end, and that of a new log start ends before it.
    """

    kind: FrameKind
    number: int
    first: int
    last: int
    before: int

    def covers(self, base_offset: int, last_offset: int, position: int) -> bool:
        """Whether it ends the batch with these offsets in a frame at this position."""
        if position >= self.before:
            return False
        if self.kind in (FrameKind.DELETED, FrameKind.RESTARTED):
            return True
        if self.kind is FrameKind.TRUNCATED:
            return last_offset >= self.first
        return base_offset >= self.first and last_offset <= self.last

    def encode(self) -> bytes:
        return ENDED.pack(self.first, self.last, self.before)


def encode_frame(
    kind: int, number: int, payload: Buffer, position: int, previous: int
) -> tuple[bytes, Buffer, bytes]:
    """Header, payload and padding."""
    size = len(payload)
    checked = _pack_checked(size, kind, VERSION, 0, number, position, previous)
    crc = crc32c(payload, crc32c(checked))
    return crc.to_bytes(4, "big") + checked, payload, _PADDING[-size & 7]


def frame_bytes(payload_bytes: int) -> int:
    """The length of a frame with this payload."""
    return FRAME_BYTES + (payload_bytes + 7 & -8)


def find_problem(buffer: memoryview, cursor: int, header: tuple[int, ...], position: int) -> str:
    """What is wrong with the frame whose header and payload the buffer holds; empty: nothing."""
    crc, size, kind, version, _, _, own_position, _ = header
    if own_position != position:
        return f"the frame names position {own_position}"
    if version != VERSION:
        return f"frame version {version} is unknown, {VERSION} expected"
    end = cursor + FRAME_BYTES + size
    if crc32c(buffer[cursor + _CRC_END : end]) != crc:
        return f"the frame's CRC is not {crc:#010x} as its header says"
    if kind not in FrameKind._value2member_map_:
        return f"frame kind {kind} is unknown"
    return ""


def is_plausible(header: tuple[int, ...], position: int, limit: int) -> bool:
    """Whether the length may be believed before the payload has been read."""
    return header[6] == position and frame_bytes(header[1]) <= limit


def find_candidate(buffer: memoryview, cursor: int, filled: int, position: int) -> int | None:
    """The first aligned place from `cursor` on that names its own position, as a frame would.

    `position` is that of the buffer's first byte, a multiple of 8.
    """
    unpack = _SELF.unpack_from
    for start in range(cursor, filled - FRAME_BYTES + 1, ALIGNMENT):
        if unpack(buffer, start + _SELF_AT)[0] == position + start:
            return start
    return None
