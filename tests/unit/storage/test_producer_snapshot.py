import struct

import pytest
from crc32c import crc32c

from penstock.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from penstock.storage.errors import CorruptSnapshot
from penstock.storage.producer_snapshot import (
    decode,
    encode,
    find_snapshot_offset,
    read_snapshot,
    snapshot_name,
    write_snapshot,
)
from penstock.storage.producer_state_manager import ProducerStateEntry
from penstock.testing.simulated_disk import SimulatedDisk


def entry(
    producer_id: int,
    epoch: int,
    sequence: int,
    offset: int,
    delta: int,
    timestamp: int,
    coordinator_epoch: int,
    first_offset: int | None,
) -> ProducerStateEntry:
    return ProducerStateEntry(
        ProducerId(producer_id),
        ProducerEpoch(epoch),
        sequence,
        Offset(offset),
        delta,
        TimestampMs(timestamp),
        coordinator_epoch,
        None if first_offset is None else Offset(first_offset),
    )


ENTRIES = [
    entry(0, 0, 0, 0, 0, 0, -1, None),
    entry(5, 3, -1, -1, 0, 1_700_000_000_000, 4, None),  # a marker only
    entry(2**63 - 1, 2**15 - 1, 2**31 - 1, 2**63 - 2, 2**31 - 1, 2**63 - 1, 2**31 - 1, 0),
]


def pack(*fields: int) -> bytes:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = fields
    return (
        struct.pack(">q", producer_id)
        + struct.pack(">h", epoch)
        + struct.pack(">i", sequence)
        + struct.pack(">q", offset)
        + struct.pack(">i", delta)
        + struct.pack(">q", timestamp)
        + struct.pack(">i", coordinator_epoch)
        + struct.pack(">q", first)
    )


BODY = (
    struct.pack(">i", 3)
    + pack(0, 0, 0, 0, 0, 0, -1, -1)
    + pack(5, 3, -1, -1, 0, 1_700_000_000_000, 4, -1)
    + pack(2**63 - 1, 2**15 - 1, 2**31 - 1, 2**63 - 2, 2**31 - 1, 2**63 - 1, 2**31 - 1, 0)
)


def seal(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


def test_a_snapshot_is_written_and_read_as_kafka_writes_it() -> None:
    assert encode(ENTRIES) == seal(BODY)
    assert decode(seal(BODY)) == ENTRIES


def test_an_empty_snapshot_is_ten_bytes() -> None:
    assert encode([]) == seal(b"\0\0\0\0")
    assert decode(encode([])) == []


def test_every_truncated_snapshot_is_corrupt() -> None:
    content = encode(ENTRIES)
    for length in range(len(content)):
        with pytest.raises(CorruptSnapshot):
            decode(content[:length])


def test_every_flipped_bit_is_corrupt() -> None:
    content = encode(ENTRIES)
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptSnapshot):
            decode(bytes(flipped))


@pytest.mark.parametrize(
    "content",
    [
        seal(BODY, version=0),
        seal(BODY, version=2),
        seal(BODY + b"\0"),
        seal(struct.pack(">i", 2) + BODY[4:]),
        seal(struct.pack(">i", -1)),
        seal(struct.pack(">i", 2**31 - 1)),
    ],
)
def test_an_unknown_version_or_wrong_count_is_corrupt_even_with_a_valid_crc(content: bytes) -> None:
    with pytest.raises(CorruptSnapshot, match=r"/data/t-0/7\.snapshot"):
        decode(content, "/data/t-0/7.snapshot")


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        (0, "00000000000000000000.snapshot"),
        (42, "00000000000000000042.snapshot"),
        (2**63 - 1, "09223372036854775807.snapshot"),
    ],
)
def test_a_snapshot_is_named_for_its_offset(offset: int, name: str) -> None:
    assert snapshot_name(offset) == name
    assert find_snapshot_offset(name) == offset


@pytest.mark.parametrize(
    "name",
    [
        "42.snapshot",
        "00000000000000000042.snapshot.tmp",
        "00000000000000000042.snapshot.deleted",
        "00000000000000000042.snapshot\n",
        "00000000000000000042.log",
    ],
)
def test_other_files_are_not_snapshots(name: str) -> None:
    assert find_snapshot_offset(name) is None


def test_a_snapshot_survives_a_round_trip() -> None:
    disk, path = SimulatedDisk("/data"), f"/data/{snapshot_name(9)}"
    assert read_snapshot(disk, path) is None
    write_snapshot(disk, path, ENTRIES)
    assert disk.files() == {path: encode(ENTRIES)}
    assert read_snapshot(disk, path) == ENTRIES
