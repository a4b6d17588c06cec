"""Every engine: each test of this folder runs once per entry of `ENGINES`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.storage.engine.cases import Case
from tests.unit.storage.engine.engines import ENGINES, EngineData

from penstock.storage.engine import Engine


@pytest.fixture(params=ENGINES)
def engine_data(request: pytest.FixtureRequest, tmp_path: Path) -> EngineData:
    return ENGINES[request.param](tmp_path / "logs")


@pytest.fixture
def engine(engine_data: EngineData) -> Iterator[Engine]:
    engine = engine_data.make_engine()
    yield engine
    engine.close()


@pytest.fixture
def case(engine: Engine) -> Case:
    return Case(engine)
