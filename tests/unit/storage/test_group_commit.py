"""Flush rounds: their results when logs fail, are truncated or deleted meanwhile."""

from __future__ import annotations

import queue
from collections.abc import Callable
from errno import EIO

import pytest
from tests.unit.storage.several_logs import CONFIG, FIRST, NOW_MS, SECOND, Deferred, Shelf

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.model.ids import Offset, TopicPartition
from penstock.storage.errors import (
    DirectoryFailed,
    DirectoryLocked,
    LogFenced,
    OffsetOutOfRange,
    StorageError,
)
from penstock.storage.flush_threads import FlushThreads
from penstock.storage.partition_metadata import CLEAN_SHUTDOWN_FILE
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import LoseEverything, OperationKind, SimulatedDisk

LARGE = LogConfig(retention_ms=-1)  # one segment: a round of a log is one sync of data


@pytest.fixture
def background() -> Deferred:
    return Deferred()


def test_a_failed_log_never_advances_its_durable_offset(background: Deferred) -> None:
    """The kernel reports a failed sync once; the next succeeds without syncing anything."""
    shelf = Shelf(config=LARGE, background=background)
    log = shelf.create()
    shelf.append(log, 3)
    first = shelf.flush(log)
    shelf.append(log, 3)
    second = shelf.flush(log)
    shelf.disk.fail_at(len(shelf.disk.trace), EIO)
    background.drain()
    assert [type(answer) for answer in first + second] == [LogFenced, LogFenced]
    assert log.durable_offset == 0
    shelf.engine.close()
    assert log.durable_offset == 0
    assert not [path for path in shelf.disk.files() if path.endswith(CLEAN_SHUTDOWN_FILE)]


@pytest.mark.parametrize("ordinal", range(8))
def test_durable_records_survive_the_failure_of_any_call(
    background: Deferred, ordinal: int
) -> None:
    shelf = Shelf(background=background)
    logs = [shelf.create(FIRST), shelf.create(SECOND)]
    for turn in range(3):
        for log in logs:
            shelf.append(log, 2, epoch=turn)
            shelf.flush(log)
    shelf.disk.fail_at(len(shelf.disk.trace) + ordinal, EIO)
    background.drain()
    assert shelf.failed
    promised = {log.tp: log.durable_offset for log in logs}
    for log in logs:
        assert isinstance(shelf.try_append(log), LogFenced)
        assert [type(answer) for answer in shelf.flush(log)] == [LogFenced]
    background.drain()
    assert promised == {log.tp: log.durable_offset for log in logs}
    shelf.disk.heal()
    restarted = shelf.after(shelf.disk.survivor_of_power_cut(LoseEverything()))
    for partition, offset in promised.items():
        if offset:
            assert restarted.logs[partition].log_end_offset >= offset


def test_a_failed_append_fails_running_and_queued_flushes(background: Deferred) -> None:
    shelf = Shelf(config=LARGE, background=background)
    log, other = shelf.create(FIRST), shelf.create(SECOND)
    shelf.append(log)
    shelf.append(other)
    answers = [shelf.flush(log), shelf.flush(other)]
    shelf.disk.fail_path("/d/a-0", EIO, {OperationKind.WRITE})
    assert isinstance(shelf.try_append(log), LogFenced)
    background.drain()
    assert [[type(answer) for answer in results] for results in answers] == [
        [LogFenced],
        [LogFenced],
    ]
    assert (log.durable_offset, other.durable_offset) == (0, 0)


def test_every_flush_callback_runs_once_whatever_happens_to_the_log(background: Deferred) -> None:
    shelf = Shelf(background=background)
    logs = [shelf.create(TopicPartition("t", number)) for number in range(6)]
    answers: list[list[StorageError | None]] = []
    for log in logs:
        shelf.append(log, 4)
        answers += [shelf.flush(log), shelf.flush(log)]
    shelf.engine.delete(logs[0].tp)
    shelf.engine.delete(logs[3].tp)
    logs[4].truncate_to(Offset(2), NOW_MS)
    logs[5].restart_at(Offset(0), NOW_MS)
    shelf.append(logs[4], 2)
    shelf.append(logs[5], 1)
    background.drain()
    assert [len(answer) for answer in answers] == [1] * 12
    assert not shelf.failed


def test_a_flush_of_truncated_records_does_not_cover_their_successors(
    background: Deferred,
) -> None:
    shelf = Shelf(background=background)
    log = shelf.create()
    shelf.append(log, 4, epoch=1)
    answers = shelf.flush(log)
    log.truncate_to(Offset(2), NOW_MS)
    shelf.append(log, 1, epoch=2)
    background.drain()
    assert len(answers) == 1
    if answers == [None]:
        lost = shelf.after(shelf.disk.survivor_of_power_cut(LoseEverything()))
        assert lost.logs[FIRST].log_end_offset == log.durable_offset == 4


