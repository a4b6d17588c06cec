"""Fields of coordinators' records: Kafka's plain and flexible encodings, and what is malformed."""

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.coordinator_values import MalformedRecord, ValueReader, ValueWriter


def written(write: Callable[[ValueWriter], None], *, flexible: bool) -> str:
    writer = ValueWriter(flexible=flexible)
    write(writer)
    return writer.done().hex()


def reader(text: str, *, flexible: bool = False) -> ValueReader:
    return ValueReader(bytes.fromhex(text), flexible=flexible)


def test_numbers_are_signed_big_endian_in_both_encodings() -> None:
    def write(writer: ValueWriter) -> None:
        writer.int8(-2)
        writer.int16(258)
        writer.int32(-1)
        writer.int64(2**40)
        writer.uuid(UUID(int=5))

    expected = "fe0102ffffffff0000010000000000" + "00" * 15 + "05"
    for flexible in (False, True):
        assert written(write, flexible=flexible) == expected
        read = reader(expected, flexible=flexible)
        assert (read.int8(), read.int16(), read.int32(), read.int64()) == (-2, 258, -1, 2**40)
        assert read.uuid() == UUID(int=5)
        read.end()


@pytest.mark.parametrize(
    ("flexible", "expected"),
    [
        (False, "0002c3a9ffff00000000000201ff0000000200010002"),
        (True, "03c3a900010301ff0300010002"),
    ],
)
def test_lengths_are_plain_or_a_varint_of_one_more(flexible: bool, expected: str) -> None:
    def write(writer: ValueWriter) -> None:
        writer.string("é")
        writer.string(None)
        writer.string("")
        writer.data(b"\x01\xff")
        writer.array([1, 2], ValueWriter.int16)

    assert written(write, flexible=flexible) == expected
    read = reader(expected, flexible=flexible)
    assert [read.nullable_string() for _ in range(3)] == ["é", None, ""]
    assert read.data() == b"\x01\xff"
    assert read.array(ValueReader.int16) == [1, 2]
    read.end()


def test_tagged_fields_end_a_flexible_structure_only() -> None:
    def write(writer: ValueWriter) -> None:
        writer.tags((0, b"\xaa"), (200, b""))

    assert written(write, flexible=False) == ""
    assert written(write, flexible=True) == "020001aac80100"
    assert reader("", flexible=False).tags() == {}
    tagged = reader("020001aac80100", flexible=True).tags()
    assert {tag: bytes(data) for tag, data in tagged.items()} == {0: b"\xaa", 200: b""}


@pytest.mark.parametrize(
    ("text", "flexible", "read"),
    [
        ("ff", False, ValueReader.int16),
        ("0003aa", False, ValueReader.string),
        ("ffff", False, ValueReader.string),
        ("00", True, ValueReader.string),
        ("0001ff", False, ValueReader.string),
        ("fffe", False, lambda item: item.data()),
        ("ffffffff", False, ValueReader.data),
        ("7fffffff00", False, ValueReader.data),
        ("ffffffffff", True, ValueReader.data),
        ("ffffffff0f00", True, ValueReader.data),
        ("7fffffff00", False, lambda item: item.array(ValueReader.int8)),
        ("ffffffff", False, lambda item: item.array(ValueReader.int8)),
        ("00", True, lambda item: item.array(ValueReader.int8)),
        ("01", True, ValueReader.tags),
        ("010005aa", True, ValueReader.tags),
        ("00", False, ValueReader.end),
    ],
)
def test_lengths_beyond_the_bytes_are_malformed(
    text: str, flexible: bool, read: Callable[[ValueReader], object]
) -> None:
    with pytest.raises(MalformedRecord):
        read(reader(text, flexible=flexible))


def test_a_count_above_the_remaining_bytes_allocates_nothing() -> None:
    with pytest.raises(MalformedRecord, match="2147483647 items"):
        reader("7fffffff" + "00" * 100).array(ValueReader.int64)


@settings(deadline=None)
@given(
    st.booleans(),
    st.lists(st.none() | st.text(max_size=200)),
    st.lists(st.binary(max_size=300)),
)
def test_strings_and_bytes_survive_a_round_trip(
    flexible: bool, texts: list[str | None], blocks: list[bytes]
) -> None:
    writer = ValueWriter(flexible=flexible)
    for text in texts:
        writer.string(text)
    writer.array(blocks, ValueWriter.data)
    read = ValueReader(writer.done(), flexible=flexible)
    assert [read.nullable_string() for _ in texts] == texts
    assert read.array(ValueReader.data) == blocks
    read.end()
