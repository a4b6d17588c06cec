"""Bugs from Kafka's history in storage and recovery, one test each.

Those of compaction (KAFKA-14055, 4529, 8522, 5490, 8335, 17076) and of segment swaps (KAFKA-12520,
6264) are in tests/unit/storage.
"""

from contextlib import suppress
from errno import EIO, ENOSPC
from itertools import pairwise

import pytest
from tests.crash.harness import (
    CONFIG,
    DATA,
    FOLDER,
    NOW_MS,
    PARTITION,
    Step,
    append_steps,
    create,
    data_batch,
    flush,
    look,
    progress,
    scenario,
    start,
    write_scenario,
)

from penstock.config.log_config import StorageConfig
from penstock.io.disk import CREATE
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.protocol.batch import LAST_OFFSET_DELTA_POSITION, stamp_offset_and_epoch
from penstock.storage.checkpoints import HIGH_WATERMARK_FILE, read_offsets
from penstock.storage.engine import AppendItem, AppendOrigin, LogAppendInfo
from penstock.storage.errors import (
    CorruptRecords,
    LogFenced,
    OutOfOrderSequence,
    UnexpectedOffset,
)
from penstock.storage.leader_epoch_cache import EPOCH_FILE, EpochEntry, OffsetAndEpoch
from penstock.storage.log import SegmentedLog
from penstock.storage.segment import MAX_RELATIVE_OFFSET
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import (
    LoseEverything,
    OperationKind,
    SimulatedCrash,
    SimulatedDisk,
)

OTHER = TopicPartition("other", 0)


def _append(engine: SegmentedEngine, log: SegmentedLog, batch: bytearray, epoch: int = 0) -> object:
    (result,) = engine.append([AppendItem(log, memoryview(batch), LeaderEpoch(epoch))], NOW_MS)
    return result


def _follow(engine: SegmentedEngine, log: SegmentedLog, batch: bytearray) -> object:
    item = AppendItem(log, memoryview(batch), LeaderEpoch(-1), AppendOrigin.REPLICATION)
    return engine.append([item], NOW_MS)[0]


def _stamped(number: int, offset: int, epoch: int = 0) -> bytearray:
    batch = data_batch(number)
    stamp_offset_and_epoch(batch, 0, offset, epoch)
    return batch


def _lose_power(disk: SimulatedDisk) -> SimulatedDisk:
    return disk.survivor_of_power_cut(LoseEverything())


# -- epochs and watermarks -----------------------------------------------------------------


def test_kafka_7415_a_new_leaders_epoch_starts_before_its_first_record() -> None:
    disk = SimulatedDisk(DATA)
    engine, logs = write_scenario(disk, scenario())
    log = logs[PARTITION]
    log.begin_epoch(LeaderEpoch(7))
    assert log.latest_epoch == 7
    assert log.find_epoch_end(LeaderEpoch(3)) == OffsetAndEpoch(LeaderEpoch(3), Offset(31))
    assert log.find_epoch_end(LeaderEpoch(7)) == OffsetAndEpoch(LeaderEpoch(7), Offset(31))
    append_steps(engine, log, [Step(data_batch(60), 7)])
    flush(engine, log)
    entries = start(_lose_power(disk)).log.epochs.entries
    assert entries[-1] == EpochEntry(LeaderEpoch(7), Offset(31))
    assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(entries))


def test_kafka_7164_and_7786_a_truncation_durably_drops_later_epochs() -> None:
    """Replication owns the protocol; here no epoch entry may outlive its records."""
    disk = SimulatedDisk(DATA)
    engine, logs = write_scenario(disk, scenario())
    log = logs[PARTITION]
    flush(engine, log)
    log.truncate_to(Offset(20), NOW_MS)
    for seen in (log, start(_lose_power(disk)).log):
        assert seen.latest_epoch == 1
        assert seen.find_epoch_end(LeaderEpoch(3)) is None


def test_kafka_10432_epoch_zero_is_recovered_like_any_other() -> None:
    disk = SimulatedDisk(DATA)
    write_scenario(disk, [Step(data_batch(0), 0), Step(data_batch(1), 0)])
    survivor = disk.survivor_of_kill()
    if survivor.exists(f"{FOLDER}/{EPOCH_FILE}"):
        survivor.remove(f"{FOLDER}/{EPOCH_FILE}")
    log = start(survivor).log
    assert log.epochs.entries == (EpochEntry(LeaderEpoch(0), Offset(0)),)
    assert log.find_epoch_end(LeaderEpoch(0)) == OffsetAndEpoch(LeaderEpoch(0), Offset(4))


