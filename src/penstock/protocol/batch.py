"""The 61-byte header of a record batch, message format v2: read, check, stamp, CRC.

Never looks at records or decompresses. A batch that passes `check_header` and `is_crc_valid` can be
stored and iterated safely; `records.py` checks whether its records decode.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.model.producer_ids import FIRST_DELIVERER_ID
from penstock.protocol.checksum import crc32c

Buffer = bytes | bytearray | memoryview

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
LOG_OVERHEAD: Final = 12  # base offset and length, which `batch_length` does not count
MIN_BATCH_LENGTH: Final = HEADER_BYTES - LOG_OVERHEAD
# One byte each: length, attributes, two deltas, key, value, header count.
MIN_RECORD_BYTES: Final = 7
MAGIC: Final = 2

BASE_OFFSET_POSITION: Final = 0
LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21  # the CRC covers everything from here on
LAST_OFFSET_DELTA_POSITION: Final = 23
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
PRODUCER_EPOCH_POSITION: Final = 51
BASE_SEQUENCE_POSITION: Final = 53
RECORD_COUNT_POSITION: Final = 57

CODEC_MASK: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
RESERVED_MASK: Final = ~0x7F

MAX_CODEC_ID: Final = 4
NO_SEQUENCE: Final = -1
MAX_SEQUENCE: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 1

_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_UINT32: Final = struct.Struct(">I")
_PRODUCER: Final = struct.Struct(">qhi")  # id, epoch, base sequence


class CorruptBatch(ValueError):
    """These bytes are not a record batch of format v2; `reason` says what was found."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnsupportedMagic(CorruptBatch):
    """A batch of another message format, or damage that looks like one: the CRC omits the magic."""

    def __init__(self, magic: int, position: int) -> None:
        advice = (
            "written by a client or log older than Kafka 0.11; convert it or use a newer client"
            if magic in (0, 1)
            else "no known format"
        )
        super().__init__(
            f"batch at position {position} has magic {magic}, {advice}: only {MAGIC} is read"
        )
        self.magic = magic


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int  # the delete horizon if `has_delete_horizon`
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int  # at most last_offset_delta + 1; compaction lowers it, down to 0

    @property
    def size(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0

    @property
    def is_append_time(self) -> bool:
        return self.attributes & APPEND_TIME != 0

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def is_marker(self) -> bool:
        """A control batch, unless it stands for records of its producer that are kept elsewhere:
        that one has their sequences."""
        return bool(self.attributes & CONTROL) and self.base_sequence < 0

    @property
    def last_sequence(self) -> int:
        """The last record's sequence: 0 follows 2^31-1. Without a sequence, NO_SEQUENCE."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header as stored; only its magic is checked."""
    try:
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    except struct.error:
        raise _too_short(buffer, position) from None
    if header.magic != MAGIC:
        raise UnsupportedMagic(header.magic, position)
    return header


def _too_short(buffer: Buffer, position: int) -> CorruptBatch:
    available = max(0, len(buffer) - position)
    # A message of an old format may be shorter than a v2 header: report the real cause.
    if available > MAGIC_POSITION and buffer[position + MAGIC_POSITION] != MAGIC:
        return UnsupportedMagic(buffer[position + MAGIC_POSITION], position)
    return CorruptBatch(
        f"batch at position {position} ends in its header: "
        f"{available} of {HEADER_BYTES} bytes are there"
    )


def check_header(header: BatchHeader, available: int) -> None:
    """Structural sanity of any batch; `available` counts the bytes from its start.

    Compaction removes records and keeps offsets: fewer records than offsets, even none, is valid.
    """
    if header.magic != MAGIC:
        raise UnsupportedMagic(header.magic, 0)
    if header.batch_length < MIN_BATCH_LENGTH:
        raise _corrupt(header, f"length {header.batch_length} is below {MIN_BATCH_LENGTH}")
    if header.batch_length > available - LOG_OVERHEAD:
        raise _corrupt(header, f"{header.size} bytes announced, {available} are there")
    if header.attributes & RESERVED_MASK:
        raise _corrupt(header, f"reserved bits set in attributes {header.attributes & 0xFFFF:#06x}")
    if header.attributes & CODEC_MASK > MAX_CODEC_ID:
        raise _corrupt(header, f"compression codec {header.codec} does not exist")
    _check_counts(header)


def _check_counts(header: BatchHeader) -> None:
    delta = header.last_offset_delta
    count = header.record_count
    if delta < 0:
        raise _corrupt(header, f"last offset delta {delta} is negative")
    if not 0 <= header.base_offset < MAX_OFFSET - delta:
        raise _corrupt(header, f"offsets leave the range 0 to 2^63-1 (delta {delta})")
    if not 0 <= count <= delta + 1:
        raise _corrupt(header, f"{count} records in {delta + 1} offsets")
    if not header.attributes & CODEC_MASK:
        payload_bytes = header.batch_length - MIN_BATCH_LENGTH
        if count * MIN_RECORD_BYTES > payload_bytes:
            raise _corrupt(header, f"{count} records cannot fit in {payload_bytes} bytes")


def check_client_batch(header: BatchHeader) -> None:
    """Checks of a producer's batch beyond `check_header`; the leader stamps offset and epoch."""
    count = header.record_count
    if count < 1 or count != header.last_offset_delta + 1:
        raise _corrupt(header, f"{count} records with last offset delta {header.last_offset_delta}")
    if header.attributes & (CONTROL | DELETE_HORIZON):
        raise _corrupt(
            header, f"attributes {header.attributes:#04x} hold a bit that only a broker sets"
        )
    if header.base_timestamp < -1 or header.max_timestamp < -1:
        raise _corrupt(
            header, f"timestamps {header.base_timestamp}, {header.max_timestamp} below -1"
        )
    _check_producer(header)


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise _corrupt(
                header,
                f"producer {header.producer_id} with epoch {header.producer_epoch} "
                f"and sequence {header.base_sequence}",
            )
        if header.producer_id >= FIRST_DELIVERER_ID:
            raise _corrupt(header, f"producer id {header.producer_id} is one of the brokers' own")
        return
    # Without a producer id some clients leave 0 as sequence or epoch, which is ignored.
    if header.producer_id < -1:
        raise _corrupt(header, f"producer id {header.producer_id} is below -1")
    if header.is_transactional:
        raise _corrupt(header, "transactional without a producer id")


def _corrupt(header: BatchHeader, what: str) -> CorruptBatch:
    return CorruptBatch(f"batch at offset {header.base_offset}: {what}")


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each complete batch; stops before a partial one at the end.

    Only lengths and magic are checked (a length below the minimum would never advance).
    """
    end = len(buffer)
    while end - position > MAGIC_POSITION:
        if buffer[position + MAGIC_POSITION] != MAGIC:
            raise UnsupportedMagic(buffer[position + MAGIC_POSITION], position)
        if end - position < HEADER_BYTES:
            return
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
        if header.batch_length < MIN_BATCH_LENGTH:
            raise CorruptBatch(
                f"batch at position {position}: length {header.batch_length} "
                f"is below {MIN_BATCH_LENGTH}"
            )
        following = position + LOG_OVERHEAD + header.batch_length
        if following > end:
            return
        yield position, header
        position = following


def compute_crc(batch: Buffer) -> int:
    """CRC-32C of one complete batch."""
    return crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])


def is_crc_valid(buffer: Buffer, position: int, size: int) -> bool:
    """Whether the batch of `size` bytes at `position` is complete and matches its CRC."""
    end = position + size
    if size < HEADER_BYTES or end > len(buffer):
        return False
    covered = memoryview(buffer)[position + ATTRIBUTES_POSITION : end]
    stored: int = _UINT32.unpack_from(buffer, position + CRC_POSITION)[0]
    return crc32c(covered) == stored


def stamp_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Stamp the batch's offset and leader epoch; both fields lie outside the CRC."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


def stamp_append_time(
    buffer: bytearray | memoryview, position: int, size: int, timestamp_ms: int
) -> None:
    """Make `timestamp_ms` the timestamp of every record; the CRC must have been checked before."""
    attributes: int = _INT16.unpack_from(buffer, position + ATTRIBUTES_POSITION)[0]
    _INT16.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes | APPEND_TIME)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, timestamp_ms)
    crc = compute_crc(memoryview(buffer)[position : position + size])
    _UINT32.pack_into(buffer, position + CRC_POSITION, crc)


def stamp_max_timestamp(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Correct the maximum timestamp of the batch that fills `batch`; check its CRC before."""
    _INT64.pack_into(batch, MAX_TIMESTAMP_POSITION, timestamp_ms)
    _UINT32.pack_into(batch, CRC_POSITION, compute_crc(batch))


def stamp_producer(
    buffer: bytearray | memoryview,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
) -> None:
    """Stamp the batch, which fills `buffer`, with this producer's id, epoch and sequence."""
    attributes: int = _INT16.unpack_from(buffer, ATTRIBUTES_POSITION)[0]
    if transactional:
        attributes |= TRANSACTIONAL
    _INT16.pack_into(buffer, ATTRIBUTES_POSITION, attributes)
    _PRODUCER.pack_into(buffer, PRODUCER_ID_POSITION, producer_id, producer_epoch, base_sequence)
    _UINT32.pack_into(buffer, CRC_POSITION, compute_crc(buffer))
