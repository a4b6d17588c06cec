"""Both engines: every test here is asked of segments on a disk and of lists in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.storage.engine.cases import CONFIG, Case

from penstock.config.log_config import StorageConfig
from penstock.storage.engine import Engine
from penstock.storage.segmented import SegmentedEngine
from penstock.testing.memory_engine import MemoryEngine


@pytest.fixture(params=["segmented", "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "memory":
        yield MemoryEngine()
        return
    storage = StorageConfig(log_dirs=(str(tmp_path / "logs"),))
    segmented = SegmentedEngine(storage, config_of=lambda topic: CONFIG)
    yield segmented
    segmented.close()


@pytest.fixture
def case(engine: Engine) -> Case:
    return Case(engine)