def test_a_flush_requested_during_a_truncation_completes(
    background: Deferred,
) -> None:
    """A caller that learns of the truncation requests a flush before the log has its new end."""
    shelf = Shelf(config=LARGE, background=background)
    log = shelf.create()
    shelf.append(log, 5)
    again: list[StorageError | None] = []

    def ask_again(error: StorageError | None) -> None:
        shelf.engine.flush(log, log.log_end_offset, again.append)

    shelf.engine.flush(log, log.log_end_offset, ask_again)
    log.truncate_to(Offset(4), NOW_MS)
    for _ in range(10):
        if background.waiting:
            background.waiting.pop(0)()
    assert not background.waiting
    assert [type(answer) for answer in again] == [OffsetOutOfRange]


def test_a_folder_removed_by_somebody_else_fails_its_directory(background: Deferred) -> None:
    shelf = Shelf(background=background)
    log = shelf.create()
    shelf.append(log)
    answers = shelf.flush(log)
    shelf.disk.rename("/d/a-0", "/d/elsewhere")
    background.drain()
    assert [type(answer) for answer in answers] == [LogFenced]
    assert shelf.failed


def test_rounds_on_threads_complete_every_flush() -> None:
    posted: queue.Queue[Callable[[], None]] = queue.Queue()
    answers: list[StorageError | None] = []
    with FlushThreads(4) as threads:
        disk = SimulatedDisk("/d")
        engine = SegmentedEngine(
            StorageConfig(log_dirs=("/d",)),
            config_of=lambda topic: CONFIG,
            disk=disk,
            background=threads,
            post=posted.put,
        )
        engine.recover(lambda *, done, total: None, NOW_MS)
        shelf = Shelf(disk=SimulatedDisk("/d"))
        shelf.engine = engine
        requested = 0
        for turn in range(60):
            log = shelf.create(TopicPartition("t", turn % 3), topic_id=turn + 1)
            shelf.append(log, 3, epoch=turn)
            engine.flush(log, log.log_end_offset, answers.append)
            requested += 1
            if turn % 3 == 2:
                for number in range(3):
                    engine.delete(TopicPartition("t", number))
            while not posted.empty():
                posted.get()()
        while len(answers) < requested:
            posted.get(timeout=30)()
    assert not engine.statistics().failed_directories
    assert {type(answer) for answer in answers} <= {type(None), LogFenced}


# -- starting and cutting ----------------------------------------------------------------------


def test_a_refused_start_leaves_no_directory_locked() -> None:
    disk = SimulatedDisk("/d", "/e")
    busy = Shelf(disk, directories=("/e",))
    with pytest.raises(DirectoryLocked):
        Shelf(disk, directories=("/d", "/e"))
    Shelf(disk, directories=("/d",)).engine.close()
    busy.engine.close()
    both = Shelf(disk, directories=("/d", "/e"))
    both.engine.close()
    assert disk.open_descriptors == 0


def test_a_refused_start_keeps_the_clean_shutdown_marker() -> None:
    disk = SimulatedDisk("/d", "/e")
    Shelf(disk, directories=("/d", "/e")).engine.close()
    busy = Shelf(disk, directories=("/e",))
    with pytest.raises(DirectoryLocked):
        Shelf(disk, directories=("/d", "/e"))
    assert f"/d/{CLEAN_SHUTDOWN_FILE}" in disk.files()
    busy.engine.close()


def test_a_start_without_any_working_directory_leaves_none_locked() -> None:
    disk = SimulatedDisk("/d")
    Shelf(disk).engine.close()
    disk.fail_path(CLEAN_SHUTDOWN_FILE, EIO)
    with pytest.raises(DirectoryFailed):
        Shelf(disk)
    disk.heal()
    Shelf(disk).engine.close()
    assert disk.open_descriptors == 0


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_a_log_cannot_be_truncated_below_zero(offset: int) -> None:
    shelf = Shelf()
    log = shelf.create()
    shelf.append(log, 5)
    files = shelf.disk.files()
    with pytest.raises(OffsetOutOfRange):
        log.truncate_to(Offset(offset), NOW_MS)
    with pytest.raises(OffsetOutOfRange):
        log.restart_at(Offset(offset), NOW_MS)
    assert shelf.disk.files() == files
    assert shelf.base_offsets(log) == [0, 2, 4, 6, 8]
