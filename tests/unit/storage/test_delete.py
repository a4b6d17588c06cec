"""Deleting and recreating a partition while other work is running."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from errno import EIO
from pathlib import Path
from random import Random
from typing import TypeVar
from uuid import UUID

import pytest
from tests.profile import scaled
from tests.unit.storage.several_logs import (
    COMPACTED,
    EXPIRING,
    FIRST,
    NOW_MS,
    SECOND,
    Deferred,
    EngineHarness,
)

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.logs.event_logger import message_logger
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendItem, Job, LogAppendInfo, PartitionLog, Read
from penstock.storage.errors import (
    DirectoryFailed,
    LogFenced,
    OffsetOutOfRange,
    StorageError,
    UnknownPartition,
)
from penstock.storage.flush_threads import FlushThreads
from penstock.storage.log import SegmentedLog
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import (
    KeepEverything,
    LoseEverything,
    OperationKind,
    SeededChoice,
    SimulatedCrash,
    SimulatedDisk,
)

Result = TypeVar("Result")
Crash = Callable[[SimulatedDisk], SimulatedDisk]
CRASHES: list[Crash] = [
    lambda disk: disk.survivor_of_kill(),
    lambda disk: disk.survivor_of_power_cut(LoseEverything()),
    lambda disk: disk.survivor_of_power_cut(KeepEverything()),
]
crashes = pytest.mark.parametrize("crash", CRASHES, ids=["kill", "power cut", "late power cut"])


# -- remains of the deleted log ----------------------------------------------------------------


def age(harness: EngineHarness, log: SegmentedLog) -> None:
    """Give a log an entry in every checkpoint."""
    harness.append(log, 30)
    log.delete_before(Offset(50))
    assert harness.flush(log) == [None]
    harness.run_jobs("checkpoint")


def check_new(log: SegmentedLog, batches: int) -> None:
    assert log.topic_id == UUID(int=2)
    assert (log.log_start_offset, log.log_end_offset) == (0, 2 * batches)
    assert log.cleaned_offset == 0


@crashes
def test_checkpoints_of_a_deleted_log_do_not_apply_to_its_successor(crash: Crash) -> None:
    harness = EngineHarness()
    age(harness, harness.create())
    log = harness.recreate()
    harness.append(log, 5)
    assert harness.flush(log) == [None]
    restarted = harness.after(crash(harness.disk))
    check_new(restarted.logs[FIRST], 5)
    assert restarted.base_offsets(restarted.logs[FIRST]) == [0, 2, 4, 6, 8]


def test_a_clean_shutdown_keeps_the_records_of_a_recreated_partition() -> None:
    harness = EngineHarness()
    age(harness, harness.create())
    harness.append(harness.recreate(), 5)
    harness.engine.close()
    check_new(harness.after(harness.disk.survivor_of_kill()).logs[FIRST], 5)


def test_a_partition_recreated_after_a_restart_starts_empty() -> None:
    harness = EngineHarness()
    age(harness, harness.create())
    harness.engine.delete(FIRST)
    again = harness.after(harness.disk.survivor_of_kill())
    assert FIRST not in again.logs
    log = again.create(topic_id=2)
    again.append(log, 5)
    assert again.flush(log) == [None]
    restarted = again.after(again.disk.survivor_of_power_cut(LoseEverything()))
    check_new(restarted.logs[FIRST], 5)


def test_a_partition_recreated_in_its_old_directory_starts_empty() -> None:
    """The second incarnation is in the other of two directories, the third in that of the first."""
    harness = EngineHarness(directories=("/d", "/e"))
    log = harness.create()
    home = log.directory
    age(harness, log)
    harness.engine.delete(FIRST)
    harness.create(SECOND)
    away = harness.create(topic_id=3)
    assert away.directory != home
    age(harness, away)
    harness.engine.delete(FIRST)
    harness.engine.delete(SECOND)
    back = harness.create(topic_id=2)
    assert back.directory == home
    harness.append(back, 5)
    assert harness.flush(back) == [None]
    restarted = harness.after(harness.disk.survivor_of_kill())
    check_new(restarted.logs[FIRST], 5)


@pytest.mark.parametrize("visit", [1, 2, 3])
@crashes
def test_checkpoints_written_during_a_deletion_do_not_apply_to_the_successor(
    crash: Crash, visit: int
) -> None:
    harness = EngineHarness()
    log = harness.create()
    age(harness, log)
    harness.append(log, 3)
    visits = 0

    def on_owner(function: Callable[[], Result]) -> Result:
        nonlocal visits, log
        result = function()
        visits += 1
        if visits == visit:
            log = harness.recreate()
        return result

    for job in harness.due_jobs("checkpoint", "retention"):
        job.run(on_owner)
    if visits < visit:
        log = harness.recreate()
    harness.append(log, 5)
    assert harness.flush(log) == [None]
    assert not harness.failed
    check_new(harness.after(crash(harness.disk)).logs[FIRST], 5)


@crashes
def test_epochs_of_a_deleted_log_are_not_written_to_its_successor(crash: Crash) -> None:
    background = Deferred()
    harness = EngineHarness(background=background)
    old = harness.create()
    harness.append(old, 3, epoch=5)
    harness.append(old, 3, epoch=7)
    harness.flush(old)
    log = harness.recreate()
    harness.append(log, 5, epoch=9)
    flushed = harness.flush(log)
    background.drain()
    assert flushed == [None]
    restarted = harness.after(crash(harness.disk)).logs[FIRST]
    check_new(restarted, 5)
    assert [(entry.epoch, entry.start_offset) for entry in restarted.epochs.entries] == [(9, 0)]


def test_epochs_of_a_deleted_log_do_not_truncate_its_unflushed_successor() -> None:
    background = Deferred()
    harness = EngineHarness(background=background)
    old = harness.create()
    harness.append(old, 3, epoch=5)
    harness.append(old, 3, epoch=7)
    harness.flush(old)
    log = harness.recreate()
    harness.append(log, 5, epoch=9)
    background.waiting.pop(0)()  # only the round of the deleted log
    check_new(harness.after(harness.disk.survivor_of_kill()).logs[FIRST], 5)


@pytest.mark.parametrize("seed", range(20))
def test_a_power_failure_before_a_deletion_is_durable_restores_all_or_nothing(seed: int) -> None:
    harness = EngineHarness()
    log = harness.create()
    harness.append(log, 20)
    assert harness.flush(log) == [None]
    harness.engine.delete(FIRST)
    restarted = harness.after(harness.disk.survivor_of_power_cut(SeededChoice(seed)))
    if FIRST in restarted.logs:
        assert restarted.base_offsets(restarted.logs[FIRST]) == list(range(0, 40, 2))


@pytest.mark.parametrize("seed", range(20))
def test_files_are_removed_only_after_the_rename_is_durable(seed: int) -> None:
    harness = EngineHarness()
    log = harness.create()
    harness.append(log, 20)
    assert harness.flush(log) == [None]
    harness.engine.delete(FIRST)
    harness.disk.crash_before(len(harness.disk.trace) + 1 + seed % 10)
    with pytest.raises(SimulatedCrash):
        harness.run_jobs("removal")
    restarted = harness.after(harness.disk.survivor_of_power_cut(SeededChoice(seed)))
    if FIRST in restarted.logs:
        assert restarted.base_offsets(restarted.logs[FIRST]) == list(range(0, 40, 2))


def test_partitions_deleted_together_share_one_directory_sync() -> None:
    harness = EngineHarness()
    partitions = [TopicPartition("many", number) for number in range(5)]
    for partition in partitions:
        assert harness.flush(harness.create(partition)) == [None]
    for partition in partitions:
        harness.engine.delete(partition)
    before = len(harness.disk.trace)
    harness.run_jobs("removal")
    done = [operation.kind for operation in harness.disk.trace[before:]]
    assert done.count(OperationKind.SYNC_DIRECTORY) == 1
    assert done[0] == OperationKind.SYNC_DIRECTORY
    assert not [path for path in harness.disk.files() if "many" in path]


def test_a_deleted_log_without_leases_holds_no_file_open() -> None:
    harness = EngineHarness()
    harness.append(harness.create(SECOND))
    before = harness.disk.open_descriptors
    log = harness.create()
    harness.append(log, 9)
    assert harness.disk.open_descriptors > before
    harness.engine.delete(FIRST)
    assert harness.disk.open_descriptors == before


def test_a_reader_of_a_deleted_log_finishes_while_its_successor_is_written() -> None:
    harness = EngineHarness()
    log = harness.create()
    harness.append(log, 2)
    read = log.read(Offset(0), below=Offset(4), max_bytes=10**6, at_least_one=True)
    content = [harness.disk.pread(s.fd, s.length, s.position) for s in read.slices]
    new = harness.recreate()
    harness.append(new, 9, epoch=4)
    harness.run_jobs("removal")
    assert [harness.disk.pread(s.fd, s.length, s.position) for s in read.slices] == content
    read.lease.release()
    harness.engine.close()
    assert harness.disk.open_descriptors == 0


# -- queued and running flushes ----------------------------------------------------------------


def test_deleting_a_log_with_a_queued_flush_does_not_affect_others() -> None:
    background = Deferred()
    harness = EngineHarness(background=background)
    first, second = harness.create(FIRST), harness.create(SECOND)
    harness.append(first)
    harness.append(second)
    runs, waits = harness.flush(first), harness.flush(second)
    harness.engine.delete(SECOND)
    background.drain()
    assert runs == [None]
    [refused] = waits
    assert isinstance(refused, LogFenced)
    check_serving(harness, first, background)


def test_deleting_a_log_with_a_running_flush_does_not_affect_others() -> None:
    background = Deferred()
    harness = EngineHarness(background=background)
    first, second = harness.create(FIRST), harness.create(SECOND)
    harness.append(first)
    harness.append(second, epoch=3)
    runs, waits = harness.flush(second), harness.flush(first)
    harness.engine.delete(SECOND)
    background.drain()
    assert waits == [None]
    [refused] = runs
    assert isinstance(refused, LogFenced)
    check_serving(harness, first, background)


def test_a_late_flush_ignores_a_removed_folder() -> None:
    background = Deferred()
    harness = EngineHarness(background=background)
    first, second = harness.create(FIRST), harness.create(SECOND)
    harness.append(first)
    harness.append(second, 9, epoch=3)
    late = harness.flush(second)
    harness.engine.delete(SECOND)
    harness.run_jobs("removal")
    background.drain()
    assert len(late) == 1
    check_serving(harness, first, background)


def check_serving(harness: EngineHarness, log: SegmentedLog, background: Deferred) -> None:
    assert not harness.failed
    harness.append(log)
    answers = harness.flush(log)
    background.drain()
    assert answers == [None]
    lost = harness.after(harness.disk.survivor_of_power_cut(LoseEverything()))
    assert lost.logs[log.tp].log_end_offset == log.log_end_offset


def test_a_failed_deletion_leaves_a_fenced_log() -> None:
    harness = EngineHarness()
    log = harness.create()
    harness.append(log)
    harness.disk.fail_path("/d", EIO, {OperationKind.RENAME})
    with pytest.raises(DirectoryFailed):
        harness.engine.delete(FIRST)
    assert isinstance(harness.try_append(log), LogFenced)
    [refused] = harness.flush(log)
    assert isinstance(refused, LogFenced)
    with pytest.raises(DirectoryFailed):
        harness.create()


# -- closed and deleted logs -------------------------------------------------------------------

STOPS: list[Callable[[SegmentedEngine], None]] = [
    lambda engine: engine.close(),
    lambda engine: engine.abandon(),
    lambda engine: engine.delete(FIRST),
]
stops = pytest.mark.parametrize("stop", STOPS, ids=["close", "abandon", "delete"])


@stops
def test_calls_after_the_engine_has_ended_are_rejected(
    stop: Callable[[SegmentedEngine], None],
) -> None:
    harness = EngineHarness()
    log = harness.create()
    harness.append(log)
    stop(harness.engine)
    files, descriptors = harness.disk.files(), harness.disk.open_descriptors
    assert isinstance(harness.try_append(log), LogFenced)
    answers: list[StorageError | None] = []
    harness.engine.flush(log, Offset(3), answers.append)
    assert [type(answer) for answer in answers] == [LogFenced]
    with pytest.raises(StorageError):
        log.read(Offset(0), below=Offset(2), max_bytes=99, at_least_one=True)
    with pytest.raises(StorageError):
        log.truncate_to(Offset(0), NOW_MS)
    with pytest.raises(StorageError):
        log.restart_at(Offset(7), NOW_MS)
    with pytest.raises(UnknownPartition):
        harness.engine.delete(FIRST)
    assert harness.disk.files() == files
    assert harness.disk.open_descriptors == descriptors


def test_truncating_a_deleted_log_does_not_affect_its_successor() -> None:
    harness = EngineHarness()
    old = harness.create()
    harness.append(old, 5)
    log = harness.recreate()
    harness.append(log, 5)
    files = harness.disk.files()
    acts: list[Callable[[], None]] = [
        lambda: old.truncate_to(Offset(2), NOW_MS),
        lambda: old.truncate_to(Offset(99), NOW_MS),
        lambda: old.restart_at(Offset(50), NOW_MS),
        lambda: old.roll(NOW_MS),
    ]
    for act in acts:
        with pytest.raises(StorageError):
            act()
    assert harness.disk.files() == files
    assert not harness.failed


# -- running jobs ------------------------------------------------------------------------------


class RacingDisk(SimulatedDisk):
    """A disk that lets the owner act once between two calls of a job.

    It does not while the job writes checkpoints, because the owner waits for those.
    """

    CALLS = frozenset({"open", "exists", "unlink", "rename", "list", "size_of", "sync_directory"})

    def __init__(self) -> None:
        super().__init__("/d")
        self.calls_left: int | None = None
        self.act: Callable[[], None] = lambda: None
        self.is_waited_for: Callable[[], bool] = lambda: False

    def __getattribute__(self, name: str) -> object:
        if name in RacingDisk.CALLS and self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0 and not self.is_waited_for():
                self.calls_left = None
                self.act()
        return super().__getattribute__(name)

    def run(self, job: Job, *, calls: int, act: Callable[[], None]) -> bool:
        """Run a job and `act` between its calls to the owner; False if it ended before."""
        self.calls_left, self.act = calls, act

        def on_owner(function: Callable[[], Result]) -> Result:
            kept, self.calls_left = self.calls_left, None
            try:
                return function()
            finally:
                self.calls_left = kept

        job.run(on_owner)
        return self.calls_left is None


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "and made again"])
@pytest.mark.parametrize(
    ("name", "config"),
    [("retention", EXPIRING), ("compaction", COMPACTED)],
    ids=lambda x: str(x)[:9],
)
def test_a_job_survives_the_deletion_of_its_log_at_every_call(
    name: str, config: LogConfig, again: bool
) -> None:
    points = 0
    while meet_deletion(name, config, calls=points, again=again):
        points += 1
    assert points >= 5


def meet_deletion(name: str, config: LogConfig, *, calls: int, again: bool) -> bool:
    disk = RacingDisk()
    harness = EngineHarness(disk, config)
    disk.is_waited_for = harness.engine._directories[0]._writing.locked
    log = harness.create()
    other = harness.create(SECOND)
    harness.append(log, 20)
    harness.append(other, 1)
    [job] = harness.due_jobs(name)
    made: list[SegmentedLog] = []

    def act() -> None:
        harness.engine.delete(FIRST)
        if again:
            made.append(harness.create(topic_id=2))
            harness.append(made[0], 20, epoch=2)

    has_met = disk.run(job, calls=calls, act=act)
    assert not harness.failed
    harness.append(other, 1)
    for successor in made:
        check_new(successor, 20)
        harness.append(successor, 1, epoch=2)
        restarted = harness.after(disk.survivor_of_kill())
        check_new(restarted.logs[FIRST], 21)
        assert restarted.base_offsets(restarted.logs[FIRST]) == list(range(0, 42, 2))
    return has_met


@pytest.mark.parametrize("visit", range(1, 7))
@pytest.mark.parametrize(
    ("name", "config"),
    [("retention", EXPIRING), ("compaction", COMPACTED)],
    ids=lambda x: str(x)[:9],
)
def test_a_job_survives_the_deletion_of_its_log_at_every_call_to_the_owner(
    name: str, config: LogConfig, visit: int
) -> None:
    harness = EngineHarness(config=config)
    log = harness.create()
    harness.append(log, 20)
    visits = 0

    def on_owner(function: Callable[[], Result]) -> Result:
        nonlocal visits, log
        if visits == visit:
            log = harness.recreate()
            harness.append(log, 20, epoch=2)
        visits += 1
        return function()

    for job in harness.due_jobs(name):
        job.run(on_owner)
    assert not harness.failed
    if visits > visit:
        check_new(log, 20)
        check_new(harness.after(harness.disk.survivor_of_kill()).logs[FIRST], 20)


def test_removing_a_folder_does_not_affect_its_successor() -> None:
    harness = EngineHarness()
    harness.append(harness.create(), 9)
    log = harness.recreate()
    harness.append(log, 9)
    harness.run_jobs("removal")
    assert harness.base_offsets(log) == list(range(0, 18, 2))
    names = {path.split("/")[2] for path in harness.disk.files() if path.count("/") == 3}
    assert names == {"a-0"}


# -- with threads ------------------------------------------------------------------------------

BUSY = LogConfig(
    segment_bytes=3000,
    index_interval_bytes=200,
    retention_ms=1,
    cleanup_policy=frozenset({"compact", "delete"}),
    min_cleanable_dirty_ratio=0.01,
)


class ThreadedEngine:
    """An engine with an owner thread that acts at random, flush threads and a job thread."""

    def __init__(self, directory: Path, background: FlushThreads, seed: int) -> None:
        self.random = Random(seed)
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.jobs: queue.Queue[Job | None] = queue.Queue()
        self.problems: list[object] = []
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.reads: list[Read] = []
        self.unanswered = 0
        self.unfinished = 0
        self.deletions = 0
        self.now_ms = NOW_MS
        soon = 1
        self.engine = SegmentedEngine(
            StorageConfig(
                log_dirs=(f"{directory}/a", f"{directory}/b"),
                retention_check_interval_ms=soon,
                cleaner_backoff_ms=soon,
                recovery_checkpoint_interval_ms=soon,
                high_watermark_checkpoint_interval_ms=soon,
                start_offset_checkpoint_interval_ms=soon,
            ),
            config_of=lambda topic: BUSY,
            background=background,
            post=self.posted.put,
            logger=message_logger(self.problems.append),
        )
        self.engine.recover(lambda *, done, total: None, NOW_MS)

    def live(self, steps: int) -> None:
        worker = threading.Thread(target=self.work)
        worker.start()
        try:
            for _ in range(steps):
                self.now_ms += self.random.randrange(3)
                self.serve_posted()
                self.step(TopicPartition("t", self.random.randrange(6)))
            while self.unanswered or self.unfinished:
                self.posted.get(timeout=180)()
        finally:
            self.jobs.put(None)
            while worker.is_alive():
                self.serve_posted()
                worker.join(0.001)
        for read in self.reads:
            read.lease.release()
        self.serve_posted()

    def serve_posted(self) -> None:
        while not self.posted.empty():
            self.posted.get()()

    def work(self) -> None:
        while (job := self.jobs.get()) is not None:
            try:
                job.run(self.on_owner)
            except BaseException as error:
                self.problems.append((job.name, error))
            self.posted.put(self.finish_job)

    def finish_job(self) -> None:
        self.unfinished -= 1

    def on_owner(self, function: Callable[[], Result]) -> Result:
        answer: queue.Queue[tuple[Result | None, BaseException | None]] = queue.Queue()

        def visit() -> None:
            try:
                answer.put((function(), None))
            except BaseException as error:
                answer.put((None, error))

        self.posted.put(visit)
        result, error = answer.get(timeout=180)
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # one of the two is there

    def step(self, partition: TopicPartition) -> None:
        log = self.logs.get(partition)
        drawn = self.random.random()
        if log is None:
            topic_id = TopicId(UUID(int=self.random.getrandbits(64) + 1))
            self.logs[partition] = self.engine.create(partition, topic_id, BUSY, self.now_ms)
        elif drawn < 0.6:
            self.append(log)
        elif drawn < 0.75:
            self.unanswered += 1
            self.engine.flush(log, log.log_end_offset, self.take_answer)
        elif drawn < 0.83:
            log.advance_high_watermark(log.log_end_offset)
        elif drawn < 0.88:
            self.read(log)
        elif drawn < 0.9:
            offset = self.random.randint(log.high_watermark, log.log_end_offset)
            log.truncate_to(Offset(offset), self.now_ms)
        elif drawn < 0.92:
            self.engine.delete(partition)
            self.deletions += 1
            del self.logs[partition]
        elif self.unfinished < 5:
            for job in self.engine.due_jobs(self.now_ms):
                self.unfinished += 1
                self.jobs.put(job)

    def append(self, log: PartitionLog) -> None:
        key = b"k%d" % self.random.randrange(9)
        record = Record(0, self.now_ms, key, b"v" * self.random.randrange(200))
        epoch = LeaderEpoch(max(0, log.latest_epoch))
        item = AppendItem(log, memoryview(build_batch([record])), epoch)
        [result] = self.engine.append([item], self.now_ms)
        if not isinstance(result, LogAppendInfo):
            self.problems.append(result)

    def take_answer(self, error: StorageError | None) -> None:
        self.unanswered -= 1
        is_deleted = isinstance(error, LogFenced) and isinstance(
            error.first_error, FileNotFoundError
        )
        if not (error is None or is_deleted or isinstance(error, OffsetOutOfRange)):
            self.problems.append(error)

    def read(self, log: PartitionLog) -> None:
        """Read a lease, which stays valid while logs are truncated and deleted."""
        self.reads.append(
            log.read(
                log.log_start_offset, below=log.log_end_offset, max_bytes=5000, at_least_one=True
            )
        )
        if len(self.reads) > 20:
            self.reads.pop(self.random.randrange(20)).lease.release()


@pytest.mark.parametrize("seed", range(scaled(test=1, verify=8, release=40)))
def test_deletions_are_safe_beside_threads(tmp_path: Path, seed: int) -> None:
    with FlushThreads(4) as background:
        busy = ThreadedEngine(tmp_path, background, seed)
        busy.live(4000)
        assert not busy.problems
        assert not busy.engine.statistics().failed_directories
        assert busy.deletions >= 20
        ends = {log.tp: log.log_end_offset for log in busy.engine.statistics().logs}
        busy.engine.close()
    engine = SegmentedEngine(
        StorageConfig(log_dirs=(f"{tmp_path}/a", f"{tmp_path}/b")), config_of=lambda topic: BUSY
    )
    logs = engine.recover(lambda *, done, total: None, NOW_MS)
    assert {partition: log.log_end_offset for partition, log in logs.items()} == ends
    engine.close()
