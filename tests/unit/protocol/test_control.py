"""Transaction markers."""

import struct

import pytest

from penstock.protocol.batch import (
    CorruptBatch,
    check_client_batch,
    check_header,
    is_crc_valid,
    read_header,
)
from penstock.protocol.control import EndMarker, build_end_marker_batch, read_end_marker
from penstock.protocol.records import Record, build_batch, iter_records


def marker(*, commit: bool) -> bytearray:
    return build_end_marker_batch(
        commit=commit,
        coordinator_epoch=17,
        producer_id=5,
        producer_epoch=2,
        timestamp_ms=1_234,
        base_offset=88,
        leader_epoch=6,
    )


def control_batch(key: bytes | None, value: bytes | None) -> bytearray:
    return build_batch([Record(0, 0, key, value)], transactional=True, control=True)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_has_commit_or_abort(commit: bool) -> None:
    batch = marker(commit=commit)
    assert read_end_marker(batch) == EndMarker(commit=commit, coordinator_epoch=17)
    assert is_crc_valid(batch, 0, len(batch))


def test_a_marker_has_kafkas_layout() -> None:
    batch = marker(commit=True)
    header = read_header(batch)
    check_header(header, len(batch))
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.leader_epoch) == (88, 6)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, -1)
    key, value = bytes.fromhex("00000001"), bytes.fromhex("000000000011")
    assert list(iter_records(batch)) == [Record(88, 1_234, key, value)]
    assert next(iter_records(marker(commit=False))).key == bytes(4)


def test_a_producer_cannot_send_a_marker() -> None:
    with pytest.raises(CorruptBatch, match="only a broker sets"):
        check_client_batch(read_header(marker(commit=True)))


def test_data_and_empty_batches_have_no_marker() -> None:
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 17)
    assert read_end_marker(build_batch([Record(0, 0, key, value)])) is None
    assert read_end_marker(build_batch([], last_offset_delta=0, control=True)) is None


@pytest.mark.parametrize("control_type", [-1, 2, 3, 6, 32767])
def test_other_control_types_are_ignored(control_type: int) -> None:
    assert read_end_marker(control_batch(struct.pack(">hh", 0, control_type), None)) is None


def test_later_versions_are_read_by_their_known_fields() -> None:
    batch = control_batch(struct.pack(">hhq", 1, 0, 9), struct.pack(">hiq", 1, 17, 9))
    assert read_end_marker(batch) == EndMarker(commit=False, coordinator_epoch=17)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00\x00\x00", b""),
        (struct.pack(">hh", -1, 1), struct.pack(">hi", 0, 1)),
        (struct.pack(">hh", 0, 1), None),
        (struct.pack(">hh", 0, 1), b"\x00" * 5),
        (struct.pack(">hh", 0, 1), struct.pack(">hi", -1, 1)),
    ],
)
def test_a_damaged_marker_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        read_end_marker(control_batch(key, value))
