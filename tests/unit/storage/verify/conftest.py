"""A clean data directory, copied for every test."""

import pytest
from tests.unit.storage.sample_logs import fill, writing
from tests.unit.storage.verify.damage import DATA

from penstock.testing.simulated_disk import SimulatedDisk


@pytest.fixture(scope="module")
def sample() -> SimulatedDisk:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        fill(writer)
    return disk


@pytest.fixture
def disk(sample: SimulatedDisk) -> SimulatedDisk:
    return sample.copy()
