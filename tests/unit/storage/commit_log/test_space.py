"""Sizes per partition, retention, full disks and several log directories of the commit log."""

from errno import ENOSPC

import pytest
from tests.unit.storage.commit_log.shared_log import SharedLog
from tests.unit.storage.several_logs import FIRST, LONG_MS, NOW_MS, SECOND

from penstock.config.log_config import LogConfig
from penstock.model.ids import Offset, TopicPartition
from penstock.storage.engine import LogAppendInfo
from penstock.storage.errors import DirectoryFailed, LogFenced
from penstock.testing.simulated_disk import OperationKind

CLEANING = ("retention", "high watermarks", "checkpoint", "commit log cleaning")


def sizes(shared: SharedLog) -> dict[TopicPartition, int]:
    return {log.tp: log.size_bytes for log in shared.engine.statistics().logs}


def test_a_partition_has_the_size_of_its_batches_and_not_of_the_shared_files() -> None:
    shared = SharedLog()
    first, second = shared.create(FIRST), shared.create(SECOND)
    shared.append(first, 9)
    shared.append(second, 2)
    batch_bytes = sizes(shared)[SECOND] // 2
    assert sizes(shared) == {FIRST: 9 * batch_bytes, SECOND: 2 * batch_bytes}
    first.delete_before(Offset(8))
    assert sizes(shared)[FIRST] == 5 * batch_bytes
    shared.engine.delete(SECOND)
    shared.engine.close()
    assert sizes(SharedLog(shared.disk)) == {FIRST: 5 * batch_bytes}


def test_retention_by_size_frees_the_files() -> None:
    shared = SharedLog(config=LogConfig(retention_bytes=500, retention_ms=-1))
    log = shared.create()
    shared.append(log, 200)
    before = len(shared.commit_log_files())
    shared.run_jobs(*CLEANING)
    shared.run_jobs(*CLEANING)
    assert 500 <= log.size_bytes < 500 + log.size_bytes / 2
    assert log.log_start_offset > 380
    assert len(shared.commit_log_files()) < before / 2
    assert shared.base_offsets(log) == list(range(log.log_start_offset, 400, 2))


def test_retention_by_time_keeps_what_is_above_the_high_watermark() -> None:
    shared = SharedLog(config=LogConfig(retention_ms=1000))
    log = shared.create()
    for _ in range(5):
        shared.try_append(log)
    log.advance_high_watermark(Offset(6))
    shared.now_ms = NOW_MS + LONG_MS
    shared.run_jobs("retention")
    assert (log.log_start_offset, log.log_end_offset) == (6, 10)


def test_a_topic_without_limits_stays_while_files_around_it_go() -> None:
    """One batch in each file: the cleaner moves them together."""
    shared = SharedLog()
    kept, passing = shared.create(FIRST), shared.create(SECOND)
    for _ in range(10):
        shared.append(kept, 1)
        shared.append(passing, 15)
    before, expected = len(shared.commit_log_files()), shared.base_offsets(kept)
    passing.delete_before(passing.log_end_offset)
    for _ in range(2 * before):
        shared.run_jobs(*CLEANING)
    assert len(shared.commit_log_files()) < before / 2
    assert shared.base_offsets(kept) == expected
    shared.engine.abandon()
    after = SharedLog(shared.disk.survivor_of_kill())
    assert after.base_offsets(after.own(after.logs[FIRST])) == expected


def test_a_full_disk_fences_its_directory_and_loses_nothing_acknowledged() -> None:
    shared = SharedLog(directories=("/full", "/large"))
    full, large = shared.create(FIRST), shared.create(SECOND)
    shared.append(full, 3)
    shared.append(large, 3)
    shared.disk.fail_path("/full/", ENOSPC, {OperationKind.WRITE, OperationKind.CREATE})
    assert isinstance(shared.try_append(full), LogFenced)
    assert isinstance(shared.try_append(large), LogAppendInfo)
    assert "/full" in shared.engine.directory_statistics().failed
    assert any("is offline" in report for report in shared.reports)
    with pytest.raises(DirectoryFailed):
        shared.engine.create(TopicPartition("c", 0), full.topic_id, shared.config, 0, is_new=False)
    created = shared.create(TopicPartition("c", 0))
    assert created.directory.startswith("/large/")
    shared.disk.heal()
    shared.engine.close()
    shared = SharedLog(shared.disk, directories=("/full", "/large"))
    assert shared.base_offsets(shared.own(shared.logs[FIRST])) == [0, 2, 4]
    assert shared.base_offsets(shared.own(shared.logs[SECOND])) == [0, 2, 4, 6]