def test_kafka_9491_no_truncation_leaves_the_high_watermark_outside_the_log() -> None:
    disk = SimulatedDisk(DATA)
    log = write_scenario(disk, scenario()).log
    for change, offset in ((log.truncate_to, 25), (log.restart_at, 100), (log.restart_at, 10)):
        change(Offset(offset), NOW_MS)
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        recovered = start(disk.survivor_of_kill()).log
        assert recovered.log_start_offset <= recovered.high_watermark <= recovered.log_end_offset


def test_kafka_1647_the_checkpoint_of_high_watermarks_covers_every_log() -> None:
    """All logs are checkpointed, leader or follower, including those unused since the start."""
    disk = SimulatedDisk(DATA)
    engine, logs = write_scenario(disk, scenario())
    create(engine, partition=OTHER)
    engine.close()
    engine, logs = start(disk)
    engine.due_jobs(NOW_MS)
    append_steps(engine, logs[PARTITION], [Step(data_batch(60), 3)])
    for job in engine.due_jobs(NOW_MS + 10**9):
        job.run(lambda function: function())
    offsets = read_offsets(_lose_power(disk), f"{DATA}/{HIGH_WATERMARK_FILE}")
    assert offsets == {PARTITION: 33, OTHER: 0}


# -- starting ------------------------------------------------------------------------------


def test_kafka_10471_a_crash_during_recovery_is_never_a_clean_shutdown() -> None:
    """The marker is durably removed before recovery changes anything else."""
    disk = SimulatedDisk(DATA)
    engine, _ = write_scenario(disk, scenario())
    engine.close()
    stopped = disk.survivor_of_kill()
    start(stopped)
    first, second = stopped.trace[:2]
    assert (first.kind, first.path) == (OperationKind.UNLINK, f"{DATA}/.kafka_cleanshutdown")
    assert (second.kind, second.path) == (OperationKind.SYNC_DIRECTORY, DATA)
    for ordinal in range(2, len(stopped.trace) + 1):
        crashing = disk.survivor_of_kill()
        crashing.crash_before(ordinal)
        with suppress(SimulatedCrash):
            start(crashing)
        assert not _lose_power(crashing).exists(f"{DATA}/.kafka_cleanshutdown")


def test_kafka_16541_every_small_file_is_synced_before_it_gets_its_name() -> None:
    """Checks that every file was synced between its last write and its rename from a temporary
    name, and that the folder is synced before anything else happens to the file."""
    disk = SimulatedDisk(DATA)
    engine, logs = write_scenario(disk, scenario())
    log = logs[PARTITION]
    flush(engine, log)
    log.truncate_to(Offset(15), NOW_MS)
    engine.due_jobs(NOW_MS)
    for job in engine.due_jobs(NOW_MS + 10**9):
        job.run(lambda function: function())
    engine.close()
    trace, replaced = disk.trace, set()
    for ordinal, operation in enumerate(trace):
        if operation.kind is OperationKind.RENAME and operation.path.endswith(".tmp"):
            before = [op.kind for op in trace[:ordinal] if op.path == operation.path]
            assert before[-1] is OperationKind.SYNC, f"{operation.target} was not synced"
            folder = operation.target.rpartition("/")[0]
            assert trace[ordinal + 1][:2] == (OperationKind.SYNC_DIRECTORY, folder)
            replaced.add(operation.target.rpartition("/")[2])
    assert replaced == {
        "leader-epoch-checkpoint",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        ".kafka_cleanshutdown",
    }


def test_kafka_4451_an_offset_too_far_for_its_segment_starts_a_new_one() -> None:
    disk = SimulatedDisk(DATA)
    engine, _ = start(disk)
    log = create(engine)
    assert isinstance(_follow(engine, log, _stamped(0, 0)), LogAppendInfo)
    for offset in (MAX_RELATIVE_OFFSET + 5, 3 * 2**31):
        assert isinstance(_follow(engine, log, _stamped(1, offset)), LogAppendInfo)
        segment = log.segments.active
        assert segment.size == len(data_batch(1))
        assert offset + 1 - segment.base_offset <= MAX_RELATIVE_OFFSET
    recovered = start(disk.survivor_of_kill()).log
    assert recovered.log_end_offset == 3 * 2**31 + 2
    assert len(recovered.segments) == 3


def test_kafka_13603_indexes_that_are_missing_or_short_are_rebuilt() -> None:
    disk = SimulatedDisk(DATA)
    opened = write_scenario(disk, scenario())
    expected = look(opened.log, disk)
    survivor = disk.survivor_of_kill()
    for path in list(survivor.files()):
        if path.endswith(".index"):
            survivor.remove(path)
        elif path.endswith((".timeindex", ".txnindex")) and survivor.files()[path]:
            survivor.cut(path, len(survivor.files()[path]) - 1)
    recovered = start(survivor)
    assert look(recovered.log, survivor) == expected
    assert {path[-6:] for path in survivor.files() if path.endswith(".index")} == {".index"}
    assert sum(path.endswith(".index") for path in survivor.files()) == len(recovered.log.segments)


