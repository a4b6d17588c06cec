"""Walks the framing of all records of a batch: lengths, deltas, keys, values and record headers.

Compiled by mypyc when the package is built, and the same source runs uncompiled: `i64` occurs in
annotations alone, so nothing is imported for it. Not the batch's own header, no decompression, and
no record is built. Invariants: both builds return the same for every input; no sum or shift leaves
64 bits; no byte outside of `data` is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

# Flaws of the framing: the batch cannot be read from this record on.
SOUND: Final = 0
CUT_OFF: Final = 1  # the bytes end before the record does
BAD_VARINT: Final = 2  # longer than its type, or with bits beyond it
BAD_LENGTH: Final = 3  # of the record: negative, or beyond the batch
BAD_OFFSET_DELTA: Final = 4  # not the record's index
BAD_KEY: Final = 5  # a length below -1
BAD_VALUE: Final = 6  # a length below -1
BAD_HEADER_COUNT: Final = 7  # negative, or more than the record has bytes for
BAD_HEADER_KEY: Final = 8  # null, or a length below -1
BAD_HEADER_VALUE: Final = 9  # a length below -1
BAD_END: Final = 10  # the fields do not end where the record does
TRAILING_BYTES: Final = 11  # bytes follow the last record

# Faults of a single record whose framing is sound.
NO_KEY: Final = 1
BAD_TIMESTAMP: Final = 2

MAX_FAULTS: Final = 1000  # listed; a batch may hold a million records
NO_DELTA: Final = -(2**63)  # the greatest timestamp delta of no records

_VARINT: Final = 5  # bytes that 32 bits take; 4 bits are in the last one
_VARLONG: Final = 10  # bytes that 64 bits take; 1 bit is in the last one


# Calls would double the time of either build, so usual varints are decoded inline: positive ones
# of one byte, of two where they are common (a length from 64 on), and the length of a null key. An
# index past the end is an IndexError in both. A field that passes the end of its record, but not of
# the batch, shows when the record ends.
def walk_records(  # noqa: C901 - see above
    data: bytes,
    count: i64,
    least_delta: i64,
    greatest_delta: i64,
    absent_delta: i64,
    needs_keys: bool,
    faults: list[tuple[int, int]],
) -> tuple[i64, i64, i64]:
    """(flaw, index of the record that has it, greatest timestamp delta) of uncompressed records.

    Timestamp deltas lie between the two bounds or equal `absent_delta`. A flaw ends the walk;
    faults of single records are appended to `faults` as (index, fault), up to MAX_FAULTS.
    """
    size: i64 = len(data)
    position: i64 = 0
    latest: i64 = NO_DELTA
    index: i64 = 0
    try:
        while index < count:
            number: i64 = data[position]
            position += 1
            if number & 0x81:
                if number & 1 or data[position] >= 0x80:
                    number, position = _read(data, position - 1, _VARINT)
                    if position < 0 or number < 0:
                        return (BAD_VARINT if position < 0 else BAD_LENGTH), index, latest
                else:
                    number = (number & 0x7F) >> 1 | data[position] << 6
                    position += 1
            else:
                number >>= 1
            end: i64 = position + number
            if end > size:
                return BAD_LENGTH, index, latest
            # One byte of attributes, which Kafka ignores, precedes the deltas.
            number = data[position + 1]
            position += 2
            if number & 0x81:
                if number & 1 or data[position] >= 0x80:
                    number, position = _read(data, position - 1, _VARLONG)
                    if position < 0:
                        return BAD_VARINT, index, latest
                else:
                    number = (number & 0x7F) >> 1 | data[position] << 6
                    position += 1
            else:
                number >>= 1
            if number > latest:
                latest = number
            if (number < least_delta or number > greatest_delta) and number != absent_delta:
                _note(faults, index, BAD_TIMESTAMP)
            number = data[position]
            position += 1
            if number & 0x81:
                if number & 1 or data[position] >= 0x80:
                    number, position = _read(data, position - 1, _VARINT)
                else:
                    number = (number & 0x7F) >> 1 | data[position] << 6
                    position += 1
            else:
                number >>= 1
            if number != index or position < 0:
                return (BAD_VARINT if position < 0 else BAD_OFFSET_DELTA), index, latest
            # key
            number = data[position]
            position += 1
            if number == 1:
                number = -1
            elif number & 0x81:
                number, position = _read(data, position - 1, _VARINT)
                if position < 0 or number < -1:
                    return (BAD_VARINT if position < 0 else BAD_KEY), index, latest
            else:
                number >>= 1
            if number > 0:
                position += number
            elif number < 0 and needs_keys:
                _note(faults, index, NO_KEY)
            # value
            number = data[position]
            position += 1
            if number & 0x81:
                if number & 1 or data[position] >= 0x80:
                    number, position = _read(data, position - 1, _VARINT)
                    if position < 0 or number < -1:
                        return (BAD_VARINT if position < 0 else BAD_VALUE), index, latest
                    if number < 0:
                        number = 0
                else:
                    number = (number & 0x7F) >> 1 | data[position] << 6
                    position += 1
            else:
                number >>= 1
            position += number
            # headers: nearly always none
            if data[position] == 0:
                position += 1
            else:
                position = _walk_headers(data, position, end)
                if position < 0:
                    return -position, index, latest
            if position != end:
                return BAD_END, index, latest
            index += 1
    except IndexError:
        return CUT_OFF, index, latest
    return (SOUND if position == size else TRAILING_BYTES), count, latest


def _walk_headers(data: bytes, position: i64, end: i64) -> i64:
    """The position after the record's headers, or the negative flaw."""
    headers, position = _read(data, position, _VARINT)
    if position < 0:
        return -BAD_VARINT
    if headers < 0 or headers > end - position:
        return -BAD_HEADER_COUNT
    while headers > 0:
        length, position = _read(data, position, _VARINT)
        if position < 0:
            return -BAD_VARINT
        if length < 0:
            return -BAD_HEADER_KEY
        length, position = _read(data, position + length, _VARINT)
        if position < 0:
            return -BAD_VARINT
        if length < -1:
            return -BAD_HEADER_VALUE
        if length > 0:
            position += length
        headers -= 1
    return position


def _read(data: bytes, position: i64, longest: i64) -> tuple[i64, i64]:
    """The zigzag varint at `position` and the position after it, or -1 if it exceeds its type.

    The sign bit is kept apart from the first byte on, so that the rest always fits in 63 bits.
    """
    byte: i64 = data[position]
    is_negative: i64 = byte & 1
    magnitude: i64 = (byte & 0x7F) >> 1
    shift: i64 = 6
    length: i64 = 1
    while byte >= 0x80:
        byte = data[position + length]
        length += 1
        if length == longest and byte > (0x0F if longest == _VARINT else 0x01):
            return 0, -1
        magnitude |= (byte & 0x7F) << shift
        shift += 7
    return (~magnitude if is_negative else magnitude), position + length


def _note(faults: list[tuple[int, int]], index: i64, fault: i64) -> None:
    if len(faults) < MAX_FAULTS:
        faults.append((index, fault))
