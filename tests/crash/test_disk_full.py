"""A real file system fills up: the log on it is fenced, the other keeps working (KAFKA-10778)."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.crash.harness import NOW_MS, TOPIC_ID, progress, read_all

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.io.disk import RealDisk
from penstock.model.ids import LeaderEpoch, TopicPartition
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.storage.engine import AppendItem, LogAppendInfo
from penstock.storage.errors import LogFenced, StorageError
from penstock.storage.log import SegmentedLog
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.storage.verify import verify_directory

CONFIG = LogConfig(segment_bytes=300_000, retention_ms=-1)
SMALL, LARGE = TopicPartition("small", 0), TopicPartition("large", 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of 2 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    try:
        mounted = _mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path))
    except FileNotFoundError:
        pytest.skip("there is no mount command here: a full disk cannot be tried")
    if mounted.returncode:
        pytest.skip(f"a file system can only be mounted by root: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)


def _open(*directories: Path) -> SegmentedEngine:
    engine = SegmentedEngine(
        StorageConfig(log_dirs=tuple(map(str, directories))), config_of=lambda topic: CONFIG
    )
    engine.recover(progress, NOW_MS)
    return engine


def _create(engine: SegmentedEngine, partition: TopicPartition) -> SegmentedLog:
    log = engine.create(partition, TOPIC_ID, CONFIG, NOW_MS)
    assert isinstance(log, SegmentedLog)
    return log


def _append(engine: SegmentedEngine, log: SegmentedLog) -> LogAppendInfo | StorageError:
    value = b"%d " % log.log_end_offset * 5000
    batch = build_batch([Record(0, NOW_MS, None, value)])
    return engine.append([AppendItem(log, memoryview(batch), LeaderEpoch(0))], NOW_MS)[0]


def _flush(engine: SegmentedEngine, log: SegmentedLog) -> object:
    answers: list[object] = []
    engine.flush(log, log.log_end_offset, answers.append)
    return answers[0]


def test_a_full_disk_fences_its_logs_and_loses_nothing_acknowledged(
    small_disk: Path, tmp_path: Path
) -> None:
    engine = _open(small_disk / "data", tmp_path / "large")
    small, large = _create(engine, SMALL), _create(engine, LARGE)
    assert small.directory.startswith(str(small_disk))
    acknowledged = _fill(engine, small)
    assert acknowledged > 10
    (small_disk / "data" / ".lock").stat()
    _check_fenced(engine, small)
    assert isinstance(_append(engine, large), LogAppendInfo)
    assert _flush(engine, large) is None
    assert set(engine.statistics().failed_directories) == {str(small_disk / "data")}
    engine.abandon()

    assert not _mount("-o", "remount,size=8m", str(small_disk)).returncode
    reopened = _open(small_disk / "data", tmp_path / "large")
    logs = {log.tp: log for log in reopened.statistics().logs}
    assert logs[SMALL].log_end_offset >= acknowledged
    assert logs[LARGE].log_end_offset == 1
    _check_values(reopened, acknowledged)
    reopened.close()
    assert verify_directory(str(small_disk / "data"), records=True).problems == []


def test_starting_on_a_full_disk_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    engine = _open(small_disk / "data", tmp_path / "large")
    acknowledged = _fill(engine, _create(engine, SMALL))
    engine.abandon()
    _fill_up(small_disk / "ballast")
    _open(small_disk / "data", tmp_path / "large").abandon()  # the small one may be offline
    (small_disk / "ballast").unlink()
    reopened = _open(small_disk / "data", tmp_path / "large")
    assert not reopened.statistics().failed_directories
    _check_values(reopened, acknowledged)
    reopened.abandon()


def _fill(engine: SegmentedEngine, log: SegmentedLog) -> int:
    """Appends until it fails; returns the end offset of the last acknowledged record."""
    acknowledged = 0
    while isinstance(result := _append(engine, log), LogAppendInfo):
        if _flush(engine, log) is None:
            acknowledged = result.end_offset
    assert isinstance(result, LogFenced)
    return acknowledged


def _check_fenced(engine: SegmentedEngine, log: SegmentedLog) -> None:
    """Checks that the log is fenced at once, and stays so even with free space."""
    size = log.segments.active.size
    assert isinstance(_append(engine, log), LogFenced)
    assert isinstance(_flush(engine, log), LogFenced)
    assert log.segments.active.size == size


def _fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(4096))


def _check_values(engine: SegmentedEngine, acknowledged: int) -> None:
    log = engine._logs[SMALL]
    values = [record.value for batch in read_all(log, RealDisk()) for record in iter_records(batch)]
    assert len(values) >= acknowledged
    assert values == [b"%d " % offset * 5000 for offset in range(len(values))]
