"""The broker of one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.apis.harness import ApiHarness


@pytest.fixture(name="harness")
def _harness(tmp_path: Path) -> Iterator[ApiHarness]:
    harness = ApiHarness(tmp_path)
    yield harness
    harness.close()
