"""Inconsistencies planted in epochs and checkpoints."""

import pytest
from tests.unit.storage.verify.damage import (
    DATA,
    EPOCHS,
    FOLDER,
    flip,
    locations_of,
    only_problem,
    positions,
    put,
    sealed,
    verify,
)

from penstock.model.ids import LeaderEpoch, Offset
from penstock.protocol.batch import (
    HEADER,
    LEADER_EPOCH_POSITION,
)
from penstock.storage.checkpoints import decode_offsets, encode_offsets
from penstock.storage.leader_epoch_cache import EpochEntry, decode_epochs, encode_epochs
from penstock.testing.simulated_disk import SimulatedDisk


def test_a_flipped_epoch_contradicts_its_neighbours_and_the_checkpoint(disk: SimulatedDisk) -> None:
    path = sealed(disk)
    position, following = positions(disk, path)[1:3]
    flip(disk, path, position + LEADER_EPOCH_POSITION + 2)
    assert locations_of(verify(disk)) == {
        ("epoch", path, position),
        ("epoch-order", path, following),
    }


def test_batches_that_contradict_the_epoch_checkpoint_are_reported(disk: SimulatedDisk) -> None:
    first, second, *rest = decode_epochs(disk.files()[EPOCHS], EPOCHS)
    later = EpochEntry(second.epoch, Offset(second.start_offset + 1))
    put(disk, EPOCHS, encode_epochs([first, later, *rest]))
    problem = only_problem(disk)
    assert problem.kind == "epoch"
    header = HEADER.unpack_from(disk.files()[problem.path], problem.position or 0)
    assert header[0] == second.start_offset


def test_an_epoch_missing_from_the_checkpoint_is_a_problem_after_a_clean_shutdown(
    disk: SimulatedDisk,
) -> None:
    entries = decode_epochs(disk.files()[EPOCHS], EPOCHS)
    put(disk, EPOCHS, encode_epochs(entries[:-1]))
    assert only_problem(disk).kind == "epoch"
    disk.remove(f"{DATA}/.kafka_cleanshutdown")
    findings = verify(disk)
    assert findings.problems == []
    assert [note.kind for note in findings.notes] == ["epoch"]


def test_an_epoch_that_begins_beyond_the_log_is_reported(disk: SimulatedDisk) -> None:
    entries = decode_epochs(disk.files()[EPOCHS], EPOCHS)
    put(disk, EPOCHS, encode_epochs([*entries, EpochEntry(LeaderEpoch(9), Offset(9999))]))
    problem = only_problem(disk)
    assert (problem.path, problem.line) == (EPOCHS, 3 + len(entries))


def test_a_missing_epoch_checkpoint_is_reported(disk: SimulatedDisk) -> None:
    disk.remove(EPOCHS)
    assert locations_of(verify(disk)) == {("missing", EPOCHS, None)}


@pytest.mark.parametrize(
    "path",
    [
        EPOCHS,
        f"{DATA}/recovery-point-offset-checkpoint",
        f"{DATA}/replication-offset-checkpoint",
        f"{DATA}/log-start-offset-checkpoint",
    ],
)
def test_a_malformed_checkpoint_is_reported_with_its_line(disk: SimulatedDisk, path: str) -> None:
    put(disk, path, b"0\n2\nx\n")
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.line) == ("checkpoint", path, 2)


def test_malformed_metadata_are_reported(disk: SimulatedDisk) -> None:
    put(disk, f"{FOLDER}/partition.metadata", b"version: 0\ntopic_id: nonsense")
    put(disk, f"{DATA}/meta.properties", b"version=5\n")
    problems = {(item.path, item.line) for item in verify(disk).problems}
    assert problems == {(f"{FOLDER}/partition.metadata", 2), (f"{DATA}/meta.properties", 1)}


@pytest.mark.parametrize(
    ("name", "lenient"),
    [
        ("recovery-point-offset-checkpoint", False),
        ("replication-offset-checkpoint", True),
        ("log-start-offset-checkpoint", True),
        ("cleaner-offset-checkpoint", True),
    ],
)
def test_a_checkpoint_beyond_the_log_is_reported(
    disk: SimulatedDisk, name: str, lenient: bool
) -> None:
    path = f"{DATA}/{name}"
    content = disk.files()[f"{DATA}/recovery-point-offset-checkpoint"]
    (partition,) = decode_offsets(content, path)
    put(disk, path, encode_offsets({partition: Offset(9999)}))
    problem = only_problem(disk)
    assert (problem.kind, problem.path, problem.line) == ("checkpoint", path, 3)
    disk.remove(f"{DATA}/.kafka_cleanshutdown")
    assert verify(disk).is_clean is lenient  # only flushed records cannot have been lost
