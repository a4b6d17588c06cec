"""Files and folders with unknown names or without their companions."""

from pathlib import Path

from tests.unit.storage.sample_logs import fill, writing
from tests.unit.storage.verify.damage import DATA, FOLDER, locations_of, put, verify

from penstock.storage.verify import verify_directory
from penstock.testing.simulated_disk import SimulatedDisk


def test_an_index_without_its_log_is_reported(disk: SimulatedDisk) -> None:
    path = f"{FOLDER}/{12345:020d}.index"
    put(disk, path, b"")
    assert locations_of(verify(disk)) == {("orphan", path, None)}


def test_a_segment_with_a_wrong_name_is_reported(disk: SimulatedDisk) -> None:
    paths = [f"{FOLDER}/12345.log", f"{FOLDER}/{'9' * 20}.log"]
    for path in paths:
        put(disk, path, b"")
    assert locations_of(verify(disk)) == {("name", path, None) for path in paths}


def test_leftovers_and_unknown_files_are_notes(disk: SimulatedDisk) -> None:
    names = {
        f"{FOLDER}/{0:020d}.log.cleaned": "leftover",
        f"{FOLDER}/{0:020d}.log.swap": "leftover",
        f"{FOLDER}/{0:020d}.index.deleted": "leftover",
        f"{FOLDER}/leader-epoch-checkpoint.tmp": "leftover",
        f"{FOLDER}/notes.txt": "unknown",
        f"{DATA}/recovery-point-offset-checkpoint.tmp": "leftover",
        f"{DATA}/notes.txt": "unknown",
    }
    for path in names:
        put(disk, path, b"")
    for folder, kind in [
        (f"t-0.{'7' * 32}-delete", "leftover"),
        ("t-0.77-delete", "unknown"),
        ("x", "unknown"),
        ("t-1-stray", "leftover"),
    ]:
        disk.make_directory(f"{DATA}/{folder}")
        names[f"{DATA}/{folder}"] = kind
    findings = verify(disk)
    assert findings.problems == []
    assert {note.path: note.kind for note in findings.notes} == names


def test_a_folder_that_cannot_be_read_is_reported_and_the_others_are_checked(
    disk: SimulatedDisk, tmp_path: Path
) -> None:
    with writing(tmp_path) as writer:
        fill(writer)
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / f"{0:020d}.log").mkdir()
    (tmp_path / "a-0" / "partition.metadata").mkdir()
    findings = verify_directory(tmp_path)
    assert [item.kind for item in findings.problems] == ["unreadable"]
    assert findings.batches == verify(disk).batches
