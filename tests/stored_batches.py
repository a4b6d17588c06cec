"""What a broker's log directory holds, of either storage engine, whether the broker runs or not."""

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.model.ids import TopicPartition
from penstock.storage.commit_log.commit_log_engine import CommitLogEngine
from penstock.storage.engine import PartitionLog
from penstock.testing.default_config import read_default_config

on_segments = pytest.mark.skipif(
    read_default_config().get("storage.engine", "segmented") != "segmented",
    reason="changes files of the segmented engine",
)


def has_shared_log(data: Path) -> bool:
    return (data / "commitlog").is_dir()


def read_stored(data: Path, topic: str, partition: int) -> bytes:
    """All batches of the partition; the last one may be still being written."""
    if has_shared_log(data):
        return _read_shared(data, TopicPartition(topic, partition)) or b""
    folders = list(data.rglob(f"{topic}-{partition}"))
    assert len(folders) <= 1, f"{topic}-{partition} has these folders: {folders}"
    segments = (path for folder in folders for path in sorted(folder.glob("*.log")))
    return b"".join(path.read_bytes() for path in segments)


def is_stored(data: Path, topic: str, partition: int) -> bool:
    if has_shared_log(data):
        return _read_shared(data, TopicPartition(topic, partition)) is not None
    return (data / f"{topic}-{partition}").exists()


def _read_shared(data: Path, tp: TopicPartition) -> bytes | None:
    """From a copy, because opening a commit log repairs it. None: there is no such partition."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        copy.mkdir()
        # The checkpoint first: it must not know more than the files.
        for name in ("commitlog-checkpoint", "consumequeue", "commitlog"):
            _copy(data / name, copy / name)
        (copy / "abort").touch()
        engine = CommitLogEngine(
            StorageConfig(log_dirs=(str(copy),)), config_of=lambda topic: LogConfig()
        )
        logs = engine.recover(lambda *, done, total: None, 0)
        content = _read_all(logs[tp]) if tp in logs else None
        engine.abandon()
        return content


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir()
        for path in sorted(source.iterdir()):
            _copy(path, target / path.name)
        return
    with suppress(FileNotFoundError):  # the broker has removed it meanwhile
        shutil.copyfile(source, target)


def _read_all(log: PartitionLog) -> bytes:
    parts: list[bytes] = []
    position = log.log_start_offset
    while position < log.log_end_offset:
        read = log.read(position, below=log.log_end_offset, max_bytes=1 << 20, at_least_one=True)
        parts += [os.pread(piece.fd, piece.length, piece.position) for piece in read.slices]
        read.lease.release()
        position = read.end_offset
    return b"".join(parts)
