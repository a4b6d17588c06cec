"""Unsigned varints of flexible messages (KIP-482): at most 5 bytes, 32 bits.

Padding within the bound (0x80 0x00 for 0) is read, as in Kafka; written varints are shortest.
"""

from typing import Final

from penstock.protocol.batch import Buffer
from penstock.protocol.malformed import MalformedMessage

MAX_UNSIGNED_VARINT: Final = 2**32 - 1
_MAX_BYTES: Final = 5
_LATER_BYTES: Final = tuple((index, 7 * index) for index in range(1, _MAX_BYTES))


def encode_unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value] if value >= 0 else _refuse(value)
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value > MAX_UNSIGNED_VARINT:
        return _refuse(value)
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value at `position` and the position after it."""
    try:
        value = buffer[position]
        if value < 0x80:  # the common case
            return value, position + 1
        value &= 0x7F
        for index, shift in _LATER_BYTES:
            byte = buffer[position + index]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return _check_range(value, position), position + index + 1
    except IndexError:
        pass  # as malformed as an unterminated one
    raise MalformedMessage(f"varint at position {position} does not end within {_MAX_BYTES} bytes")


def _check_range(value: int, position: int) -> int:
    if value > MAX_UNSIGNED_VARINT:
        raise MalformedMessage(f"varint at position {position} is above 32 bits")
    return value


def _refuse(value: int) -> bytes:
    raise ValueError(f"{value} does not fit in an unsigned 32-bit varint")


_ONE_BYTE: Final = [bytes((value,)) for value in range(0x80)]
