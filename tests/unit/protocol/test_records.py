"""Records: the format by hand, results of compaction, and damage inside the records."""

import struct

import pytest

from penstock.protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    check_client_batch,
    check_header,
    is_crc_valid,
    read_header,
)
from penstock.protocol.compression import Codec, DecompressedTooLarge, compress
from penstock.protocol.records import (
    Record,
    build_batch,
    default_limit,
    iter_keys,
    iter_records,
)

MIB = 1024 * 1024


def bitwise_crc32c(data: bytes) -> int:
    """Compute CRC-32C by its definition, bit by bit: reflected polynomial 0x82F63B78."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def batch_around(payload: bytes, **fields: int) -> bytes:
    """Build a batch around any record bytes; one uncompressed record by default."""
    attributes = fields.get("attributes", 0)
    last_delta = fields.get("last_offset_delta", 0)
    base_timestamp = fields.get("base_timestamp", 1_000)
    count = fields.get("record_count", 1)
    covered = (
        struct.pack(">hiqq", attributes, last_delta, base_timestamp, 1_000)
        + struct.pack(">qhii", -1, -1, -1, count)
        + payload
    )
    outside = struct.pack(">iBI", -1, 2, bitwise_crc32c(covered))
    return struct.pack(">qi", 100, len(outside) + len(covered)) + outside + covered


# One record encoded by hand; lengths are zigzag, so each is twice its value.
GOLDEN_RECORD = (
    b"\x20"  # 16 bytes follow
    b"\x00"  # attributes
    b"\x06"  # timestamp delta 3
    b"\x00"  # offset delta 0
    b"\x02k"  # key
    b"\x0ahello"  # value
    b"\x02"  # one header
    b"\x02h"  # its key
    b"\x02v"  # its value
)
GOLDEN_BATCH = batch_around(GOLDEN_RECORD)


def test_a_batch_encoded_by_hand_is_read() -> None:
    assert len(GOLDEN_BATCH) == HEADER_BYTES + 17
    header = read_header(GOLDEN_BATCH)
    check_header(header, len(GOLDEN_BATCH))
    check_client_batch(header)
    assert is_crc_valid(GOLDEN_BATCH, 0, len(GOLDEN_BATCH))
    assert list(iter_records(GOLDEN_BATCH)) == [Record(100, 1_003, b"k", b"hello", (("h", b"v"),))]
    assert list(iter_keys(GOLDEN_BATCH)) == [(100, b"k", True, 1_003)]


def test_a_built_batch_equals_the_one_encoded_by_hand() -> None:
    built = build_batch([Record(100, 1_000, b"k", b"hello", (("h", b"v"),))], base_offset=100)
    assert built == batch_around(GOLDEN_RECORD.replace(b"\x06", b"\x00", 1))


def test_header_fields_of_a_built_batch_are_those_requested() -> None:
    built = build_batch(
        [Record(8, 20, None, b""), Record(10, 15, b"", None)],
        base_offset=7,
        codec=Codec.ZSTD,
        leader_epoch=3,
        producer_id=11,
        producer_epoch=4,
        base_sequence=90,
        transactional=True,
        last_offset_delta=5,
    )
    header = read_header(built)
    assert header == BatchHeader(
        base_offset=7,
        batch_length=len(built) - 12,
        leader_epoch=3,
        magic=2,
        crc=bitwise_crc32c(bytes(built[21:])),
        attributes=0x14,
        last_offset_delta=5,
        base_timestamp=20,
        max_timestamp=20,
        producer_id=11,
        producer_epoch=4,
        base_sequence=90,
        record_count=2,
    )
    assert (header.last_offset, header.last_sequence) == (12, 95)
    assert [record.offset for record in iter_records(built)] == [8, 10]


def test_append_time_replaces_the_timestamps_of_records() -> None:
    built = build_batch([Record(0, 5, None, b"a"), Record(1, 9, None, b"b")], append_time_ms=77)
    assert read_header(built).is_append_time
    assert [record.timestamp_ms for record in iter_records(built)] == [77, 77]
    assert [timestamp for *_, timestamp in iter_keys(built)] == [77, 77]


def test_a_delete_horizon_keeps_the_timestamps_of_records() -> None:
    records = [Record(0, 5_000, b"a", None), Record(3, 5_007, b"b", b"")]
    built = build_batch(records, delete_horizon_ms=99_000)
    header = read_header(built)
    assert header.has_delete_horizon
    assert (header.base_timestamp, header.max_timestamp) == (99_000, 5_007)
    # Deltas are relative to the horizon: 5,000 - 99,000, as zigzag 187,999, in three groups of 7
    # bits.
    assert built[HEADER_BYTES + 2 : HEADER_BYTES + 5] == b"\xdf\xbc\x0b"
    assert list(iter_records(built)) == records


def test_a_batch_emptied_by_compaction_keeps_its_offsets_and_producer() -> None:
    emptied = build_batch(
        [],
        base_offset=50,
        last_offset_delta=9,
        codec=Codec.GZIP,
        producer_id=1,
        producer_epoch=2,
        base_sequence=3,
        max_timestamp_ms=6_000,
        delete_horizon_ms=9_000,
    )
    header = read_header(emptied)
    assert len(emptied) == HEADER_BYTES
    check_header(header, len(emptied))
    assert is_crc_valid(emptied, 0, len(emptied))
    assert (header.last_offset, header.last_sequence, header.record_count) == (59, 12, 0)
    assert (header.base_timestamp, header.max_timestamp, header.attributes) == (-1, 6_000, 0)
    assert list(iter_records(emptied)) == []
    assert list(iter_keys(emptied)) == []


def test_iter_keys_distinguishes_tombstones_from_empty_values() -> None:
    built = build_batch(
        [Record(0, 1, b"a", None), Record(1, 2, None, b""), Record(2, 3, b"", b"v")]
    )
    assert list(iter_keys(built)) == [(0, b"a", False, 1), (1, None, True, 2), (2, b"", True, 3)]


def test_trailing_bytes_are_not_part_of_the_batch() -> None:
    assert list(iter_records(GOLDEN_BATCH + b"more")) == list(iter_records(GOLDEN_BATCH))


def test_header_keys_that_are_not_utf_8_survive_a_rewrite() -> None:
    foreign = batch_around(GOLDEN_RECORD.replace(b"\x02h", b"\x02\xff"))
    records = list(iter_records(foreign))
    again = build_batch(records, base_offset=100)
    assert b"\x02\xff\x02v" in again
    assert list(iter_records(again)) == records


def test_timestamps_overflow_as_kafkas_do_and_can_be_rewritten() -> None:
    body = b"\x00\x04\x00\x01\x01\x00"  # timestamp delta 2
    batch = batch_around(b"\x0c" + body, base_timestamp=2**63 - 1)
    records = list(iter_records(batch))
    assert records[0].timestamp_ms == -(2**63) + 1
    extremes = [Record(0, -1, None, None), Record(1, 2**63 - 1, None, None), *records]
    extremes[2] = extremes[2]._replace(offset=2)
    assert list(iter_records(build_batch(extremes))) == extremes


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00" * 7,
        b"\x01" + b"\x00" * 9,  # length -1
        b"\x8b\x80\x00\x00\x00\x00\x01\x01\x00",  # length -6, padded to three bytes
        b"\x0e\x00\x00\x00\x01\x01\x00",  # length 7 of 6
        b"\x80\x80\x80\x80\x10\x00\x00\x00\x01\x01\x00",  # length beyond 32 bits
        b"\xfe\xff\xff\xff\x0f\x00\x00\x00\x01\x01\x00",  # length 2^31-1
        b"\x0c\x00\x00\x00\x01\x01\x00\x00",  # a byte after the record
        b"\x0a\x00\x00\x00\x01\x01\x00",  # no bytes left for the header count
        b"\x0c\x00\x00\x02\x01\x01\x00",  # offset delta 1 in a batch of one offset
        b"\x0c\x00\x00\x01\x01\x01\x00",  # offset delta -1
        b"\x0c\x00\x00\x00\x03\x01\x00",  # key length -2
        b"\x0c\x00\x00\x00\x01\x03\x00",  # value length -2
        b"\x0c\x00\x00\x00\x08\x01\x00",  # key longer than the record
        b"\x0c\x00\x00\x00\x01\x08\x00",  # value longer than the record
        b"\x14\x00\x00\x00\x01\xfe\xff\xff\xff\x0f\x00",  # value of 2^31-1 bytes
        b"\x14\x00\x00\x00\xfe\xff\xff\xff\x0f\x01\x00",  # key of 2^31-1 bytes
    ],
)
def test_damage_inside_a_record_is_corrupt(payload: bytes) -> None:
    batch = batch_around(payload)
    with pytest.raises(CorruptBatch):
        list(iter_records(batch))
    with pytest.raises(CorruptBatch):
        list(iter_keys(batch))


@pytest.mark.parametrize(
    "headers",
    [
        b"\x01",  # -1 headers
        b"\x02",  # one header in zero bytes
        b"\xfe\xff\xff\xff\x0f",  # 2^31-1 headers
        b"\x02\x01\x02v",  # key null
        b"\x02\x03\x02v",  # key length -2
        b"\x02\x02h\x03",  # value length -2
        b"\x02\x02h\x08v",  # value longer than the record
        b"\x02\x08h\x02v",  # key longer than the record
        b"\x02\x02h\x02v!",  # a byte after the headers
        b"\x00!",
    ],
)
def test_damage_in_record_headers_is_corrupt(headers: bytes) -> None:
    body = b"\x00\x00\x00\x01\x01" + headers
    batch = batch_around(bytes([2 * len(body)]) + body)
    with pytest.raises(CorruptBatch):
        list(iter_records(batch))


def test_a_record_that_ends_before_its_header_count_is_corrupt() -> None:
    short = b"\x0a\x00\x00\x00\x01\x01"
    whole = b"\x0e\x00\x00\x02\x01\x02a\x00"
    batch = batch_around(short + whole, record_count=2, last_offset_delta=1)
    with pytest.raises(CorruptBatch, match="pass its end"):
        list(iter_keys(batch))
    with pytest.raises(CorruptBatch, match="pass its end"):
        list(iter_records(batch))


def test_offsets_that_do_not_increase_are_corrupt() -> None:
    twice = GOLDEN_RECORD * 2
    with pytest.raises(CorruptBatch, match="offset delta 0 after 0"):
        list(iter_records(batch_around(twice, record_count=2, last_offset_delta=1)))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_more_records_than_bytes_are_refused_after_decompression(codec: Codec) -> None:
    payload = compress(codec, GOLDEN_RECORD)
    huge = 2**31 - 1
    batch = batch_around(payload, attributes=codec, record_count=huge, last_offset_delta=huge)
    with pytest.raises(CorruptBatch, match="cannot fit in 17 bytes"):
        list(iter_records(batch))


def test_a_batch_that_decompresses_beyond_the_limit_is_refused() -> None:
    records = [Record(0, 0, None, bytes(33 * MIB))]
    bomb = build_batch(records, codec=Codec.ZSTD)
    with pytest.raises(DecompressedTooLarge):
        list(iter_records(bomb))
    with pytest.raises(DecompressedTooLarge):
        list(iter_keys(bomb))
    assert list(iter_records(bomb, limit=34 * MIB)) == records


def test_large_uncompressed_batches_are_not_limited() -> None:
    records = [Record(0, 0, None, bytes(2 * MIB))]
    assert list(iter_records(build_batch(records))) == records


def test_the_limit_grows_with_the_batch_between_32_and_256_mib() -> None:
    assert default_limit(0) == default_limit(10_000) == 32 * MIB
    assert default_limit(100_000) == 100_000_000
    assert default_limit(100 * MIB) == 256 * MIB


@pytest.mark.parametrize("offsets", [[1, 1], [2, 1], [-1, 0]])
def test_records_out_of_order_cannot_be_built(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="does not follow"):
        build_batch([Record(offset, 0, None, None) for offset in offsets])


def test_offsets_that_exclude_records_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="below that of the last record"):
        build_batch([Record(5, 0, None, None)], last_offset_delta=4)
    with pytest.raises(ValueError, match="needs last_offset_delta"):
        build_batch([])
