"""Clean logs: in use, after crashes, truncation, retention, compaction."""

from dataclasses import replace

import pytest
from tests.unit.storage.sample_logs import NOW_MS, SMALL, Writer, fill, open_engine, writing
from tests.unit.storage.verify.damage import DATA, FOLDER, active, segment_paths, verify

from penstock.model.ids import Offset
from penstock.protocol.batch import (
    iter_headers,
)
from penstock.storage.verify import NotALog, verify_directory
from penstock.testing.simulated_disk import KeepEverything, LoseEverything, SimulatedDisk


def test_a_log_with_all_codecs_epochs_and_transactions_is_clean(disk: SimulatedDisk) -> None:
    findings = verify(disk, records=True)
    assert findings.all == []
    logs = [content for path, content in disk.files().items() if path.endswith(".log")]
    headers = [header for content in logs for _, header in iter_headers(content)]
    assert findings.batches == len(headers)
    assert findings.records == sum(header.record_count for header in headers)
    assert findings.files == len(disk.files()) - len([".lock", ".kafka_cleanshutdown"])


def test_a_partition_folder_can_be_verified_alone(disk: SimulatedDisk) -> None:
    whole, alone = verify(disk), verify(disk, FOLDER)
    assert alone.all == []
    assert alone.batches == whole.batches


def test_records_are_counted_only_if_they_are_decoded(disk: SimulatedDisk) -> None:
    assert verify(disk).records == 0


def test_a_log_in_use_is_clean_at_every_step() -> None:
    disk = SimulatedDisk(DATA)
    writer = Writer(open_engine(DATA, disk=disk))
    for _ in range(12):
        writer.records()
        writer.transactional(1)
        assert verify_directory(DATA, disk).problems == []
        writer.end(1, commit=False)
        assert verify_directory(DATA, disk).problems == []
    writer.epoch += 1
    writer.records()
    assert verify_directory(DATA, disk).problems == []


def test_a_log_that_grows_while_it_is_read_is_clean() -> None:
    disk = SimulatedDisk(DATA)
    writer = Writer(open_engine(DATA, disk=disk))
    fill(writer)

    def append(_: int) -> None:
        writer.transactional(3)
        writer.records()
        writer.end(3, commit=False)

    findings = verify_directory(DATA, disk, progress=append)
    assert findings.problems == []


def test_recovery_after_a_kill_leaves_a_clean_log() -> None:
    disk = SimulatedDisk(DATA)
    fill(Writer(open_engine(DATA, disk=disk)))
    survivor = disk.survivor_of_kill()
    with writing(DATA, disk=survivor) as writer:
        assert writer.log.log_end_offset > 100
        writer.records()
    assert verify(survivor, records=True).all == []


@pytest.mark.parametrize("choice", [LoseEverything(), KeepEverything()])
def test_recovery_after_a_power_failure_leaves_a_clean_log(
    choice: LoseEverything | KeepEverything,
) -> None:
    disk = SimulatedDisk(DATA)
    writer = Writer(open_engine(DATA, disk=disk))
    fill(writer)
    writer.engine.flush(writer.log, writer.log.log_end_offset, lambda error: None)
    writer.records()
    survivor = disk.survivor_of_power_cut(choice)
    with writing(DATA, disk=survivor):
        pass
    assert verify(survivor).all == []


@pytest.mark.parametrize("offset", [170, 169, 120, 115, 60, 1, 0])
def test_a_truncated_log_is_clean(offset: int) -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        fill(writer)
        writer.log.truncate_to(Offset(offset), NOW_MS)
        assert verify_directory(DATA, disk).problems == []
        writer.records()
    assert verify(disk).all == []


def test_a_log_after_retention_is_clean() -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        fill(writer)
        writer.log.delete_before(Offset(100))
        writer.engine.due_jobs(NOW_MS)
        for job in writer.engine.due_jobs(NOW_MS + 3_600_000):
            job.run(lambda function: function())
    assert min(segment_paths(disk)).endswith("00000000000000000093.log")
    assert verify(disk).all == []


def test_a_log_that_was_restarted_at_a_later_offset_is_clean() -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        fill(writer)
        writer.log.restart_at(Offset(5000), NOW_MS)
        fill(Writer(writer.engine))
    assert verify(disk).all == []


def test_a_compacted_log_is_clean() -> None:
    disk = SimulatedDisk(DATA)
    config = replace(SMALL, cleanup_policy=frozenset({"compact"}))
    with writing(DATA, config, disk) as writer:
        fill(writer)
        before = writer.log.statistics().size_bytes
        for now_ms in (NOW_MS, NOW_MS + 86_400_000, NOW_MS + 10 * 86_400_000):
            for job in writer.engine.due_jobs(now_ms):
                job.run(lambda function: function())
            assert verify_directory(DATA, disk, records=True).problems == []
        assert writer.log.statistics().size_bytes < before // 2
    assert verify(disk, records=True).problems == []


def test_an_empty_log_and_an_empty_directory_are_clean() -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk):
        pass
    assert verify(disk).all == []
    empty = SimulatedDisk(DATA)
    open_engine(DATA, disk=empty).close()
    assert verify(empty).all == []


def test_timestamps_of_zero_make_a_time_entry_of_zeros() -> None:
    disk = SimulatedDisk(DATA)
    with writing(DATA, disk=disk) as writer:
        writer.records(1, timestamp_ms=0)
    assert disk.files()[active(disk, ".timeindex")] == bytes(12)
    assert verify(disk).all == []


def test_a_folder_without_a_log_is_rejected() -> None:
    with pytest.raises(NotALog, match="/other is neither"):
        verify_directory("/other", SimulatedDisk("/other"))
