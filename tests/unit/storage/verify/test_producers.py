"""Inconsistencies planted in transaction indexes and producer snapshots."""

import pytest
from tests.unit.storage.verify.damage import (
    DATA,
    FOLDER,
    flip,
    locations_of,
    only_problem,
    put,
    sealed,
    segment_paths,
    verify,
)

from penstock.model.ids import Offset
from penstock.storage.producer_snapshot import decode, encode
from penstock.storage.transaction_index import ENTRY_BYTES, decode_entries, encode_entry
from penstock.testing.simulated_disk import SimulatedDisk


def test_an_abort_missing_from_the_transaction_index_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".txnindex")
    (entry, *_) = decode_entries(disk.files()[path])
    disk.remove(path)
    problem = verify(disk).problems[0]
    assert (problem.kind, problem.path, problem.position) == ("transaction-index", path, 0)
    assert f"producer {entry.producer_id} at offset {entry.last_offset}" in problem.message


def test_an_index_entry_without_an_abort_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".txnindex")
    entries = decode_entries(disk.files()[path])
    extra = entries[-1]._replace(last_offset=Offset(entries[-1].last_offset + 1))
    put(disk, path, b"".join(map(encode_entry, [*entries, extra])))
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, len(entries) * ENTRY_BYTES)
    assert "no abort marker" in problem.message


@pytest.mark.parametrize("field", ["producer_id", "first_offset", "last_stable_offset"])
def test_an_abort_with_a_wrong_field_is_reported(disk: SimulatedDisk, field: str) -> None:
    path = sealed(disk, ".txnindex")
    (entry, *rest) = decode_entries(disk.files()[path])
    wrong = entry._replace(**{field: getattr(entry, field) + 1})
    put(disk, path, b"".join(map(encode_entry, [wrong, *rest])))
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, 0)


def test_a_transaction_index_that_does_not_decode_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".txnindex")
    size = len(disk.files()[path])
    put(disk, path, disk.files()[path] + b"\x00")
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, size)
    assert "ends mid-entry" in problem.message


def test_a_damaged_snapshot_is_reported(disk: SimulatedDisk) -> None:
    path = segment_paths(disk, ".snapshot")[-1]
    flip(disk, path, 20)
    problem = only_problem(disk)
    assert (problem.kind, problem.path) == ("snapshot", path)
    assert "CRC" in problem.message


def test_a_snapshot_that_a_broker_is_writing_is_a_note(disk: SimulatedDisk) -> None:
    disk.remove(f"{DATA}/.kafka_cleanshutdown")
    oldest, *_, newest = segment_paths(disk, ".snapshot")
    disk.cut(newest, 0)
    findings = verify(disk)
    assert findings.problems == []
    assert [(note.kind, note.path) for note in findings.notes] == [("snapshot", newest)]
    disk.cut(oldest, 0)
    assert locations_of(verify(disk)) == {("snapshot", oldest, None)}


@pytest.mark.parametrize("field", ["last_sequence", "last_offset", "producer_epoch", "producer_id"])
def test_a_snapshot_that_contradicts_the_log_is_reported(disk: SimulatedDisk, field: str) -> None:
    path = segment_paths(disk, ".snapshot")[3]
    (entry, *rest) = decode(disk.files()[path])
    wrong = entry._replace(**{field: getattr(entry, field) + 100})
    put(disk, path, encode([wrong, *rest]))
    problem = only_problem(disk)
    assert (problem.kind, problem.path) == ("snapshot", path)
    assert str(wrong) in problem.message


def test_a_snapshot_beyond_the_log_is_reported(disk: SimulatedDisk) -> None:
    path = f"{FOLDER}/{9999:020d}.snapshot"
    put(disk, path, encode([]))
    problem = only_problem(disk)
    assert (problem.kind, problem.path) == ("snapshot", path)
