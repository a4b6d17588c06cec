"""Runs in files: what is appended is taken once, and a new shard begins without any."""

from pathlib import Path

import pytest

from penstock.coordinators.deferred.file_runs import FileRuns
from penstock.io.disk import Disk, RealDisk
from penstock.testing.simulated_disk import SimulatedDisk


@pytest.fixture(params=["real", "simulated"])
def disk_and_folder(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(), f"{tmp_path}/deferred"
    return SimulatedDisk("/data"), "/data/deferred"


def test_a_run_is_taken_once_and_whole(disk_and_folder: tuple[Disk, str]) -> None:
    runs = FileRuns(*disk_and_folder)
    runs.append(7, b"one")
    runs.append(8, b"other")
    runs.append(7, b"two")
    assert runs.take(7) == b"onetwo"
    assert runs.take(7) == b""
    assert runs.take(9) == b""
    assert runs.take(8) == b"other"


def test_what_an_earlier_shard_left_is_removed(disk_and_folder: tuple[Disk, str]) -> None:
    disk, folder = disk_and_folder
    FileRuns(disk, folder).append(7, b"old")
    runs = FileRuns(disk, folder)
    assert disk.list(folder) == []
    assert runs.take(7) == b""
