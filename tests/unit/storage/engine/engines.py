"""The engines that the contract suite runs on. A new engine is one more entry of `ENGINES`."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from tests.unit.storage.engine.cases import CONFIG
from tests.unit.storage.engine.memory_engine import MemoryData, MemoryEngine

from penstock.config.log_config import StorageConfig
from penstock.model.ids import TopicPartition
from penstock.storage.commit_log.commit_log_engine import CommitLogEngine
from penstock.storage.engine import Engine
from penstock.storage.segmented_engine import SegmentedEngine


class EngineData(Protocol):
    """The data of one broker: creates engines, and can be damaged while none of them is open."""

    def make_engine(self) -> Engine:
        """Create a new engine over this data, not recovered yet."""
        ...

    def lose(self, tp: TopicPartition) -> None:
        """Remove the records of one partition without the engine's knowledge."""
        ...

    def fail(self) -> None:
        """Make the data unusable, like a failed disk."""
        ...


class SegmentedData:
    def __init__(self, path: Path) -> None:
        self._path = path

    def make_engine(self) -> Engine:
        storage = StorageConfig(log_dirs=(str(self._path),))
        return SegmentedEngine(storage, config_of=lambda topic: CONFIG)

    def lose(self, tp: TopicPartition) -> None:
        shutil.rmtree(self._path / str(tp))

    def fail(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
        self._path.write_bytes(b"a file where the directory should be")


class CommitLogData(SegmentedData):
    def make_engine(self) -> Engine:
        storage = StorageConfig(log_dirs=(str(self._path),), commit_log_file_bytes=2000)
        return CommitLogEngine(storage, config_of=lambda topic: CONFIG)

    def lose(self, tp: TopicPartition) -> None:
        """The others have no records yet."""
        shutil.rmtree(self._path / "commitlog")


class InMemoryData:
    def __init__(self, path: Path) -> None:
        self._data = MemoryData()

    def make_engine(self) -> Engine:
        return MemoryEngine(self._data)

    def lose(self, tp: TopicPartition) -> None:
        del self._data.logs[tp]

    def fail(self) -> None:
        self._data.failure = OSError("the disk is broken")


ENGINES: Mapping[str, Callable[[Path], EngineData]] = {
    "segmented": SegmentedData,
    "commitlog": CommitLogData,
    "memory": InMemoryData,
}
