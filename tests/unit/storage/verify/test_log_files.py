"""Inconsistencies planted in log files."""

import struct
from pathlib import Path

import pytest
from tests.unit.storage.sample_logs import NOW_MS, writing
from tests.unit.storage.verify.damage import (
    DATA,
    FOLDER,
    active,
    flip,
    locations_of,
    only_problem,
    positions,
    put,
    sealed,
    segment_paths,
    verify,
)

from penstock.protocol.batch import (
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    RECORD_COUNT_POSITION,
    compute_crc,
)
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendOrigin
from penstock.testing.simulated_disk import SimulatedDisk


def test_a_flipped_bit_in_the_records_is_a_crc_problem_and_reading_continues(
    disk: SimulatedDisk,
) -> None:
    path = sealed(disk)
    batches = verify(disk).batches
    second, third = positions(disk, path)[1:3]
    flip(disk, path, third - 1)
    findings = verify(disk)
    assert locations_of(findings) == {("crc", path, second)}
    assert findings.batches == batches


def test_two_bad_batches_are_two_problems(disk: SimulatedDisk) -> None:
    path = sealed(disk)
    first, second, third = positions(disk, path)[:3]
    flip(disk, path, first + 25)
    flip(disk, path, third - 1)
    assert locations_of(verify(disk)) == {("crc", path, first), ("crc", path, second)}


def test_a_torn_tail_is_reported_where_the_last_whole_batch_ends(disk: SimulatedDisk) -> None:
    path = active(disk)
    last = positions(disk, path)[-1]
    disk.cut(path, len(disk.files()[path]) - 1)
    assert ("torn-tail", path, last) in locations_of(verify(disk))


@pytest.mark.parametrize("kept", [1, 16, 17, 60])
def test_a_tail_too_short_for_a_header_is_torn(disk: SimulatedDisk, kept: int) -> None:
    path = active(disk)
    last = positions(disk, path)[-1]
    disk.cut(path, last + kept)
    assert ("torn-tail", path, last) in locations_of(verify(disk))


def test_reading_continues_at_the_next_indexed_batch_after_an_unreadable_header(
    disk: SimulatedDisk,
) -> None:
    path = sealed(disk)
    starts = positions(disk, path)
    indexed = [e[1] for e in struct.iter_unpack(">II", disk.files()[sealed(disk, ".index")])]
    damaged = starts[0]
    resumed = min(position for position in indexed if position > damaged)
    batches = verify(disk).batches
    disk.overwrite(path, damaged + 16, b"\x07")  # magic
    findings = verify(disk)
    (problem,) = findings.problems
    assert (problem.kind, problem.path, problem.position) == ("damage", path, damaged)
    assert "magic 7" in problem.message
    assert f"{resumed - damaged} bytes up to the indexed batch at {resumed}" in problem.message
    assert findings.batches == batches - len([p for p in starts if damaged <= p < resumed])


def test_an_offset_that_goes_back_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk)
    content = disk.files()[path]
    position = positions(disk, path)[2]
    base_offset = HEADER.unpack_from(content, position)[0]
    disk.overwrite(path, position, struct.pack(">q", base_offset - 1))
    kinds = locations_of(verify(disk))
    assert ("offset-order", path, position) in kinds
    assert all(item[0] != "crc" for item in kinds)


def test_an_offset_that_jumps_is_reported_at_the_batch_that_contradicts_it(
    disk: SimulatedDisk,
) -> None:
    path = sealed(disk)
    position, following = positions(disk, path)[2:4]
    flip(disk, path, position + 4)  # 2^24 more
    problems = locations_of(verify(disk))
    assert ("offset-order", path, following) in problems
    assert ("bounds", path, position) in problems


def test_a_batch_before_its_segment_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk)
    disk.overwrite(path, 0, struct.pack(">q", 3))
    assert ("bounds", path, 0) in locations_of(verify(disk))


def test_a_batch_too_far_for_the_index_is_reported(disk: SimulatedDisk) -> None:
    path = active(disk)
    last = positions(disk, path)[-1]
    flip(disk, path, last + 3)  # 2^32 more
    assert ("bounds", path, last) in locations_of(verify(disk))


