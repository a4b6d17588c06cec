"""Varints: the published examples, the bounds, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.batch import CorruptBatch
from penstock.protocol.varint import encode_varint, encode_varlong, read_varint, read_varlong

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (-1, b"\x01"),
        (1, b"\x02"),
        (63, b"\x7e"),
        (-64, b"\x7f"),
        (64, b"\x80\x01"),
        (-65, b"\x81\x01"),
        (8191, b"\xfe\x7f"),
        (2**31 - 1, b"\xfe\xff\xff\xff\x0f"),
        (-(2**31), b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_zigzag_encodes_small_numbers_of_either_sign_in_few_bytes(
    value: int, encoded: bytes
) -> None:
    assert encode_varint(value) == encode_varlong(value) == encoded
    assert read_varint(encoded, 0) == read_varlong(encoded, 0) == (value, len(encoded))


def test_the_extremes_of_64_bits_take_ten_bytes() -> None:
    assert encode_varlong(2**63 - 1) == b"\xfe" + b"\xff" * 8 + b"\x01"
    assert encode_varlong(-(2**63)) == b"\xff" * 9 + b"\x01"


@given(INT32, st.binary(max_size=3), st.binary(max_size=3))
def test_varints_survive_a_round_trip_at_any_position(
    value: int, before: bytes, after: bytes
) -> None:
    encoded = encode_varint(value)
    buffer = before + encoded + after
    assert read_varint(buffer, len(before)) == (value, len(before) + len(encoded))


@given(INT64)
def test_varlongs_survive_a_round_trip(value: int) -> None:
    encoded = encode_varlong(value)
    assert read_varlong(memoryview(encoded), 0) == (value, len(encoded))


@given(INT64)
def test_a_truncated_varlong_is_corrupt(value: int) -> None:
    encoded = encode_varlong(value)
    for cut in range(len(encoded)):
        with pytest.raises(CorruptBatch, match="cut off"):
            read_varlong(encoded[:cut], 0)


def test_overlong_encodings_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="longer than 5 bytes"):
        read_varint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(CorruptBatch, match="longer than 10 bytes"):
        read_varlong(b"\x80" * 10 + b"\x00", 0)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="out of range"):
        read_varint(b"\xff\xff\xff\xff\x10", 0)
    with pytest.raises(CorruptBatch, match="out of range"):
        read_varlong(b"\xff" * 9 + b"\x02", 0)


def test_padding_within_the_limit_is_read_as_by_kafka() -> None:
    assert read_varint(b"\x82\x80\x80\x80\x00", 0) == (1, 5)


def test_numbers_out_of_range_are_not_encoded() -> None:
    with pytest.raises(ValueError, match="32-bit"):
        encode_varint(2**31)
    with pytest.raises(ValueError, match="64-bit"):
        encode_varlong(-(2**63) - 1)
