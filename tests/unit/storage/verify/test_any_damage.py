"""Damage anywhere is reported and never raises."""

import pytest
from tests.profile import scaled
from tests.unit.storage.verify.damage import DATA, FOLDER, flip, sealed

from penstock.storage.verify import count_log_bytes, verify_directory
from penstock.testing.simulated_disk import SimulatedDisk


def test_every_detectable_flipped_bit_of_a_log_file_is_reported(
    disk: SimulatedDisk,
) -> None:
    """Offset and epoch are outside the CRC, so only a contradiction reveals damage there."""
    path = sealed(disk)
    size = len(disk.files()[path])
    missed = []
    for position in range(0, size, scaled(test=11, verify=1, release=1)):
        damaged = disk.copy()
        flip(damaged, path, position, bit=position % 8)
        findings = verify_directory(FOLDER, damaged)
        if findings.is_clean:
            missed.append(position)
    assert missed == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_every_flipped_bit_of_a_companion_is_reported(disk: SimulatedDisk, suffix: str) -> None:
    path = sealed(disk, suffix)
    for position in range(len(disk.files()[path])):
        damaged = disk.copy()
        flip(damaged, path, position, bit=position % 8)
        assert path in {item.path for item in verify_directory(FOLDER, damaged).all}


def test_any_truncated_file_yields_findings_not_errors(disk: SimulatedDisk) -> None:
    step = scaled(test=67, verify=7, release=1)
    for path, content in disk.files().items():
        for length in range(0, len(content), step):
            damaged = disk.copy()
            damaged.cut(path, length)
            verify_directory(DATA, damaged, records=True)


def test_progress_adds_up_to_the_bytes_of_all_log_files(disk: SimulatedDisk) -> None:
    steps: list[int] = []
    verify_directory(DATA, disk, progress=steps.append)
    logs = [content for path, content in disk.files().items() if path.endswith(".log")]
    assert sum(steps) == count_log_bytes(disk, DATA) == sum(map(len, logs))
