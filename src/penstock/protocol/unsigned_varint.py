"""Unsigned varints of flexible messages (KIP-482): at most 5 bytes, 32 bits.

Padding within the bound (0x80 0x00 for 0) is read, as Kafka does; what is written is shortest.
"""

from penstock.protocol.batch import Buffer
from penstock.protocol.malformed import MalformedMessage

MAX_UNSIGNED_VARINT = 2**32 - 1
_MAX_BYTES = 5


def encode_unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value] if value >= 0 else _refuse(value)
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
    value = shift = 0
    for byte in buffer[position : position + _MAX_BYTES]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value > MAX_UNSIGNED_VARINT:
                raise MalformedMessage(f"varint at position {position} is above 32 bits")
            return value, position + shift // 7
    raise MalformedMessage(f"varint at position {position} does not end within {_MAX_BYTES} bytes")


def _refuse(value: int) -> bytes:
    raise ValueError(f"{value} does not fit in an unsigned 32-bit varint")


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]
