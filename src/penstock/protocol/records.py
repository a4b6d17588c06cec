"""Reads the records of a batch within bounds, and builds whole batches.

Does not check the CRC: `batch.is_crc_valid` does, once, where bytes enter. Invariant: bytes that
are not a batch raise CorruptBatch, and no length or count is trusted beyond the available bytes.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from penstock.protocol.batch import (
    APPEND_TIME,
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL,
    CRC_POSITION,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    MIN_RECORD_BYTES,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    CorruptBatch,
    check_header,
    compute_crc,
    read_header,
)
from penstock.protocol.compression import Codec, compress, decompress
from penstock.protocol.varint import (
    MAX_INT64,
    MIN_INT64,
    encode_varint,
    encode_varlong,
    read_varint,
    read_varlong,
)

_MIB = 1024 * 1024
_NO_TIMESTAMP = -1
# Header keys are UTF-8 by convention only; this preserves other bytes through a rewrite.
_HEADER_KEY_ERRORS = "surrogateescape"

RecordHeaders = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()


def iter_records(batch: Buffer, *, limit: int | None = None) -> Iterator[Record]:
    """The records of the batch at the start of `batch`; CorruptBatch where it becomes invalid.

    `limit` bounds the decompressed bytes; None is `default_limit`.
    """
    header = read_header(batch)
    data = _read_payload(header, batch, limit)
    new = tuple.__new__
    for offset, timestamp_ms, key, value_start, value_end, end in _walk(header, data):
        value = None if value_start < 0 else data[value_start:value_end]
        headers: RecordHeaders = ()
        if value_end + 1 != end or data[value_end]:
            headers = _read_headers(data, value_end, end)
        # Bypasses NamedTuple's constructor, which takes 0.25 of 1.8 microseconds per record.
        yield new(Record, (offset, timestamp_ms, key, value, headers))


def iter_keys(
    batch: Buffer, *, limit: int | None = None
) -> Iterator[tuple[int, bytes | None, bool, int]]:
    """(offset, key, has a value, timestamp) of each record; its headers are not read."""
    header = read_header(batch)
    data = _read_payload(header, batch, limit)
    for offset, timestamp_ms, key, value_start, _, _ in _walk(header, data):
        yield offset, key, value_start >= 0, timestamp_ms


def select_records(batch: Buffer, offsets: Sequence[int]) -> Iterator[Record]:
    """Those of the batch's records that have these offsets, which increase. Others are passed over
    by their lengths, where every offset of the batch has its record."""
    header = read_header(batch)
    if header.record_count != header.last_offset_delta + 1:
        wanted = frozenset(offsets)
        yield from (record for record in iter_records(batch) if record.offset in wanted)
        return
    data = _read_payload(header, batch, None)
    one = header._replace(record_count=1)
    index = position = 0
    for offset in offsets:
        position = _skip(header, data, position, offset - header.base_offset - index)
        end = _skip(header, data, position, 1)
        index, encoded = offset - header.base_offset + 1, data[position:end]
        for record_offset, timestamp_ms, key, start, value_end, _ in _walk(one, encoded):
            value = None if start < 0 else encoded[start:value_end]
            headers = _read_headers(encoded, value_end, len(encoded))
            yield Record(record_offset, timestamp_ms, key, value, headers)
        position = end


def _skip(header: BatchHeader, data: bytes, position: int, records: int) -> int:
    """The position after so many records."""
    size = len(data)
    try:
        for _ in repeat(None, records):
            unsigned = data[position]
            if unsigned < 0x80:
                position += 1 + (unsigned >> 1)
            elif (high := data[position + 1]) < 0x80:
                unsigned = unsigned & 0x7F | high << 7
                position += 2 + (unsigned >> 1)
            else:
                length, position = read_varint(data, position)
                if length < 0:
                    raise _corrupt(header, position, f"length {length} of a record")
                position += length
    except IndexError:
        raise _corrupt(header, position, "a record is cut off") from None
    if position > size:
        raise _corrupt(header, position, "length of a record leaves the batch")
    return position


def walk_records(
    batch: Buffer, *, limit: int | None = None
) -> tuple[bytes, Iterator[tuple[int, int, bytes | None, int, int, int]]]:
    """The batch's encoded records and, lazily, (offset, timestamp, key, value start or -1, value
    end, record end) of each. A record's bytes start where the previous one's end."""
    header = read_header(batch)
    data = _read_payload(header, batch, limit)
    return data, _walk(header, data)


def default_limit(compressed_bytes: int) -> int:
    """The limit of a compressed batch's content: 1,000 times its size, between 32 and 256 MiB.

    Snappy expands at most 22 times, lz4 255 and gzip 1,032 times; only zstd goes far beyond (30,000
    on zeros), and there the factor separates data from bombs. Repeated content may exceed it
    legitimately, so what a broker accepts by default (penstock.max.decompressed.bytes) can always
    be read. 256 MiB is more than twice the largest
    request frame, and bounds the memory that one batch costs the process.
    """
    return max(32 * _MIB, min(256 * _MIB, 1000 * compressed_bytes))


def _read_payload(header: BatchHeader, batch: Buffer, limit: int | None) -> bytes:
    check_header(header, len(batch))
    if not header.record_count:
        return b""
    payload = memoryview(batch)[HEADER_BYTES : header.size]
    if limit is None:
        # Uncompressed content is in memory already, so there is nothing to bound.
        limit = default_limit(len(payload)) if header.codec else len(payload)
    data = decompress(Codec(header.codec), payload, limit=limit)
    if header.record_count * MIN_RECORD_BYTES > len(data):
        raise CorruptBatch(
            f"batch at offset {header.base_offset}: {header.record_count} records "
            f"cannot fit in {len(data)} bytes"
        )
    return data


# One loop over locals, varints of one and two bytes decoded inline: calls would halve the
# speed of compaction and consumers. Every index past the end is an IndexError, translated once;
# slices are guarded, since Python shortens them silently.
def _walk(  # noqa: C901 - see above
    header: BatchHeader, data: bytes
) -> Iterator[tuple[int, int, bytes | None, int, int, int]]:
    """(offset, timestamp, key, value start or -1, value end, record end) of each record.

    Record headers lie between the last two, unchecked. Offsets increase and stay within the batch.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time_ms = header.max_timestamp if header.is_append_time else None
    last_delta = header.last_offset_delta
    previous_delta = -1
    data_end = len(data)
    position = 0
    try:
        for _ in repeat(None, header.record_count):
            # length of the record
            unsigned = data[position]
            if unsigned < 0x80:
                position += 1
            elif (high := data[position + 1]) < 0x80:
                unsigned = unsigned & 0x7F | high << 7
                position += 2
            else:
                length, position = read_varint(data, position)
                unsigned = length << 1 if length >= 0 else 1
            end = position + (unsigned >> 1)
            if unsigned & 1 or end > data_end:
                raise _corrupt(header, position, "length of a record leaves the batch")
            # attributes: one unused byte; then the timestamp delta
            position += 1
            unsigned = data[position]
            if unsigned < 0x80:
                timestamp_ms = base_timestamp + ((unsigned >> 1) ^ -(unsigned & 1))
                position += 1
            elif (high := data[position + 1]) < 0x80:
                unsigned = unsigned & 0x7F | high << 7
                timestamp_ms = base_timestamp + ((unsigned >> 1) ^ -(unsigned & 1))
                position += 2
            else:
                delta, position = read_varlong(data, position)
                timestamp_ms = base_timestamp + delta
            if append_time_ms is not None:
                timestamp_ms = append_time_ms
            elif not MIN_INT64 <= timestamp_ms <= MAX_INT64:
                timestamp_ms = _wrap_int64(timestamp_ms)
            # offset delta
            unsigned = data[position]
            if unsigned < 0x80:
                delta = (unsigned >> 1) ^ -(unsigned & 1)
                position += 1
            elif (high := data[position + 1]) < 0x80:
                unsigned = unsigned & 0x7F | high << 7
                delta = (unsigned >> 1) ^ -(unsigned & 1)
                position += 2
            else:
                delta, position = read_varint(data, position)
            if not previous_delta < delta <= last_delta:
                raise _corrupt(header, position, f"offset delta {delta} after {previous_delta}")
            previous_delta = delta
            # key
            unsigned = data[position]
            if unsigned < 0x80:
                length = (unsigned >> 1) ^ -(unsigned & 1)
                position += 1
            else:
                length, position = read_varint(data, position)
            key = None
            if length >= 0:
                key = data[position : position + length]
                position += length
            elif length < -1:
                raise _corrupt(header, position, f"key length {length}")
            # value: if the key exceeded the record, the rest is beyond `end` too
            unsigned = data[position]
            if unsigned < 0x80:
                length = (unsigned >> 1) ^ -(unsigned & 1)
                position += 1
            elif (high := data[position + 1]) < 0x80:
                unsigned = unsigned & 0x7F | high << 7
                length = (unsigned >> 1) ^ -(unsigned & 1)
                position += 2
            else:
                length, position = read_varint(data, position)
            value_start = position
            if length >= 0:
                position += length
            elif length == -1:
                value_start = -1
            else:
                raise _corrupt(header, position, f"value length {length}")
            if position >= end:  # at least the count of headers must follow
                raise _corrupt(header, position, "fields of a record pass its end")
            yield base_offset + delta, timestamp_ms, key, value_start, position, end
            position = end
    except IndexError:
        raise _corrupt(header, position, "a record is cut off") from None
    if position != data_end:
        raise _corrupt(header, position, f"{data_end - position} bytes follow the last record")