def test_kafka_1112_and_6388_a_roll_onto_an_existing_empty_segment_works() -> None:
    """A crash right after a roll leaves an empty segment, and so does one before its file names are
    synced."""
    disk = SimulatedDisk(DATA)
    opened = write_scenario(disk, scenario())
    end = opened.log.log_end_offset
    for suffix in (".log", ".index", ".timeindex"):
        disk.close(disk.open(f"{FOLDER}/{end:020d}{suffix}", CREATE))
    survivor = disk.survivor_of_kill()
    engine, logs = start(survivor)
    log = logs[PARTITION]
    assert log.log_end_offset == end
    append_steps(engine, log, [Step(data_batch(number), 3) for number in range(60, 75)])
    assert log.log_end_offset == end + 30
    assert start(survivor.survivor_of_kill()).log.log_end_offset == end + 30


def test_kafka_1112_a_roll_onto_leftover_files_starts_empty() -> None:
    disk = SimulatedDisk(DATA)
    engine, logs = write_scenario(disk, scenario())
    log = logs[PARTITION]
    path = f"{FOLDER}/{log.log_end_offset:020d}.log"
    descriptor = disk.open(path, CREATE)
    disk.write(descriptor, b"remains of another course")
    disk.close(descriptor)
    log.roll(NOW_MS)
    append_steps(engine, log, [Step(data_batch(60), 3)])
    survivor = disk.survivor_of_kill()
    assert look(start(survivor).log, survivor).batches == look(log, disk).batches


# -- failing disks and bad data --------------------------------------------------------------


def test_kafka_10778_the_first_failed_write_fences_the_log_at_once() -> None:
    for errno, partial_bytes in ((ENOSPC, 0), (ENOSPC, 40), (EIO, 0)):
        disk = SimulatedDisk(DATA)
        engine, logs = write_scenario(disk, scenario())
        log = logs[PARTITION]
        flush(engine, log)
        promised = look(log, disk).batches
        disk.fail_at(len(disk.trace), errno, partial_bytes)
        assert isinstance(_append(engine, log, data_batch(60), 3), LogFenced)
        disk.heal()  # there is space again, but the log stays fenced: its content is unknown
        assert isinstance(_append(engine, log, data_batch(61), 3), LogFenced)
        answers: list[object] = []
        engine.flush(log, log.log_end_offset, answers.append)
        assert isinstance(answers[0], LogFenced)
        for survivor in (disk.survivor_of_kill(), _lose_power(disk)):
            assert look(start(survivor).log, survivor).batches == promised


def test_kafka_10778_one_full_directory_does_not_affect_the_other() -> None:
    disk = SimulatedDisk("/full", "/fine")
    engine = SegmentedEngine(
        StorageConfig(log_dirs=("/full", "/fine")), config_of=lambda topic: CONFIG, disk=disk
    )
    engine.recover(progress, NOW_MS)
    full, fine = create(engine), create(engine, partition=OTHER)
    assert (full.directory, fine.directory) == ("/full/orders-0", "/fine/other-0")
    disk.fail_path("/full", ENOSPC)
    results = engine.append(
        [AppendItem(log, memoryview(data_batch(1)), LeaderEpoch(0)) for log in (full, fine)], NOW_MS
    )
    assert isinstance(results[0], LogFenced)
    assert isinstance(results[1], LogAppendInfo)
    flush(engine, fine)
    assert set(engine.statistics().failed_directories) == {"/full"}


def test_a_failed_sync_never_acknowledges_anything() -> None:
    """The kernel drops what it could not write and reports success for the next sync."""
    disk = SimulatedDisk(DATA)
    engine, logs = write_scenario(disk, scenario()[:3])
    log = logs[PARTITION]
    disk.fail_path(".log", EIO, frozenset({OperationKind.SYNC}))
    answers: list[object] = []
    engine.flush(log, log.log_end_offset, answers.append)
    disk.heal()
    engine.flush(log, log.log_end_offset, answers.append)
    assert [type(answer) for answer in answers] == [LogFenced, LogFenced]
    assert log.durable_offset == 0


def test_kafka_765_4384_and_13149_a_damaged_log_affects_no_other() -> None:
    disk = SimulatedDisk(DATA)
    engine, _ = write_scenario(disk, scenario())
    other = create(engine, partition=OTHER)
    append_steps(engine, other, scenario())
    expected = look(other, disk)
    disk.overwrite(f"{FOLDER}/{0:020d}.log", 0, b"\xff" * 694)
    survivor = disk.survivor_of_kill()
    messages: list[str] = []
    opened = start(survivor, report=messages.append)
    assert opened.log.log_end_offset == 0
    assert look(opened.logs[OTHER], survivor) == expected
    assert any(FOLDER in message for message in messages)


