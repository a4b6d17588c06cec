"""Numba kernels that encode columns as records, and hash keys like Kafka's producers.

No Arrow and no Python objects. Invariant: a record is measured before it is written, and nothing is
written beyond `out`. `byte_columns` has checked the input.

Helpers come first, because a kernel is compiled where it is defined.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.spark.codec.compiling import compiled, copy_bytes, inlined

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

_COLUMN = "Array(uint8, 1, 'C', True), int64[::1], int64[::1]"  # data, starts, lengths

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_UINT32 = 0xFFFFFFFF


@inlined
def _zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63)


@inlined
def _varint_size(value: int) -> int:
    """The size of a zigzag varint, up to ten bytes."""
    rest = _zigzag(value)
    if rest < 0:  # all 64 bits are used
        return 10
    size = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


@inlined
def _write_varint(out: Bytes, position: int, value: int) -> int:
    rest = _zigzag(value)
    while rest < 0 or rest >= 0x80:
        out[position] = np.uint8(rest & 0x7F | 0x80)
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
        position += 1
    out[position] = np.uint8(rest)
    return position + 1


@inlined
def _field_size(length: int) -> int:
    return _varint_size(length) + max(length, 0)


@inlined
def _write_field(out: Bytes, position: int, data: Bytes, start: int, length: int) -> int:
    position = _write_varint(out, position, length)
    if length > 0:
        copy_bytes(out, position, data, start, length)
        position += length
    return position


@inlined
def _headers_size(first: int, count: int, key_lengths: Int64s, value_lengths: Int64s) -> int:
    size = _varint_size(count)
    for header in range(first, first + count):
        size += _field_size(key_lengths[header]) + _field_size(value_lengths[header])
    return size


@inlined
def _mix(word: int) -> int:
    word = (word * _MULTIPLIER) & _UINT32
    word ^= word >> 24
    return (word * _MULTIPLIER) & _UINT32


@inlined
def _murmur2(data: Bytes, start: int, length: int) -> int:
    """32-bit MurmurHash2 with the seed of Kafka's producers."""
    hashed: Any = _SEED ^ length
    words_end = start + (length & ~3)
    for at in range(start, words_end, 4):
        word: Any = (
            np.int64(data[at])
            | np.int64(data[at + 1]) << 8
            | np.int64(data[at + 2]) << 16
            | np.int64(data[at + 3]) << 24
        )
        hashed = ((hashed * _MULTIPLIER) & _UINT32) ^ _mix(word)
    left = length & 3
    if left == 3:
        hashed ^= np.int64(data[words_end + 2]) << 16
    if left >= 2:
        hashed ^= np.int64(data[words_end + 1]) << 8
    if left >= 1:
        hashed = ((hashed ^ np.int64(data[words_end])) * _MULTIPLIER) & _UINT32
    hashed ^= hashed >> 13
    hashed = (hashed * _MULTIPLIER) & _UINT32
    mixed: int = hashed ^ (hashed >> 15)
    return mixed


@compiled(
    f"UniTuple(int64, 2)(int64[::1], int64, int64, int64, {_COLUMN}, {_COLUMN}, int64[::1], "
    f"int64[::1], {_COLUMN}, {_COLUMN}, uint8[::1], int64)"
)
def encode_rows(
    order: Int64s,
    first: int,
    next_delta: int,
    timestamp_delta: int,
    keys: Bytes,
    key_starts: Int64s,
    key_lengths: Int64s,
    values: Bytes,
    value_starts: Int64s,
    value_lengths: Int64s,
    header_starts: Int64s,
    header_counts: Int64s,
    header_keys: Bytes,
    header_key_starts: Int64s,
    header_key_lengths: Int64s,
    header_values: Bytes,
    header_value_starts: Int64s,
    header_value_lengths: Int64s,
    out: Bytes,
    used: int,
) -> tuple[int, int]:
    """Write rows order[first:] as records while they fit: (rows written, bytes of `out` used)."""
    index = first
    while index < order.size:
        row = order[index]
        first_header, header_count = header_starts[row], header_counts[row]
        delta = next_delta + index - first
        size = (
            1
            + _varint_size(timestamp_delta)
            + _varint_size(delta)
            + _field_size(key_lengths[row])
            + _field_size(value_lengths[row])
            + _headers_size(first_header, header_count, header_key_lengths, header_value_lengths)
        )
        if _varint_size(size) + size > out.size - used:
            break
        used = _write_varint(out, used, size)
        out[used] = 0  # attributes
        used = _write_varint(out, used + 1, timestamp_delta)
        used = _write_varint(out, used, delta)
        used = _write_field(out, used, keys, key_starts[row], key_lengths[row])
        used = _write_field(out, used, values, value_starts[row], value_lengths[row])
        used = _write_varint(out, used, header_count)
        for header in range(first_header, first_header + header_count):
            used = _write_field(
                out, used, header_keys, header_key_starts[header], header_key_lengths[header]
            )
            used = _write_field(
                out, used, header_values, header_value_starts[header], header_value_lengths[header]
            )
        index += 1
    return index - first, used


@compiled(f"void({_COLUMN}, int64, int32[::1])")
def partition_keys(
    data: Bytes, starts: Int64s, lengths: Int64s, partitions: int, chosen: Int32s
) -> None:
    """The partition of each row with a key; -1 for null."""
    for row in range(starts.size):
        if lengths[row] < 0:
            chosen[row] = -1
        else:
            hashed = _murmur2(data, starts[row], lengths[row]) & 0x7FFFFFFF
            chosen[row] = hashed % partitions
