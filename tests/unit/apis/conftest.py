"""A broker of one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.apis.workbench import Workbench


@pytest.fixture(name="bench")
def _bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(tmp_path)
    yield bench
    bench.close()
