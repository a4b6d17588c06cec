"""Batch headers: what is read, refused and set by the log."""

import struct

import pytest

from penstock.protocol.batch import (
    APPEND_TIME,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    UnsupportedMagic,
    check_client_batch,
    check_header,
    compute_crc,
    is_crc_valid,
    iter_headers,
    read_header,
    stamp_append_time,
    stamp_offset_and_epoch,
)
from penstock.protocol.records import Record, build_batch, iter_records

SOUND = BatchHeader(
    base_offset=40,
    batch_length=49 + 30,
    leader_epoch=7,
    magic=2,
    crc=0,
    attributes=0,
    last_offset_delta=2,
    base_timestamp=1_000,
    max_timestamp=1_002,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    record_count=3,
)


def three_records() -> bytearray:
    return build_batch([Record(offset, 1_000 + offset, None, b"v") for offset in range(3)])


def test_a_header_has_61_bytes_and_survives_a_round_trip() -> None:
    assert HEADER.size == HEADER_BYTES == 61
    assert read_header(b"gap" + HEADER.pack(*SOUND), 3) == SOUND
    assert (SOUND.size, SOUND.last_offset, SOUND.next_offset) == (91, 42, 43)


def test_attributes_name_codec_and_flags() -> None:
    plain = SOUND._replace(attributes=3)
    assert plain.codec == 3
    assert not plain.is_append_time
    assert not plain.is_transactional
    assert not plain.is_control
    assert not plain.has_delete_horizon
    assert SOUND._replace(attributes=APPEND_TIME).is_append_time
    assert SOUND._replace(attributes=TRANSACTIONAL).is_transactional
    assert SOUND._replace(attributes=CONTROL).is_control
    assert SOUND._replace(attributes=DELETE_HORIZON).has_delete_horizon


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 0, 0), (5, 2, 7), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 4, 1)],
)
def test_sequences_wrap_to_zero_after_the_largest(base: int, delta: int, last: int) -> None:
    assert SOUND._replace(base_sequence=base, last_offset_delta=delta).last_sequence == last


def test_a_batch_without_sequence_has_no_last_sequence() -> None:
    assert SOUND._replace(base_sequence=-1).last_sequence == -1


@pytest.mark.parametrize("length", range(HEADER_BYTES))
def test_a_truncated_header_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch, match=f"{length} of 61 bytes"):
        read_header(HEADER.pack(*SOUND)[:length])


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [34, 200])
def test_old_formats_are_named_even_if_shorter_than_a_header(magic: int, size: int) -> None:
    message = struct.pack(">qiIb", 5, size - 12, 0, magic).ljust(size, b"\x00")
    with pytest.raises(UnsupportedMagic, match=f"magic {magic}.*older than Kafka 0.11") as caught:
        read_header(message)
    assert caught.value.magic == magic
    with pytest.raises(UnsupportedMagic):
        list(iter_headers(message))


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UnsupportedMagic, match="magic 3, no known format"):
        read_header(HEADER.pack(*SOUND._replace(magic=3)))


