"""A broker whose controller is scripted, for every test of a request that administers it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.apis.admin.cases import Case


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(log_dirs=(tmp_path / "logs",))
    yield made
    made.close()