def _wrap_int64(value: int) -> int:
    """Timestamps and their deltas overflow as in Kafka, so every record read can be rewritten."""
    return ((value + 2**63) & (2**64 - 1)) - 2**63


def _corrupt(header: BatchHeader, position: int, what: str) -> CorruptBatch:
    return CorruptBatch(
        f"batch at offset {header.base_offset}: {what} (byte {position} of its records)"
    )


def _read_headers(data: bytes, position: int, end: int) -> RecordHeaders:
    count, position = read_varint(data, position)
    if not 0 <= count <= (end - position) // 2:
        raise CorruptBatch(f"{count} record headers in {max(0, end - position)} bytes")
    headers = []
    for _ in repeat(None, count):
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        if key is None:
            raise CorruptBatch(f"record header without a key before byte {position}")
        headers.append((key.decode("utf-8", _HEADER_KEY_ERRORS), value))
    if position != end:
        raise CorruptBatch(f"record headers end at byte {position}, the record at {end}")
    return tuple(headers)


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptBatch(f"length {length} of a record header at byte {position}")
    return data[position : position + length], position + length


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    append_time_ms: int | None = None,
    max_timestamp_ms: int | None = None,
    last_offset_delta: int | None = None,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytearray:
    """A whole batch with its CRC. Offsets of `records` are absolute, increase and may have gaps.

    For compaction `base_offset` and `last_offset_delta` keep the range that the producer wrote.
    A delete horizon takes the field of the base timestamp, and deltas count from it (KIP-534). With
    no records left, the batch is a bare header, uncompressed and without a horizon, and
    `max_timestamp_ms` carries its former time.
    """
    last_delta = _last_delta(records, base_offset, last_offset_delta)
    if not records:
        codec, delete_horizon_ms = Codec.NONE, None
    base_timestamp = _base_timestamp(records, delete_horizon_ms)
    payload: Buffer = _encode_records(records, base_offset, base_timestamp)
    if codec != Codec.NONE:
        payload = compress(codec, payload, level)
    attributes = (
        codec
        | (0 if append_time_ms is None else APPEND_TIME)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (0 if delete_horizon_ms is None else DELETE_HORIZON)
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_BYTES - LOG_OVERHEAD + len(payload),
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=_max_timestamp(records, append_time_ms, max_timestamp_ms),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return _seal(header, payload)


def replace_records(
    header: BatchHeader, encoded: Buffer, *, record_count: int, max_timestamp_ms: int
) -> bytearray:
    """The batch with only these of its records, given as bytes by `walk_records`; the offset range,
    the base timestamp and all other fields stay. Without records it is a bare header."""
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if not record_count:
        attributes &= ~(CODEC_MASK | DELETE_HORIZON)
        base_timestamp = _NO_TIMESTAMP
    elif header.codec:
        encoded = compress(Codec(header.codec), encoded, None)
    changed = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD + len(encoded),
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp_ms,
        record_count=record_count,
    )
    return _seal(changed, encoded)


