"""A broker with a fake controller, for tests of admin requests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.apis.admin.harness import AdminApiHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AdminApiHarness]:
    made = AdminApiHarness(log_dirs=(tmp_path / "logs",))
    yield made
    made.close()