def test_kafka_765_a_follower_rejects_a_damaged_batch_and_accepts_it_when_valid() -> None:
    disk = SimulatedDisk(DATA)
    engine, _ = start(disk)
    log = create(engine)
    damaged = _stamped(0, 0)
    damaged[-1] ^= 1
    assert isinstance(_follow(engine, log, damaged), CorruptRecords)
    assert (log.log_end_offset, log.segments.active.size) == (0, 0)
    assert isinstance(_follow(engine, log, _stamped(0, 0)), LogAppendInfo)


def test_kafka_3047_a_follower_rejects_a_batch_that_does_not_continue_its_log() -> None:
    disk = SimulatedDisk(DATA)
    engine, _ = start(disk)
    log = create(engine)
    _follow(engine, log, _stamped(0, 0))
    before = disk.files()
    for batch in (_stamped(1, 1), _stamped(1, 0), _stamped(1, 2) + _stamped(2, 3)):
        assert isinstance(_follow(engine, log, batch), UnexpectedOffset)
    negative = _stamped(1, 2)
    negative[LAST_OFFSET_DELTA_POSITION] = 0xFF
    assert isinstance(_follow(engine, log, negative), CorruptRecords)
    assert disk.files() == before
    assert isinstance(_follow(engine, log, _stamped(1, 7)), LogAppendInfo)  # a compaction gap


# -- producers -----------------------------------------------------------------------------


def test_kafka_6683_a_failed_append_does_not_change_the_producer_state() -> None:
    disk = SimulatedDisk(DATA)
    engine, _ = start(disk)
    log = create(engine)
    assert isinstance(_append(engine, log, data_batch(0, producer_id=5, sequence=0)), LogAppendInfo)
    before = log.producers.producers()
    disk.fail_at(len(disk.trace), EIO)
    assert isinstance(_append(engine, log, data_batch(1, producer_id=5, sequence=2)), LogFenced)
    assert log.producers.producers() == before


@pytest.mark.parametrize("crash", [False, True])
def test_kafka_7692_sequences_wrap_and_continue_after_a_restart(crash: bool) -> None:
    disk = SimulatedDisk(DATA)
    engine, _ = start(disk)
    log = create(engine)
    first = data_batch(0, producer_id=5, sequence=2**31 - 3)
    stamp_offset_and_epoch(first, 0, 0, 0)
    _follow(engine, log, first)
    wrapping = data_batch(1, records=4, producer_id=5, sequence=2**31 - 1)
    assert isinstance(_append(engine, log, wrapping), LogAppendInfo)
    if not crash:
        engine.close()
    engine, logs = start(disk.survivor_of_kill())
    log = logs[PARTITION]
    gap = _append(engine, log, data_batch(2, producer_id=5, sequence=2))
    assert isinstance(gap, OutOfOrderSequence)
    assert isinstance(_append(engine, log, data_batch(2, producer_id=5, sequence=3)), LogAppendInfo)


def test_kafka_6003_a_follower_never_checks_sequences() -> None:
    disk = SimulatedDisk(DATA)
    engine, _ = start(disk)
    log = create(engine)
    for number, (offset, sequence) in enumerate([(0, 40), (2, 7), (4, 7)]):
        batch = data_batch(number, producer_id=5, sequence=sequence)
        stamp_offset_and_epoch(batch, 0, offset, 0)
        assert isinstance(_follow(engine, log, batch), LogAppendInfo)


@pytest.mark.parametrize("crash", [False, True])
def test_kafka_8710_a_producer_whose_records_are_all_deleted_continues(
    crash: bool,
) -> None:
    """Retention deleted the records before the producer expired (KAFKA-14097)."""
    disk = SimulatedDisk(DATA)
    engine, _ = start(disk)
    log = create(engine)
    _append(engine, log, data_batch(0, producer_id=5, sequence=0))
    for number in range(1, 20):
        _append(engine, log, data_batch(number))
    log.advance_high_watermark(log.log_end_offset)
    log.delete_before(Offset(30))
    log.detach_first(log.segments.index_of(30), NOW_MS)
    flush(engine, log)
    if not crash:
        engine.close()
    engine, logs = start(disk.survivor_of_kill())
    log = logs[PARTITION]
    assert log.log_start_offset > 1
    gap = _append(engine, log, data_batch(20, producer_id=5, sequence=3))
    assert isinstance(gap, OutOfOrderSequence)
    assert isinstance(
        _append(engine, log, data_batch(20, producer_id=5, sequence=2)), LogAppendInfo
    )
