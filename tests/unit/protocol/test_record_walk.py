"""The walk over the framing of records: every fault by hand, and the reader as its model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.unit.protocol.damaged_records import Walk, damaged, encoded_records, model_verdict

from penstock.protocol import record_walk
from penstock.protocol.varint import MAX_INT64, MIN_INT64, encode_varint, encode_varlong

SOUND = b"\x00\x04\x00\x02k\x02v\x00"  # attributes, deltas 2 and 0, key, value, no headers


def framed(content: bytes) -> bytes:
    return encode_varint(len(content)) + content


def walk(data: bytes, count: int = 1) -> tuple[int, int, int]:
    return record_walk.walk_records(data, count, MIN_INT64, MAX_INT64, 0, False, [])


def test_valid_records_have_no_fault_and_the_greatest_timestamp_delta() -> None:
    second = b"\x01\x03\x02\x01\x01\x04\x02h\x01\x00\x02v"  # delta -2, no key, no value, 2 headers
    assert walk(framed(SOUND) + framed(second), 2) == (record_walk.SOUND, 2, 2)


@pytest.mark.parametrize(
    ("flaw", "data"),
    [
        (record_walk.CUT_OFF, b""),
        (record_walk.CUT_OFF, b"\x80"),
        (record_walk.CUT_OFF, framed(b"\x00\x00\x00\x02k")),
        (record_walk.CUT_OFF, framed(b"\x00\x00\x00\xfe\xff\xff\xff\x0fk\x02v\x00")),
        (record_walk.BAD_VARINT, b"\xff\xff\xff\xff\x10"),
        (record_walk.BAD_VARINT, b"\xff\xff\xff\xff\xff\x01"),
        (record_walk.BAD_VARINT, framed(b"\x00" + b"\xff" * 9 + b"\x02\x00\x01\x01\x00")),
        (record_walk.BAD_VARINT, framed(b"\x00" + b"\xff" * 11)),
        (record_walk.BAD_LENGTH, framed(SOUND)[:-1]),
        (record_walk.BAD_LENGTH, b"\x01" + SOUND),
        (record_walk.BAD_LENGTH, b"\x01"),
        (record_walk.BAD_LENGTH, b"\xfe\xff\xff\xff\x0f" + SOUND),
        (record_walk.BAD_OFFSET_DELTA, framed(b"\x00\x04\x12\x02k\x02v\x00")),
        (record_walk.BAD_OFFSET_DELTA, framed(b"\x00\x04\x01\x02k\x02v\x00")),
        (record_walk.BAD_OFFSET_DELTA, framed(b"\x00\x04\x01")),
        (record_walk.BAD_OFFSET_DELTA, framed(b"\x00\x04\x80\x01\x02k\x02v\x00")),
        (record_walk.CUT_OFF, framed(b"\x00\x04\x80")),
        (record_walk.CUT_OFF, framed(b"\x00\x80")),
        (record_walk.CUT_OFF, framed(b"\x00\x00\x00\x01\x80")),
        (record_walk.BAD_KEY, framed(b"\x00\x00\x00\x03\x02v\x00")),
        (record_walk.BAD_VALUE, framed(b"\x00\x00\x00\x01\x03\x00")),
        (record_walk.BAD_HEADER_COUNT, framed(b"\x00\x00\x00\x01\x01\x01")),
        (record_walk.BAD_HEADER_COUNT, framed(b"\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f")),
        (record_walk.BAD_HEADER_KEY, framed(b"\x00\x00\x00\x01\x01\x02\x01\x01")),
        (record_walk.BAD_HEADER_VALUE, framed(b"\x00\x00\x00\x01\x01\x02\x02h\x03")),
        (record_walk.BAD_END, framed(SOUND + b"\x00")),
        (record_walk.BAD_END, b"\x0e" + SOUND + b"\x00"),
        (record_walk.TRAILING_BYTES, framed(SOUND) + b"\x00"),
    ],
)
def test_each_fault_of_the_framing_is_named(flaw: int, data: bytes) -> None:
    assert walk(data)[0] == flaw


@pytest.mark.parametrize("number", [0, 1, 63, 64, 65, 8191, 8192, 2**20])
def test_numbers_of_any_length_are_read_in_every_field(number: int) -> None:
    content = (
        b"\x00"
        + encode_varlong(number)
        + b"\x00"
        + encode_varint(number) + bytes(number)
        + encode_varint(number) + bytes(number)
        + b"\x00"
    )  # fmt: skip
    assert walk(framed(content)) == (record_walk.SOUND, 1, number)


def test_offset_deltas_of_one_two_and_three_bytes_are_read() -> None:
    count = 8200
    data = b"".join(
        framed(b"\x00\x00" + encode_varint(index) + b"\x01\x01\x00") for index in range(count)
    )
    assert walk(data, count) == (record_walk.SOUND, count, 0)
    assert walk(data[7:], count)[:2] == (record_walk.BAD_OFFSET_DELTA, 0)


def test_a_number_in_more_bytes_than_it_needs_is_the_same_number() -> None:
    longer = bytes.fromhex("9400 00 8400 8000 8100 8100 00")
    faults: list[tuple[int, int]] = []
    result = record_walk.walk_records(longer, 1, MIN_INT64, MAX_INT64, 0, True, faults)
    assert result == (record_walk.SOUND, 1, 2)
    assert faults == [(0, record_walk.NO_KEY)]


def test_a_fault_is_reported_at_its_record() -> None:
    second = framed(b"\x00\x04\x02\x02k\x02v\x00")
    assert walk(framed(SOUND) + second + framed(SOUND), 3) == (record_walk.BAD_OFFSET_DELTA, 2, 2)


def test_well_formed_but_invalid_records_are_listed_and_do_not_end_the_walk() -> None:
    contents = [
        b"\x00" + encode_varlong(delta) + encode_varint(index) + key + b"\x02v\x00"
        for index, (delta, key) in enumerate(
            [(-6, b"\x02k"), (-5, b"\x01"), (-9, b"\x02k"), (5, b"\x00"), (6, b"\x01")]
        )
    ]
    faults: list[tuple[int, int]] = []
    result = record_walk.walk_records(b"".join(map(framed, contents)), 5, -5, 5, -9, True, faults)
    assert result == (record_walk.SOUND, 5, 6)
    late, keyless = record_walk.BAD_TIMESTAMP, record_walk.NO_KEY
    assert faults == [(0, late), (1, keyless), (4, late), (4, keyless)]


def test_faults_are_listed_up_to_a_limit() -> None:
    count = record_walk.MAX_FAULTS + 5
    data = b"".join(
        framed(b"\x00\x00" + encode_varint(index) + b"\x01\x01\x00") for index in range(count)
    )
    faults: list[tuple[int, int]] = []
    flaw, walked, _ = record_walk.walk_records(data, count, 0, 0, 0, True, faults)
    assert (flaw, walked) == (record_walk.SOUND, count)
    assert len(faults) == record_walk.MAX_FAULTS


@settings(max_examples=scaled(test=150, verify=3000, release=20_000))
@given(encoded_records(), st.data())
def test_the_walk_and_the_reader_agree(sent: Walk, draw: st.DataObject) -> None:
    for data in (sent.data, damaged(sent.data, draw)):
        verdict = walk(data, sent.records)
        assert (verdict[0] == record_walk.SOUND) == model_verdict(data, sent.records), verdict
