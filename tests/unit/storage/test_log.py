"""Truncations, rolls and errors of a log; each test covers a former bug."""

from errno import ENOSPC

import pytest
from tests.unit.storage.crashing_logs import CONFIG, FOLDER, NOW_MS, Broker

from penstock.config.log_config import LogConfig
from penstock.model.ids import LeaderEpoch, Offset, TimestampMs
from penstock.protocol.control import build_end_marker_batch
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendOrigin
from penstock.storage.errors import LogFenced
from penstock.storage.maintenance_jobs import RetentionJob, detach_expired
from penstock.testing.simulated_disk import LoseEverything, OperationKind, SimulatedDisk


@pytest.fixture
def broker() -> Broker:
    return Broker(SimulatedDisk("/d"))


def test_a_truncation_survives_a_power_failure_without_a_flush(broker: Broker) -> None:
    for _ in range(6):
        broker.append()
    broker.flush()
    broker.truncate(1)
    later = broker.after(broker.disk.survivor_of_power_cut(LoseEverything()))
    assert later.offsets() == [0]


def test_a_follower_that_was_leader_without_a_batch_accepts_an_older_epoch(broker: Broker) -> None:
    broker.append(epoch=5)
    broker.log.begin_epoch(LeaderEpoch(9))
    broker.truncate(1)
    broker.follow(1, epoch=7)
    broker.flush()
    later = broker.after(broker.disk.survivor_of_kill())
    assert later.offsets() == [0, 1]
    assert later.log.find_epoch_end(LeaderEpoch(7)) == (7, 2)


def test_a_log_restarted_below_its_checkpointed_start_keeps_new_records(
    broker: Broker,
) -> None:
    for _ in range(8):
        broker.append()
    broker.log.advance_high_watermark(Offset(8))
    broker.log.delete_before(Offset(8))
    broker.flush()
    broker.checkpoint()
    broker.log.restart_at(Offset(2), NOW_MS)
    broker.append()
    broker.flush()
    assert broker.after(broker.disk.survivor_of_kill()).offsets() == [2]


def test_batches_after_a_truncation_are_checked_below_an_old_recovery_point(
    broker: Broker,
) -> None:
    for _ in range(9):
        broker.append()
    broker.flush()
    broker.checkpoint()
    broker.truncate(1)
    point = broker.disk.files()["/d/recovery-point-offset-checkpoint"]
    assert point == b"0\n1\nt 0 1\n"


def test_a_failing_transaction_index_fences_the_log(broker: Broker) -> None:
    record = Record(0, NOW_MS, b"k", b"v")
    broker.send(
        build_batch([record], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    )
    broker.disk.fail_path(".txnindex", ENOSPC)
    marker = build_end_marker_batch(
        commit=False, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS
    )
    assert isinstance(broker.send(marker, origin=AppendOrigin.COORDINATOR), LogFenced)
    assert broker.log.failure is not None


def test_a_failed_roll_leaves_a_readable_log(broker: Broker) -> None:
    broker.disk.fail_path(".log", ENOSPC, frozenset({OperationKind.CREATE}))
    far = build_batch([Record(2**33, NOW_MS, b"k", b"v")], base_offset=2**33, leader_epoch=0)
    assert isinstance(broker.send(far, origin=AppendOrigin.REPLICATION), LogFenced)
    assert broker.log.statistics().segments == 1
    assert broker.offsets() == []


def test_retention_survives_a_fenced_log(broker: Broker) -> None:
    for _ in range(3):
        broker.append()
    broker.log.advance_high_watermark(Offset(3))
    broker.log.delete_before(Offset(3))
    broker.disk.fail_path(".log", ENOSPC, frozenset({OperationKind.CREATE}))
    directories = broker.engine._directories
    job = RetentionJob(broker.disk, directories, NOW_MS, broker.engine._fail_directory)
    job.run(lambda function: function())
    assert broker.log.failure is not None


def test_retention_never_removes_files_of_a_restarted_log() -> None:
    broker = Broker(SimulatedDisk("/d"), LogConfig(segment_bytes=200, retention_ms=10))
    for _ in range(4):
        broker.append()
    broker.log.advance_high_watermark(Offset(4))
    detached = detach_expired(broker.log, NOW_MS + 1000)
    assert detached[0].base_offset == 0
    broker.truncate(0)
    assert f"{FOLDER}/{0:020d}.log" in broker.disk.files()
    assert f"{FOLDER}/{0:020d}.log.deleted" in broker.disk.files()


def test_many_segments_are_flushed_with_few_descriptors() -> None:
    broker = Broker(SimulatedDisk("/d"), descriptors=1)
    for _ in range(12):
        broker.append()
    broker.log.durable_offset = Offset(0)
    broker.flush()
    assert broker.log.failure is None


def test_the_largest_timestamp_is_not_that_of_a_deleted_record(broker: Broker) -> None:
    times = [900, 100, 500]
    broker.send(build_batch([Record(o, t, b"k", b"v") for o, t in enumerate(times)]))
    broker.log.advance_high_watermark(Offset(3))
    broker.log.delete_before(Offset(1))
    assert broker.log.find_max_timestamp() == (2, 500, 0)
    assert broker.log.find_by_time(TimestampMs(600)) is None


def test_a_duplicate_has_an_append_time_only_with_log_append_time(
    broker: Broker,
) -> None:
    for _ in range(2):
        batch = build_batch(
            [Record(0, NOW_MS, b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=0
        )
        result = broker.send(batch)
    assert result == (0, 1, -1, True)
    assert CONFIG.message_timestamp_type == "CreateTime"
