"""Numba kernels that decode the records of batches to columns.

No Arrow and no Python objects. Invariant: whatever the bytes are, nothing outside a batch is read
and nothing beyond an array is written. Numba checks no index, so every length is compared with the
remaining bytes before it is used. Accepts exactly what
`penstock.protocol.records.iter_records` accepts.

Helpers come first, because a kernel is compiled where it is defined.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.spark.codec.compiling import compiled, copy_bytes, inlined

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

# Columns of `batches`, one row per batch: the bounds of its records, and fields of its header.
START, END, BASE_OFFSET, TIMESTAMP, LAST_DELTA, COUNT = range(6)
# `cursor`: where to continue after a full chunk.
BATCH, POSITION, RECORD, PREVIOUS_DELTA = range(4)
# `totals` of a chunk.
(
    KEY_BYTES,
    VALUE_BYTES,
    NULL_KEYS,
    NULL_VALUES,
    HEADERS,
    HEADER_KEY_BYTES,
    HEADER_VALUE_BYTES,
    WITHOUT_HEADERS,
) = range(8)

_CORRUPT = -1
_MAX_UINT32 = 0xFFFFFFFF
_MAX_INT64 = 0x7FFFFFFFFFFFFFFF
_MAX_MS = _MAX_INT64 // 1000  # later times overflow 64 bits of microseconds

_DATA = "Array(uint8, 1, 'C', True)"  # read-only, like everything from a fetch
_BINARY = "int32[::1], uint8[::1], uint8[::1]"  # ends, bytes, validity


@inlined
def _read_varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """The value and the position after it; -1: no valid 32-bit varint."""
    unsigned = shift = 0
    limit = min(end, position + 5)
    while position < limit:
        byte: Any = np.int64(data[position])
        position += 1
        unsigned |= (byte & 0x7F) << shift
        if byte < 0x80:
            if unsigned > _MAX_UINT32:
                return 0, _CORRUPT
            return (unsigned >> 1) ^ -(unsigned & 1), position
        shift += 7
    return 0, _CORRUPT


@inlined
def _read_varlong(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """Like `_read_varint`, with 64 bits, of which the tenth byte holds one."""
    unsigned = shift = 0
    limit = min(end, position + 10)
    while position < limit:
        byte: Any = np.int64(data[position])
        position += 1
        unsigned |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                return 0, _CORRUPT
            return ((unsigned >> 1) & _MAX_INT64) ^ -(unsigned & 1), position
        shift += 7
    return 0, _CORRUPT


@inlined
def _read_record(
    data: Bytes, position: int, batch_end: int
) -> tuple[int, int, int, int, int, int, int]:
    """(timestamp delta, offset delta, key start, key length, value start, value length, end). Null
    has length -1. The end is -1 if the record is corrupt; headers are not checked."""
    length, position = _read_varint(data, position, batch_end)
    if position < 0 or length < 0 or length > batch_end - position:
        return 0, 0, 0, 0, 0, 0, _CORRUPT
    end = position + length
    # The first byte is unused attributes.
    timestamp_delta, position = _read_varlong(data, position + 1, end)
    if position < 0:
        return 0, 0, 0, 0, 0, 0, _CORRUPT
    delta, position = _read_varint(data, position, end)
    if position < 0:
        return 0, 0, 0, 0, 0, 0, _CORRUPT
    key_length, key_start = _read_varint(data, position, end)
    if key_start < 0 or key_length < -1 or key_length > end - key_start:
        return 0, 0, 0, 0, 0, 0, _CORRUPT
    position = key_start + max(key_length, 0)
    value_length, value_start = _read_varint(data, position, end)
    # At least one byte, the header count, must follow the value.
    if value_start < 0 or value_length < -1 or max(value_length, 0) >= end - value_start:
        return 0, 0, 0, 0, 0, 0, _CORRUPT
    return timestamp_delta, delta, key_start, key_length, value_start, value_length, end


@inlined
def _measure_headers(data: Bytes, position: int, end: int) -> tuple[int, int, int]:
    """(count, bytes of keys, bytes of values); the count is -1 if the headers are corrupt."""
    count, position = _read_varint(data, position, end)
    if position < 0 or count < 0 or count > (end - position) // 2:
        return _CORRUPT, 0, 0
    key_bytes = value_bytes = 0
    for _ in range(count):
        length, position = _read_varint(data, position, end)
        if position < 0 or length < 0 or length > end - position:
            return _CORRUPT, 0, 0
        key_bytes += length
        length, position = _read_varint(data, position + length, end)
        if position < 0 or length < -1 or length > end - position:
            return _CORRUPT, 0, 0
        value_bytes += max(length, 0)
        position += max(length, 0)
    if position != end:
        return _CORRUPT, 0, 0
    return count, key_bytes, value_bytes


@inlined
def _microseconds(time_ms: int) -> int:
    if time_ms > _MAX_MS:
        return _MAX_INT64
    if time_ms < -_MAX_MS:
        return -_MAX_INT64 - 1
    return time_ms * 1000


@inlined
def _mark_null(valid: Bytes, index: int) -> None:
    valid[index >> 3] &= np.uint8(0xFF ^ (1 << (index & 7)))


@compiled(
    f"int64({_DATA}, int64[:, ::1], int64[::1], boolean, int64, int64, int64[::1], int64[::1], "
    f"boolean, {_BINARY}, boolean, {_BINARY}, int32[::1], int64[::1], uint8[::1], int64[::1])"
)
def decode_rows(  # noqa: C901 - one loop over local names
    data: Bytes,
    batches: Int64s,
    cursor: Int64s,
    is_append_time: bool,
    start_offset: int,
    end_offset: int,
    offsets: Int64s,
    timestamps: Int64s,
    wants_keys: bool,
    key_ends: Int32s,
    keys: Bytes,
    key_valid: Bytes,
    wants_values: bool,
    value_ends: Int32s,
    values: Bytes,
    value_valid: Bytes,
    header_ends: Int32s,
    header_positions: Int64s,
    header_valid: Bytes,
    totals: Int64s,
) -> int:
    """Fill the columns from `cursor` on. Returns the number of rows, or -1 - i if batch i is
    corrupt.

    Rows outside the requested offsets are checked and omitted. `keys` and `values` must be as large
    as the batches' bytes, `*_ends` one entry longer than `offsets`, which bounds the rows; validity
    arrays must be filled with ones.
    """
    capacity = offsets.size
    wants_headers = header_positions.size > 0
    batch: int = cursor[BATCH]
    position: int = cursor[POSITION]
    record: int = cursor[RECORD]
    previous_delta: int = cursor[PREVIOUS_DELTA]
    row = key_bytes = value_bytes = null_keys = null_values = 0
    headers = header_key_bytes = header_value_bytes = without_headers = 0
    key_ends[0] = value_ends[0] = header_ends[0] = 0
    while batch < batches.shape[0]:
        batch_end = batches[batch, END]
        base_offset, batch_timestamp = batches[batch, BASE_OFFSET], batches[batch, TIMESTAMP]
        last_delta, count = batches[batch, LAST_DELTA], batches[batch, COUNT]
        while record < count and row < capacity:
            timestamp_delta, delta, key_start, key_length, value_start, value_length, end = (
                _read_record(data, position, batch_end)
            )
            if end < 0 or delta <= previous_delta or delta > last_delta:
                return -1 - batch
            position = value_start + max(value_length, 0)
            header_count = measured_keys = measured_values = 0
            if position + 1 != end or data[position]:
                header_count, measured_keys, measured_values = _measure_headers(data, position, end)
                if header_count < 0:
                    return -1 - batch
            record += 1
            previous_delta = delta
            offset = base_offset + delta
            if start_offset <= offset < end_offset:
                offsets[row] = offset
                time_ms = batch_timestamp if is_append_time else batch_timestamp + timestamp_delta
                timestamps[row] = _microseconds(time_ms)
                if wants_keys:
                    if key_length >= 0:
                        copy_bytes(keys, key_bytes, data, key_start, key_length)
                        key_bytes += key_length
                    else:
                        _mark_null(key_valid, row)
                        null_keys += 1
                    key_ends[row + 1] = key_bytes
                if wants_values:
                    if value_length >= 0:
                        copy_bytes(values, value_bytes, data, value_start, value_length)
                        value_bytes += value_length
                    else:
                        _mark_null(value_valid, row)
                        null_values += 1
                    value_ends[row + 1] = value_bytes
                if wants_headers:
                    header_positions[row] = position
                    if not header_count:
                        _mark_null(header_valid, row)
                        without_headers += 1
                    headers += header_count
                    header_key_bytes += measured_keys
                    header_value_bytes += measured_values
                    header_ends[row + 1] = headers
                row += 1
            position = end
        if record < count:
            break
        if position != batch_end:
            return -1 - batch
        batch += 1
        record, previous_delta = 0, -1
        if batch < batches.shape[0]:
            position = batches[batch, START]
    cursor[BATCH], cursor[POSITION] = batch, position
    cursor[RECORD], cursor[PREVIOUS_DELTA] = record, previous_delta
    totals[KEY_BYTES], totals[VALUE_BYTES] = key_bytes, value_bytes
    totals[NULL_KEYS], totals[NULL_VALUES] = null_keys, null_values
    totals[HEADERS], totals[WITHOUT_HEADERS] = headers, without_headers
    totals[HEADER_KEY_BYTES] = header_key_bytes
    totals[HEADER_VALUE_BYTES] = header_value_bytes
    return row


@compiled(f"int64({_DATA}, int64, int32[::1], int64[::1], int32[::1], uint8[::1], {_BINARY})")
def copy_headers(
    data: Bytes,
    rows: int,
    header_ends: Int32s,
    positions: Int64s,
    key_ends: Int32s,
    keys: Bytes,
    value_ends: Int32s,
    values: Bytes,
    value_valid: Bytes,
) -> int:
    """Copy the headers of rows that `decode_rows` has checked and measured into arrays of exactly
    their size. Returns the number of null values."""
    header = key_bytes = value_bytes = nulls = 0
    key_ends[0] = value_ends[0] = 0
    for row in range(rows):
        count = header_ends[row + 1] - header_ends[row]
        if not count:
            continue
        position = _read_varint(data, positions[row], data.size)[1]
        for _ in range(count):
            length, position = _read_varint(data, position, data.size)
            copy_bytes(keys, key_bytes, data, position, length)
            key_bytes += length
            length, position = _read_varint(data, position + length, data.size)
            if length >= 0:
                copy_bytes(values, value_bytes, data, position, length)
                value_bytes += length
                position += length
            else:
                _mark_null(value_valid, header)
                nulls += 1
            header += 1
            key_ends[header] = key_bytes
            value_ends[header] = value_bytes
    return nulls
