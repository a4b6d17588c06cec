"""A failed start removes the directories that it created, and nothing else."""

from pathlib import Path

from penstock.io.disk import RealDisk
from penstock.logs.event_logger import NO_LOGGER, message_logger
from penstock.server.new_directories import NewDirectories, find_missing
from penstock.storage.log_directory import LocalLogDirectory

DISK = RealDisk()


def start_in(*directories: Path) -> NewDirectories:
    """Do what a start does before it fails to bind its listeners."""
    paths = [str(directory) for directory in directories]
    missing = find_missing(DISK, paths)
    for path in paths:
        LocalLogDirectory(DISK, path).lock()
    new = NewDirectories(DISK, paths, missing)
    for directory in directories:
        (directory / ".coordination").mkdir(exist_ok=True)
        (directory / ".coordination" / "journal").write_bytes(b"x")
        (directory / "meta.properties").write_bytes(b"x")
    return new


def test_directories_and_parents_that_the_start_created_are_removed(tmp_path: Path) -> None:
    reports: list[str] = []
    new = start_in(tmp_path / "a" / "b" / "one", tmp_path / "a" / "two")
    new.remove(message_logger(reports.append))
    assert (list(tmp_path.iterdir()), reports) == ([], [])


def test_an_empty_directory_of_the_operator_is_emptied_but_not_removed(tmp_path: Path) -> None:
    start_in(tmp_path).remove(NO_LOGGER)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_content_is_not_changed(tmp_path: Path) -> None:
    old = tmp_path / "old"
    (old / "orders-0").mkdir(parents=True)
    start_in(old, tmp_path / "new").remove(NO_LOGGER)
    assert sorted(path.name for path in old.iterdir()) == [
        ".coordination",
        ".lock",
        "meta.properties",
        "orders-0",
    ]
    assert list(tmp_path.iterdir()) == [old]


def test_nothing_is_removed_once_the_broker_may_be_registered(tmp_path: Path) -> None:
    new = start_in(tmp_path / "data")
    new.keep()
    new.remove(NO_LOGGER)
    assert (tmp_path / "data" / "meta.properties").exists()