def test_a_valid_header_passes_up_to_its_last_byte() -> None:
    check_header(SOUND, 91)
    with pytest.raises(CorruptBatch, match="91 bytes announced, 90 are there"):
        check_header(SOUND, 90)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"batch_length": 48}, "below 49"),
        ({"batch_length": -1}, "below 49"),
        ({"batch_length": 2**31 - 1}, "announced"),
        ({"magic": 1}, "magic 1"),
        ({"attributes": 0x80}, "reserved bits"),
        ({"attributes": -1}, "reserved bits"),
        ({"attributes": 5}, "codec 5"),
        ({"attributes": 7}, "codec 7"),
        ({"last_offset_delta": -1}, "negative"),
        ({"record_count": 4}, "4 records in 3 offsets"),
        ({"record_count": -1}, "-1 records"),
        ({"base_offset": -1}, "offsets leave"),
        ({"base_offset": 2**63 - 2}, "offsets leave"),
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 1}, "cannot fit"),
        ({"record_count": 5, "last_offset_delta": 4}, "5 records cannot fit in 30 bytes"),
    ],
)
def test_structural_damage_is_refused(change: dict[str, int], reason: str) -> None:
    with pytest.raises(CorruptBatch, match=reason) as caught:
        check_header(SOUND._replace(**change), 91)
    assert str(caught.value) == caught.value.reason


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_compacted_batch_may_have_fewer_records_than_offsets(count: int) -> None:
    compacted = SOUND._replace(record_count=count)
    check_header(compacted, 91)
    with pytest.raises(CorruptBatch, match=f"{count} records with last offset delta 2"):
        check_client_batch(compacted)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"base_offset": 0, "leader_epoch": -1},
        {"attributes": 4, "base_timestamp": -1, "max_timestamp": -1},
        {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 9, "producer_epoch": 1, "base_sequence": 5, "attributes": TRANSACTIONAL},
        {"producer_id": -1, "producer_epoch": 0, "base_sequence": 0},
    ],
)
def test_batches_of_producers_are_accepted(change: dict[str, int]) -> None:
    check_client_batch(SOUND._replace(**change))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"record_count": 0, "last_offset_delta": -1}, "0 records"),
        ({"attributes": CONTROL}, "only a broker sets"),
        ({"attributes": DELETE_HORIZON}, "only a broker sets"),
        ({"base_timestamp": -2}, "timestamps -2, 1002"),
        ({"max_timestamp": -2}, "timestamps 1000, -2"),
        ({"producer_id": 1, "producer_epoch": -1, "base_sequence": 0}, "epoch -1"),
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": -1}, "sequence -1"),
        ({"producer_id": -2}, "producer id -2"),
        ({"attributes": TRANSACTIONAL}, "without a producer id"),
    ],
)
def test_control_batches_from_producers_are_rejected(change: dict[str, int], reason: str) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        check_client_batch(SOUND._replace(**change))


def test_setting_offset_and_epoch_keeps_the_crc() -> None:
    batch = three_records()
    padded = bytearray(b"....") + batch
    stamp_offset_and_epoch(memoryview(padded), 4, 2**40, 12)
    header = read_header(padded, 4)
    assert (header.base_offset, header.leader_epoch) == (2**40, 12)
    assert is_crc_valid(padded, 4, len(batch))
    assert padded[4 + 16 :] == batch[16:]


def test_append_time_becomes_the_timestamp_of_every_record() -> None:
    batch = three_records()
    padded = bytearray(b"....") + batch + b"...."
    stamp_append_time(memoryview(padded), 4, len(batch), 5_555)
    stamped = padded[4:-4]
    assert is_crc_valid(padded, 4, len(batch))
    assert read_header(stamped).is_append_time
    assert [record.timestamp_ms for record in iter_records(stamped)] == [5_555] * 3
    assert padded[:4] == padded[-4:] == b"...."


def test_the_crc_is_crc_32c() -> None:
    # The check value of CRC-32C, for the digits 1 to 9.
    assert compute_crc(bytes(21) + b"123456789") == 0xE3069283


def test_a_truncated_batch_has_no_valid_crc() -> None:
    batch = bytes(three_records())
    assert is_crc_valid(batch, 0, len(batch))
    assert not is_crc_valid(batch[:-1], 0, len(batch))
    assert not is_crc_valid(batch, 0, len(batch) + 1)
    assert not is_crc_valid(batch, 1, len(batch))
    assert not is_crc_valid(batch, 0, 60)


def test_headers_are_walked_up_to_a_partial_batch() -> None:
    batch = bytes(three_records())
    size = len(batch)
    for cut in range(1, size):
        headers = list(iter_headers(b"x" + batch * 3 + batch[:cut], 1))
        assert [position for position, _ in headers] == [1, 1 + size, 1 + 2 * size]
    assert [header for _, header in headers] == [read_header(batch)] * 3


def test_a_walk_fails_at_a_length_that_does_not_advance() -> None:
    stuck = HEADER.pack(*SOUND._replace(batch_length=-12)) + bytes(100)
    with pytest.raises(CorruptBatch, match="length -12 is below 49"):
        list(iter_headers(stuck))
