"""Zigzag varints of records: at most 5 bytes for 32 bits, 10 bytes for 64.

Longer or out-of-range encodings are refused. Padding within the bound (0x80 0x00 for 0) is read, as
in Kafka; written varints are always shortest.
"""

from penstock.protocol.batch import Buffer, CorruptBatch

VARINT_BYTES = 5
VARLONG_BYTES = 10
MIN_INT32, MAX_INT32 = -(2**31), 2**31 - 1
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
_MAX_UINT32 = 2**32 - 1
_MAX_UINT64 = 2**64 - 1


def encode_varint(value: int) -> bytes:
    if not MIN_INT32 <= value <= MAX_INT32:
        raise ValueError(f"{value} does not fit in a 32-bit varint")
    return _encode_zigzag(value)


def encode_varlong(value: int) -> bytes:
    if not MIN_INT64 <= value <= MAX_INT64:
        raise ValueError(f"{value} does not fit in a 64-bit varint")
    return _encode_zigzag(value)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value at `position` and the position after it."""
    return _read_zigzag(buffer, position, VARINT_BYTES, _MAX_UINT32)


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value at `position` and the position after it."""
    return _read_zigzag(buffer, position, VARLONG_BYTES, _MAX_UINT64)


def _encode_zigzag(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    if rest < 0x80:
        return _ONE_BYTE[rest]
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _read_zigzag(
    buffer: Buffer, position: int, max_bytes: int, max_unsigned: int
) -> tuple[int, int]:
    unsigned = shift = 0
    for byte in buffer[position : position + max_bytes]:
        unsigned |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if unsigned > max_unsigned:
                raise CorruptBatch(f"varint at position {position} is out of range")
            return (unsigned >> 1) ^ -(unsigned & 1), position + shift // 7
    if shift == 7 * max_bytes:
        raise CorruptBatch(f"varint at position {position} is longer than {max_bytes} bytes")
    raise CorruptBatch(f"varint at position {position} is cut off after {shift // 7} bytes")


_ONE_BYTE = [bytes((unsigned,)) for unsigned in range(0x80)]
