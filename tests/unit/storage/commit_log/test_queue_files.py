"""Files of consume queues: reads go on across rewrites, none is left over, damage is noticed."""

from errno import EIO

import pytest
from tests.unit.storage.commit_log.shared_log import COMPACTED, Deferred, SharedLog
from tests.unit.storage.several_logs import FIRST, SECOND

from penstock.model.ids import Offset
from penstock.storage.engine import LogAppendInfo
from penstock.storage.errors import LogFenced
from penstock.testing.simulated_disk import OperationKind


def offsets(first: int, end: int) -> list[int]:
    return list(range(first, end, 2))


def test_a_read_continues_where_it_ended_after_the_queue_was_written_anew() -> None:
    shared = SharedLog()
    log = shared.create()
    shared.append(log, 20)
    shared.run_jobs("checkpoint")
    log.delete_before(Offset(24))
    shared.append(log, 2)
    part, position = shared.read_once(log, 24)
    shared.run_jobs("checkpoint")
    rest: list[int] = []
    while position < log.log_end_offset:
        more, position = shared.read_once(log, position)
        rest += more
    assert part + rest == offsets(24, 44)


def test_a_queue_written_anew_after_a_restart_has_only_entries_of_now() -> None:
    """Its file never has the name of one that is there already."""
    shared = SharedLog()
    log = shared.create()
    shared.append(log, 10)
    shared.engine.close()
    shared = SharedLog(shared.disk)
    log = shared.own(shared.logs[FIRST])
    log.truncate_to(Offset(6), shared.now_ms)
    shared.append(log, 10)
    shared.engine.close()
    shared = SharedLog(shared.disk)
    assert shared.base_offsets(shared.own(shared.logs[FIRST])) == offsets(0, 26)


def test_replaced_queues_leave_no_files() -> None:
    shared = SharedLog(config=COMPACTED)
    log, deleted = shared.create(), shared.create(SECOND)
    for number in range(6):
        shared.append(log, 8, key=b"k%d" % (number % 2))
        shared.append(deleted, 2)
        shared.flush(log)
        log.roll()
        shared.run_jobs("compaction", "checkpoint", "commit log cleaning")
    shared.engine.delete(SECOND)
    shared.run_jobs("checkpoint")
    assert len(shared.queue_files()) <= 1


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_queue_is_built_again_from_the_commit_log(damage: str) -> None:
    shared = SharedLog()
    log, other = shared.create(), shared.create(SECOND)
    shared.append(log, 20)
    shared.append(other, 3)
    log.delete_before(Offset(6))
    shared.engine.close()
    disk = shared.disk
    path = min(shared.queue_files())
    if damage == "flip":
        disk.flip_bit(path, 8 * 32 * 5 + 100)  # the position in the fifth entry
    elif damage == "cut":
        disk.cut(path, 32 * 4)
    else:
        disk.remove(path)
    shared = SharedLog(disk)
    assert any("replaying the whole commit log" in report for report in shared.reports)
    log = shared.own(shared.logs[FIRST])
    assert shared.base_offsets(log) == offsets(6, 40)
    assert (log.log_start_offset, log.high_watermark) == (6, 40)
    assert shared.base_offsets(shared.own(shared.logs[SECOND])) == offsets(0, 6)
    assert not shared.engine.missing()


def test_a_flush_ends_while_a_job_has_taken_its_log() -> None:
    """Rounds go on beside a checkpoint that is about to sync the same batches."""
    background = Deferred()
    shared = SharedLog(background=background)
    log = shared.create()
    shared.append(log, 3)
    share = shared.directories[0].flusher.share()
    answers = shared.flush(log)
    background.drain()
    assert answers == [None]
    shared.directories[0].flusher.sync(share)
    shared.directories[0].flusher.settle(share, None)
    assert log.durable_offset == log.log_end_offset


def test_no_sync_counts_after_one_that_failed() -> None:
    """A checkpoint beside a flush that fails must not vouch for what the kernel has dropped."""
    background = Deferred()
    shared = SharedLog(background=background)
    log = shared.create()
    shared.append(log, 3)
    shared.flush(log)
    former = shared.disk.files().get("/d/commitlog-checkpoint")
    shared.disk.fail_path("/commitlog/", EIO, {OperationKind.SYNC})

    def fail_the_round() -> None:
        background.drain()
        shared.disk.heal()

    shared.append(log, 1)
    shared.run_jobs("checkpoint", visit=fail_the_round)
    assert shared.disk.files().get("/d/commitlog-checkpoint") == former
    assert log.failure is not None


def test_a_refused_append_fences_only_the_failed_directory() -> None:
    shared = SharedLog(directories=("/d", "/e"))
    log, other = shared.create(), shared.create(SECOND)
    assert {log.directory, other.directory} == {f"/d/{FIRST}", f"/e/{SECOND}"}
    shared.append(log, 2)
    shared.append(other, 2)
    shared.disk.fail_path("/d/commitlog/", EIO, {OperationKind.WRITE})
    assert isinstance(shared.try_append(log), LogFenced)
    shared.disk.heal()
    assert isinstance(shared.try_append(log), LogFenced)
    assert isinstance(shared.try_append(other), LogAppendInfo)
    assert set(shared.engine.directory_statistics().failed) == {"/d"}
    assert shared.base_offsets(log) == offsets(0, 4)
    shared.engine.close()
    shared = SharedLog(shared.disk, directories=("/d", "/e"))
    assert shared.base_offsets(shared.own(shared.logs[FIRST])) == offsets(0, 4)
    assert shared.base_offsets(shared.own(shared.logs[SECOND])) == offsets(0, 6)


def test_a_measurement_that_goes_on_equals_one_from_the_start() -> None:
    shared = SharedLog()
    log = shared.create()
    queue = log.queue
    for step in range(12):
        shared.append(log, 3, key=b"k" * step)
        if step == 4:
            log.truncate_to(Offset(14), shared.now_ms)
        if step == 6:
            shared.run_jobs("checkpoint")
        if step == 8:
            log.delete_before(Offset(8))
            shared.run_jobs("checkpoint")
        for start in (queue.first, queue.first + 2):
            expected = sum(entry.size for entry in queue.entries(start, queue.end))
            assert queue.measure(start, queue.end) == expected
            assert queue.measure(start, queue.end - 1) < expected
    assert queue.measure(queue.first, queue.end) == log.size_bytes