def change_codec(header: BatchHeader, encoded: Buffer, codec: Codec) -> bytearray:
    """The batch with its records, given as bytes by `walk_records`, under another codec."""
    payload = encoded if codec == Codec.NONE else compress(codec, encoded, None)
    changed = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD + len(payload),
        attributes=header.attributes & ~CODEC_MASK | codec,
    )
    return _seal(changed, payload)


def _seal(header: BatchHeader, payload: Buffer) -> bytearray:
    batch = bytearray(HEADER.pack(*header))
    batch += payload
    batch[CRC_POSITION:ATTRIBUTES_POSITION] = compute_crc(batch).to_bytes(4, "big")
    return batch


def _last_delta(records: Sequence[Record], base_offset: int, wanted: int | None) -> int:
    used = records[-1].offset - base_offset if records else 0
    if wanted is None:
        if not records:
            raise ValueError(
                "a batch without records needs last_offset_delta: its range of offsets"
            )
        return used
    if wanted < used:
        raise ValueError(f"last_offset_delta {wanted} is below that of the last record, {used}")
    return wanted


def _base_timestamp(records: Sequence[Record], delete_horizon_ms: int | None) -> int:
    if delete_horizon_ms is not None:
        return delete_horizon_ms
    return records[0].timestamp_ms if records else _NO_TIMESTAMP


