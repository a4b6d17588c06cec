"""Unsigned varints: all lengths, and the encodings that are refused."""

import pytest
from kio.serial.readers import read_unsigned_varint as read_by_kio

from penstock.protocol.malformed import MalformedMessage
from penstock.protocol.unsigned_varint import (
    MAX_UNSIGNED_VARINT,
    encode_unsigned_varint,
    read_unsigned_varint,
)

EDGES = [edge + step for bits in (7, 14, 21, 28, 32) for edge in [1 << bits] for step in (-1, 0)]


@pytest.mark.parametrize("value", [0, 1, *EDGES[:-1]])
def test_boundary_values_survive_a_round_trip(value: int) -> None:
    encoded = encode_unsigned_varint(value)
    assert read_unsigned_varint(b"x" + encoded + b"x", 1) == (value, 1 + len(encoded))
    assert read_by_kio(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize("value", [-1, MAX_UNSIGNED_VARINT + 1])
def test_values_out_of_range_are_not_encoded(value: int) -> None:
    with pytest.raises(ValueError, match=str(value)):
        encode_unsigned_varint(value)


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xff" * 4, b"\x80" * 5 + b"\0", b"\xff" * 10])
def test_a_varint_longer_than_five_bytes_is_malformed(encoded: bytes) -> None:
    with pytest.raises(MalformedMessage, match="does not end"):
        read_unsigned_varint(encoded, 0)


def test_a_varint_above_32_bits_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="above 32 bits"):
        read_unsigned_varint(b"\xff\xff\xff\xff\x10", 0)