def test_overlapping_segments_are_reported(disk: SimulatedDisk) -> None:
    first, second = segment_paths(disk)[:2]
    position = positions(disk, second)[0]
    base_offset = HEADER.unpack_from(disk.files()[second], position)[0]
    longer = disk.files()[first] + disk.files()[second][: positions(disk, second)[1]]
    put(disk, first, longer)
    problems = [item for item in verify(disk).problems if item.kind == "bounds"]
    assert [(item.path, item.position) for item in problems] == [
        (first, len(longer) - positions(disk, second)[1])
    ]
    assert f"the next segment's first, {base_offset}: they overlap" in problems[0].message


def test_an_impossible_header_with_a_valid_crc_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk)
    start, end = positions(disk, path)[:2]
    batch = bytearray(disk.files()[path][start:end])
    batch[RECORD_COUNT_POSITION : RECORD_COUNT_POSITION + 4] = struct.pack(">i", 1000)
    batch[CRC_POSITION : CRC_POSITION + 4] = struct.pack(">I", compute_crc(batch))
    disk.overwrite(path, start, bytes(batch))
    assert ("header", path, start) in locations_of(verify(disk))


def test_records_that_do_not_decode_are_reported_only_with_records(
    disk: SimulatedDisk,
) -> None:
    path = sealed(disk)
    start, end = positions(disk, path)[:2]
    batch = bytearray(disk.files()[path][start:end])
    batch[HEADER_BYTES] ^= 0x40  # the first record's length
    batch[CRC_POSITION : CRC_POSITION + 4] = struct.pack(">I", compute_crc(batch))
    disk.overwrite(path, start, bytes(batch))
    assert verify(disk).problems == []
    problem = only_problem(disk, records=True)
    assert (problem.kind, problem.path, problem.position) == ("records", path, start)


def lose_second_segment(disk: SimulatedDisk) -> tuple[str, str]:
    """Remove a segment; return the previous one's path and the message about missing offsets."""
    first, second, third = segment_paths(disk)[:3]
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        path = second.removesuffix(".log") + suffix
        if path in disk.files():
            disk.remove(path)
    begin, end = (int(Path(path).stem) for path in (second, third))
    return first, f"offsets {begin} to {end - 1} "


@pytest.mark.parametrize("path", [DATA, FOLDER])
def test_a_missing_segment_is_a_problem_if_nothing_was_compacted(
    disk: SimulatedDisk, path: str
) -> None:
    before, missing = lose_second_segment(disk)
    gaps = [item for item in verify(disk, path).problems if item.kind == "gap"]
    assert [item.path for item in gaps] == [before]
    assert missing in gaps[0].message


def test_a_missing_end_of_a_segment_is_a_problem(disk: SimulatedDisk) -> None:
    path = segment_paths(disk)[1]
    disk.cut(path, positions(disk, path)[-1])
    assert ("gap", path) in {(item.kind, item.path) for item in verify(disk).problems}


@pytest.mark.parametrize("path", [DATA, FOLDER])
def test_a_gap_is_a_note_in_a_compacted_log(disk: SimulatedDisk, path: str) -> None:
    before, missing = lose_second_segment(disk)
    put(disk, f"{DATA}/cleaner-offset-checkpoint", b"0\n1\nt 0 3\n")
    findings = verify(disk, path)
    assert [item for item in findings.problems if item.kind == "gap"] == []
    gaps = [item for item in findings.notes if item.kind == "gap"]
    assert [item.path for item in gaps] == [before]
    assert missing in gaps[0].message


def test_a_gap_is_a_note_in_a_folder_without_its_data_directory(disk: SimulatedDisk) -> None:
    lose_second_segment(disk)
    disk.remove(f"{DATA}/recovery-point-offset-checkpoint")
    kinds = {(item.kind, item.is_problem) for item in verify(disk, FOLDER).all}
    assert ("gap", False) in kinds
    assert ("gap", True) not in kinds


def test_a_replicas_jump_to_a_new_segment_is_a_note() -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        writer.records()
        record = Record(2**33, NOW_MS, b"k", b"v")
        jump = build_batch([record], base_offset=2**33, leader_epoch=0)
        writer.append(jump, AppendOrigin.REPLICATION)
    findings = verify(disk)
    assert findings.is_clean
    assert [note.kind for note in findings.notes] == ["gap"]
