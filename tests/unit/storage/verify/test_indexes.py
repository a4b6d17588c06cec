"""Inconsistencies planted in offset and time indexes."""

import struct
from collections.abc import Callable

import pytest
from tests.unit.storage.sample_logs import SMALL, writing
from tests.unit.storage.verify.damage import (
    DATA,
    active,
    flip,
    locations_of,
    only_problem,
    put,
    sealed,
    verify,
)

from penstock.testing.simulated_disk import SimulatedDisk


def test_an_index_entry_with_a_wrong_offset_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".index")
    flip(disk, path, 8 + 3)
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.position) == ("offset-index", path, 8)


def test_an_index_entry_for_several_batches_is_a_note_as_kafkas_followers_write_them(
    disk: SimulatedDisk,
) -> None:
    path = sealed(disk, ".index")
    entries = disk.files()[path]
    (_, first_position), *_, (last_offset, _) = struct.iter_unpack(">II", entries)
    put(disk, path, struct.pack(">II", last_offset, first_position))
    findings = verify(disk)
    assert findings.problems == []
    assert [(note.kind, note.path, note.position) for note in findings.notes] == [
        ("offset-index", path, 0)
    ]


@pytest.mark.parametrize("change", [-1, 1])
def test_an_index_entry_without_the_last_offset_of_a_batch_is_reported(
    disk: SimulatedDisk, change: int
) -> None:
    path = sealed(disk, ".index")
    offset, position = struct.unpack_from(">II", disk.files()[path])
    disk.overwrite(path, 0, struct.pack(">II", offset + change, position))
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.position) == ("offset-index", path, 0)


def test_an_index_entry_that_points_into_a_batch_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".index")
    flip(disk, path, 8 + 7)
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.position) == ("offset-index", path, 8)
    assert "no batch starts there" in problem.message


def test_an_index_entry_beyond_the_log_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".index")
    entries = disk.files()[path]
    put(disk, path, entries + struct.pack(">II", 10_000, 100_000))
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, len(entries))
    assert "points at position 100000" in problem.message


@pytest.mark.parametrize(("suffix", "width"), [(".index", 8), (".timeindex", 12)])
def test_entries_that_do_not_increase_are_reported(
    disk: SimulatedDisk, suffix: str, width: int
) -> None:
    path = sealed(disk, suffix)
    entries = disk.files()[path]
    put(disk, path, entries + entries[-width:])
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, len(entries))
    assert "does not follow" in problem.message


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_ends_mid_entry_is_reported(disk: SimulatedDisk, suffix: str) -> None:
    for path in (sealed(disk, suffix), active(disk, suffix)):
        damaged = disk.copy()
        entries = disk.files()[path]
        put(damaged, path, entries + b"\x01\x02\x03")
        problem = only_problem(damaged)
        assert (problem.path, problem.position) == (path, len(entries))
        assert "ends mid-entry (3 bytes)" in problem.message


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_zeros_after_the_entries_are_a_note_in_the_active_segment_only(
    disk: SimulatedDisk, suffix: str
) -> None:
    path = active(disk, suffix)
    size = len(disk.files()[path])
    put(disk, path, disk.files()[path] + bytes(240))
    findings = verify(disk)
    assert findings.problems == []
    assert [(note.kind, note.path, note.position) for note in findings.notes] == [
        ("zeros", path, size)
    ]
    path = sealed(disk, suffix)
    size = len(disk.files()[path])
    put(disk, path, disk.files()[path] + bytes(240))
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, size)


def test_a_time_entry_that_contradicts_its_batch_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".timeindex")
    flip(disk, path, 7)
    problems = locations_of(verify(disk))
    assert ("time-index", path, 0) in problems
    assert {item[1] for item in problems} == {path}


def test_a_time_entry_of_an_offset_beyond_the_segment_is_reported(disk: SimulatedDisk) -> None:
    path = sealed(disk, ".timeindex")
    size = len(disk.files()[path])
    put(disk, path, disk.files()[path] + struct.pack(">qI", 2**60, 10_000))
    problem = only_problem(disk)
    assert (problem.path, problem.position) == (path, size)
    assert "past the last one" in problem.message


def test_a_time_entry_below_an_earlier_maximum_is_reported() -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, SMALL, disk) as writer:
        writer.records(1, timestamp_ms=2000)
        second = writer.records(1, timestamp_ms=1000)
    path = active(disk, ".timeindex")
    assert disk.files()[path] == struct.pack(">qI", 2000, 0)
    put(disk, path, struct.pack(">qIqI", 1000, second, 2000, second))
    problems = verify(disk).problems
    assert any("timestamp 1000 after one of 2000" in item.message for item in problems)


@pytest.mark.parametrize("where", [sealed, active])
def test_a_time_index_without_its_last_entry_is_reported(
    disk: SimulatedDisk, where: Callable[[SimulatedDisk, str], str]
) -> None:
    path = where(disk, ".timeindex")
    size = len(disk.files()[path]) - 12
    disk.cut(path, size)
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.position) == ("time-index", path, size)
    assert "but the segment holds" in problem.message


def test_the_active_time_index_may_lag_while_the_broker_runs(disk: SimulatedDisk) -> None:
    disk.remove(f"{DATA}/.kafka_cleanshutdown")
    disk.cut(active(disk, ".timeindex"), 0)
    assert verify(disk).problems == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_sealed_segment_without_an_index_is_reported(disk: SimulatedDisk, suffix: str) -> None:
    path = sealed(disk, suffix)
    disk.remove(path)
    assert ("missing", path, None) in locations_of(verify(disk))
