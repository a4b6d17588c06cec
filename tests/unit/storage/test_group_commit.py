"""Flush rounds: their results when logs fail, are truncated or deleted meanwhile."""

from __future__ import annotations

import queue
from collections.abc import Callable
from errno import EIO

import pytest
from tests.unit.storage.several_logs import CONFIG, FIRST, NOW_MS, SECOND, Deferred, EngineHarness

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

LARGE = LogConfig(retention_ms=-1)  # one segment, so a round syncs one data file per log


@pytest.fixture
def background() -> Deferred:
    return Deferred()


def test_a_failed_log_never_advances_its_durable_offset(background: Deferred) -> None:
    """The kernel reports a failed sync once; the next succeeds without syncing anything."""
    harness = EngineHarness(config=LARGE, background=background)
    log = harness.create()
    harness.append(log, 3)
    first = harness.flush(log)
    harness.append(log, 3)
    second = harness.flush(log)
    harness.disk.fail_at(len(harness.disk.trace), EIO)
    background.drain()
    assert [type(answer) for answer in first + second] == [LogFenced, LogFenced]
    assert log.durable_offset == 0
    harness.engine.close()
    assert log.durable_offset == 0
    assert not [path for path in harness.disk.files() if path.endswith(CLEAN_SHUTDOWN_FILE)]


def test_a_round_is_timed_once_and_each_of_its_logs(background: Deferred) -> None:
    harness = EngineHarness(background=background)
    logs = [harness.create(FIRST), harness.create(SECOND)]
    for log in logs:
        harness.append(log, 1)
    harness.flush(logs[0])  # the first round has it alone, the second has what came meanwhile
    for log in logs:
        harness.append(log, 1)
        harness.flush(log)
    background.drain()
    flushes = harness.engine.directory_statistics().flushes
    assert (flushes.rounds.total, flushes.logs.total) == (2, 3)
    assert flushes.rounds.sum_s > 0


def test_a_round_counts_its_logs_and_what_was_appended_to_them(background: Deferred) -> None:
    harness = EngineHarness(config=LARGE, background=background)
    first, second = harness.create(FIRST), harness.create(SECOND)
    harness.append(first, 1)
    batch_bytes = first.size_bytes
    harness.flush(first)
    for log, batches in ((first, 2), (second, 4)):
        harness.append(log, batches)
        harness.flush(log)
    background.drain()
    flushes = harness.engine.directory_statistics().flushes
    assert (flushes.round_logs.total, flushes.round_logs.sum) == (2, 1 + 2)
    assert flushes.round_bytes.sum == (1 + 6) * batch_bytes


def test_a_round_counts_bytes_of_sealed_segments_once(background: Deferred) -> None:
    harness = EngineHarness(background=background)  # a few batches fill a segment
    log = harness.create()
    for _ in range(3):
        harness.append(log, 5)
        harness.flush(log)
        background.drain()
    assert log.segment_count > 3
    flushes = harness.engine.directory_statistics().flushes
    assert flushes.round_bytes.sum == log.size_bytes


def test_bytes_that_a_truncation_removed_are_in_no_round(background: Deferred) -> None:
    harness = EngineHarness(config=LARGE, background=background)
    log = harness.create()
    harness.append(log, 3)
    log.truncate_to(Offset(0), NOW_MS)
    harness.engine.close()
    assert harness.engine.directory_statistics().flushes.round_bytes.sum == 0


@pytest.mark.parametrize("ordinal", range(8))
def test_durable_records_survive_the_failure_of_any_call(
    background: Deferred, ordinal: int
) -> None:
    harness = EngineHarness(background=background)
    logs = [harness.create(FIRST), harness.create(SECOND)]
    for turn in range(3):
        for log in logs:
            harness.append(log, 2, epoch=turn)
            harness.flush(log)
    harness.disk.fail_at(len(harness.disk.trace) + ordinal, EIO)
    background.drain()
    assert harness.failed
    promised = {log.tp: log.durable_offset for log in logs}
    for log in logs:
        assert isinstance(harness.try_append(log), LogFenced)
        assert [type(answer) for answer in harness.flush(log)] == [LogFenced]
    background.drain()
    assert promised == {log.tp: log.durable_offset for log in logs}
    harness.disk.heal()
    restarted = harness.after(harness.disk.survivor_of_power_cut(LoseEverything()))
    for partition, offset in promised.items():
        if offset:
            assert restarted.logs[partition].log_end_offset >= offset


def test_a_failed_append_fails_running_and_queued_flushes(background: Deferred) -> None:
    harness = EngineHarness(config=LARGE, background=background)
    log, other = harness.create(FIRST), harness.create(SECOND)
    harness.append(log)
    harness.append(other)
    answers = [harness.flush(log), harness.flush(other)]
    harness.disk.fail_path("/d/a-0", EIO, {OperationKind.WRITE})
    assert isinstance(harness.try_append(log), LogFenced)
    background.drain()
    assert [[type(answer) for answer in results] for results in answers] == [
        [LogFenced],
        [LogFenced],
    ]
    assert (log.durable_offset, other.durable_offset) == (0, 0)