def _max_timestamp(
    records: Sequence[Record], append_time_ms: int | None, max_timestamp_ms: int | None
) -> int:
    if append_time_ms is not None:
        return append_time_ms
    if max_timestamp_ms is not None:
        return max_timestamp_ms
    return max((record.timestamp_ms for record in records), default=_NO_TIMESTAMP)


def _encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytearray:
    encoded = bytearray()
    previous_delta = -1
    for offset, timestamp_ms, key, value, headers in records:
        delta = offset - base_offset
        if delta <= previous_delta:
            raise ValueError(
                f"record at offset {offset} does not follow {base_offset + previous_delta} "
                f"in the batch at {base_offset}; sort records by offset"
            )
        previous_delta = delta
        fields = [
            b"\x00",
            encode_varlong(_wrap_int64(timestamp_ms - base_timestamp)),
            encode_varint(delta),
            b"\x01" if key is None else encode_varint(len(key)) + key,
            b"\x01" if value is None else encode_varint(len(value)) + value,
            _encode_headers(headers) if headers else b"\x00",
        ]
        body = b"".join(fields)
        encoded += encode_varint(len(body))
        encoded += body
    return encoded


def _encode_headers(headers: RecordHeaders) -> bytes:
    fields = [encode_varint(len(headers))]
    for key, value in headers:
        encoded_key = key.encode("utf-8", _HEADER_KEY_ERRORS)
        fields += (encode_varint(len(encoded_key)), encoded_key)
        fields.append(b"\x01" if value is None else encode_varint(len(value)) + value)
    return b"".join(fields)