def test_every_flush_callback_runs_once_whatever_happens_to_the_log(background: Deferred) -> None:
    harness = EngineHarness(background=background)
    logs = [harness.create(TopicPartition("t", number)) for number in range(6)]
    answers: list[list[StorageError | None]] = []
    for log in logs:
        harness.append(log, 4)
        answers += [harness.flush(log), harness.flush(log)]
    harness.engine.delete(logs[0].tp)
    harness.engine.delete(logs[3].tp)
    logs[4].truncate_to(Offset(2), NOW_MS)
    logs[5].restart_at(Offset(0), NOW_MS)
    harness.append(logs[4], 2)
    harness.append(logs[5], 1)
    background.drain()
    assert [len(answer) for answer in answers] == [1] * 12
    assert not harness.failed


def test_a_flush_of_truncated_records_does_not_cover_their_successors(
    background: Deferred,
) -> None:
    harness = EngineHarness(background=background)
    log = harness.create()
    harness.append(log, 4, epoch=1)
    answers = harness.flush(log)
    log.truncate_to(Offset(2), NOW_MS)
    harness.append(log, 1, epoch=2)
    background.drain()
    assert len(answers) == 1
    if answers == [None]:
        lost = harness.after(harness.disk.survivor_of_power_cut(LoseEverything()))
        assert lost.logs[FIRST].log_end_offset == log.durable_offset == 4


def test_a_flush_requested_during_a_truncation_completes(
    background: Deferred,
) -> None:
    """A caller notified of the truncation requests a flush before the log has its new end."""
    harness = EngineHarness(config=LARGE, background=background)
    log = harness.create()
    harness.append(log, 5)
    again: list[StorageError | None] = []

    def ask_again(error: StorageError | None) -> None:
        harness.engine.flush(log, log.log_end_offset, again.append)

    harness.engine.flush(log, log.log_end_offset, ask_again)
    log.truncate_to(Offset(4), NOW_MS)
    for _ in range(10):
        if background.waiting:
            background.waiting.pop(0)()
    assert not background.waiting
    assert [type(answer) for answer in again] == [OffsetOutOfRange]


def test_a_folder_removed_by_another_process_fails_its_directory(background: Deferred) -> None:
    harness = EngineHarness(background=background)
    log = harness.create()
    harness.append(log)
    answers = harness.flush(log)
    harness.disk.rename("/d/a-0", "/d/elsewhere")
    background.drain()
    assert [type(answer) for answer in answers] == [LogFenced]
    assert harness.failed


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
        harness = EngineHarness(disk=SimulatedDisk("/d"))
        harness.engine = engine
        requested = 0
        for turn in range(60):
            log = harness.create(TopicPartition("t", turn % 3), topic_id=turn + 1)
            harness.append(log, 3, epoch=turn)
            engine.flush(log, log.log_end_offset, answers.append)
            requested += 1
            if turn % 3 == 2:
                for number in range(3):
                    engine.delete(TopicPartition("t", number))
            while not posted.empty():
                posted.get()()
        while len(answers) < requested:
            posted.get(timeout=180)()
    assert not engine.statistics().failed_directories
    assert {type(answer) for answer in answers} <= {type(None), LogFenced}


# -- start and truncation ----------------------------------------------------------------------


def test_a_failed_start_leaves_no_directory_locked() -> None:
    disk = SimulatedDisk("/d", "/e")
    busy = EngineHarness(disk, directories=("/e",))
    with pytest.raises(DirectoryLocked):
        EngineHarness(disk, directories=("/d", "/e"))
    EngineHarness(disk, directories=("/d",)).engine.close()
    busy.engine.close()
    both = EngineHarness(disk, directories=("/d", "/e"))
    both.engine.close()
    assert disk.open_descriptors == 0


def test_a_failed_start_keeps_the_clean_shutdown_marker() -> None:
    disk = SimulatedDisk("/d", "/e")
    EngineHarness(disk, directories=("/d", "/e")).engine.close()
    busy = EngineHarness(disk, directories=("/e",))
    with pytest.raises(DirectoryLocked):
        EngineHarness(disk, directories=("/d", "/e"))
    assert f"/d/{CLEAN_SHUTDOWN_FILE}" in disk.files()
    busy.engine.close()


def test_a_start_without_any_working_directory_leaves_none_locked() -> None:
    disk = SimulatedDisk("/d")
    EngineHarness(disk).engine.close()
    disk.fail_path(CLEAN_SHUTDOWN_FILE, EIO)
    with pytest.raises(DirectoryFailed):
        EngineHarness(disk)
    disk.heal()
    EngineHarness(disk).engine.close()
    assert disk.open_descriptors == 0


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_a_log_cannot_be_truncated_below_zero(offset: int) -> None:
    harness = EngineHarness()
    log = harness.create()
    harness.append(log, 5)
    files = harness.disk.files()
    with pytest.raises(OffsetOutOfRange):
        log.truncate_to(Offset(offset), NOW_MS)
    with pytest.raises(OffsetOutOfRange):
        log.restart_at(Offset(offset), NOW_MS)
    assert harness.disk.files() == files
    assert harness.base_offsets(log) == [0, 2, 4, 6, 8]
