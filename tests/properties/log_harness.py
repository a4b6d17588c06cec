"""Drives the segmented engine on a simulated disk, one seeded step after another, and compares.

A step is a name and its own seed, so that a failing run can be shortened by leaving out steps.
"""

import traceback
from collections.abc import Callable
from errno import EIO, ENOSPC
from typing import Any

from tests.properties.log_drawing import (
    MAX_EPOCH,
    MAX_TIMESTAMP,
    NOW_MS,
    RELATIVE_LIMIT,
    TIMES,
    Step,
)
from tests.properties.log_model import (
    Model,
    Producer,
    Stored,
    find_hole,
    replay,
    stored,
)
from tests.properties.log_recreation import Recreation

from penstock.model.ids import LeaderEpoch, Offset, TimestampMs
from penstock.protocol.control import build_end_marker_batch
from penstock.protocol.records import build_batch
from penstock.storage.engine import AppendItem, AppendOrigin, Job, LogAppendInfo
from penstock.storage.errors import (
    DuplicateSequence,
    LogFenced,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
    UnknownProducer,
)
from penstock.storage.maintenance_jobs import CheckpointJob, RetentionJob
from penstock.testing.simulated_disk import (
    SimulatedCrash,
)


class Harness(Recreation):
    """One example for `run`; `witnessed` counts the events that occurred."""

    def run(self, steps: list[Step]) -> None:
        if any(step.operation == "recreate" for step in steps):
            self.random.seed(0)
            self.create_other()
        for step in steps:
            self.random.seed(step.seed)
            self.now_ms += self.random.choice([0, 1, 20])
            self._step(getattr(self, step.operation))
            self.check()
        self.random.seed(0)
        self.read_everything()

    def _step(self, operation: Callable[[], None]) -> None:
        fault = self.random.random()
        is_restart = operation in (self.kill, self.cut_power, self.close)
        if fault < 0.07 and not is_restart:
            self.disk.crash_before(len(self.disk.trace) + self.random.choice([0, 0, 1, 2, 4, 8]))
        elif fault < 0.12 and not is_restart:
            errno = self.random.choice([EIO, ENOSPC, ENOSPC])
            ordinal = len(self.disk.trace) + self.random.choice([0, 0, 1, 2, 4, 8])
            self.disk.fail_at(ordinal, errno)
        self.intended = None
        self.is_compacting = self.is_in_job = False
        self.may_fail = 0.07 <= fault < 0.12
        try:
            operation()
        except SimulatedCrash:
            self.witnessed["crash"] += 1
            self._come_back(is_power_cut=self.random.random() < 0.5)
        except LogFenced:
            self._come_back_from_error()
        else:
            if self.log.failure is not None:
                self._come_back_from_error()
        self.disk.heal()
        self.disk._faults.crash_ordinal = None

    def append_by_producer(self) -> None:
        producer_id = self.random.randint(0, 3)
        producer = self.producers.get(producer_id)
        epoch = producer.epoch if producer is not None else self.random.choice([0, 1, 32766])
        if producer is not None and producer.open_since is None and epoch < 32767:
            epoch += self.random.random() < 0.1
        sequence = 0
        if producer is not None and epoch == producer.epoch and producer.window:
            sequence = (producer.window[-1][1] + 1) % 2**31
        self._append_as_leader(self._batch_of(producer_id, epoch, sequence))

    def append_again(self) -> None:
        """A client resends a stored batch."""
        windows = [(p, w) for p, q in self.producers.items() for w in q.window if w[0] >= 0]
        if not windows:
            return
        producer_id, (first, last, base, end) = self.random.choice(windows)
        producer = self.producers[producer_id]
        count = end - base + 1
        batch = self._batch_of(producer_id, producer.epoch, first, count=count)
        [result] = self._send(batch)
        if isinstance(result, LogFenced):
            raise result
        if end < producer.marker:
            assert isinstance(result, OutOfOrderSequence), "no duplicate before the last marker"
        elif isinstance(result, LogAppendInfo):
            assert result.duplicate
            assert (result.base_offset, result.end_offset) == (base, end + 1), (first, last)
        else:
            is_marked = producer.marker >= 0
            assert isinstance(result, OutOfOrderSequence if is_marked else DuplicateSequence)
            is_unsure = self.is_reloaded or (is_marked and self.is_compacted)
            assert is_unsure, "the batch is in the window"

    def append_gap(self) -> None:
        producer_id = self.random.randint(0, 5)
        producer = self.producers.get(producer_id)
        expected = (
            (producer.window[-1][1] + 1) % 2**31 if producer is not None and producer.window else 0
        )
        epoch = producer.epoch if producer is not None else 0
        [result] = self._send(self._batch_of(producer_id, epoch, expected + 7))
        if isinstance(result, LogFenced):
            raise result
        expected_error = UnknownProducer if producer is None else OutOfOrderSequence
        assert isinstance(result, expected_error), result

    def mark(self) -> None:
        candidates = [p for p, q in self.producers.items() if q.open_since is not None]
        if not candidates and self.random.random() < 0.8:
            return
        producer_id = self.random.choice(candidates or [0])
        producer = self.producers.get(producer_id, Producer(0))
        batch = build_end_marker_batch(
            commit=self.random.random() < 0.5,
            coordinator_epoch=producer.coordinator_epoch + self.random.choice([0, 1])
            if producer.coordinator_epoch >= 0
            else 3,
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            timestamp_ms=self.now_ms,
            base_offset=self.model.end,
        )
        self._append_as_leader(batch, AppendOrigin.COORDINATOR)

    def follow(self) -> None:
        """Batches of a leader, with gaps from compaction."""
        after, content, position = self.model.copy(), bytearray(), self.model.end
        epoch = max(self.epoch, 0)
        for _ in range(self.random.randint(1, 3)):
            position += self.random.choice([0, 0, 0, 1, 3, 9])
            if self.random.random() < 0.02:
                position += self.random.choice([RELATIVE_LIMIT - 2, RELATIVE_LIMIT, 2**33])
            if epoch < MAX_EPOCH - 2 and self.random.random() < 0.1:
                epoch += 1
            records = self._records(position, self.random.randint(1, 4))
            batch = build_batch(records, base_offset=position, leader_epoch=epoch)
            after.append(stored(bytes(batch)))
            content += batch
            position = after.end
        tail = self.random.choice([b"", bytes(content[:30])])
        self.intended = after
        item = AppendItem(
            self.log, memoryview(content + tail), LeaderEpoch(0), AppendOrigin.REPLICATION
        )
        [result] = self.engine.append([item], self.now_ms)
        if isinstance(result, StorageError):
            raise result
        assert (result.base_offset, result.end_offset) == (
            after.batches[len(self.model.batches)].base,
            after.end,
        )
        self.epoch = epoch
        self.model = after

    def truncate(self) -> None:
        before, after = self.model.copy(), self.model.copy()
        offset = self._some_offset()
        if offset < after.start:
            after.restart(offset)
        else:
            after.truncate(offset)
        self.intended = after
        self.witnessed["truncation"] += after.end < before.end
        self.log.truncate_to(Offset(offset), self.now_ms)
        if before.start <= offset < before.end:
            # A segment that begins far beyond the previous one may stay, without batches, and with
            # it the epochs of the offsets between them.
            end = self.log.log_end_offset
            if after.visible():
                after.epochs = [entry for entry in before.epochs if entry[1] < end]
            else:
                self._adopt_empty(before, after, offset)
            assert after.end <= end <= offset
            after.end = end
            after.high_watermark = min(before.high_watermark, after.end)
        self._adopt_cut(before, after)

    def _adopt_empty(self, before: Model, after: Model, offset: int) -> None:
        """No batch is left, so the segments decide where the log continues."""
        log = self.log
        assert log.log_start_offset <= before.start
        after.start, after.end = log.log_start_offset, log.log_end_offset
        if not log.size_bytes and not self._has_snapshots():
            after.batches = []  # the log restarted: not even a snapshot contains what was deleted
        after.epochs = [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
        assert all(entry in before.epochs for entry in after.epochs)

    def restart_log(self) -> None:
        before, after = self.model.copy(), self.model.copy()
        after.restart(self.random.choice([self._some_offset(), self.model.end + 10, 2**33]))
        self.intended = after
        self.log.restart_at(Offset(after.end), self.now_ms)
        self._adopt_cut(before, after)

    def _adopt_cut(self, before: Model, after: Model) -> None:
        self.model = after
        self.producers, self.ended = replay(after.batches)
        self.is_reloaded = True
        self._check_producers(after.start)

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def _retention_job(self) -> Job:
        return RetentionJob(
            self.disk, self.engine._directories, self.now_ms, self.engine._fail_directory
        )

    def retain(self) -> None:
        job = self._retention_job()
        log, before, generation = self.log, self.model.start, self.log.generation
        self._run(job)
        if self.log.failure is not None:
            return
        if self.log is not log or self.log.generation != generation:
            before = self.model.start  # the log was truncated or deleted while the job ran
        start = self.log.log_start_offset
        before = max(before, self.model.start)
        assert start >= before
        gone = [b for b in self.model.batches if before <= b.last < start]
        self._check_expired([b for b in gone if b.base >= before])
        self._move_start(start)

    def _check_expired(self, gone: list[Stored]) -> None:
        if not gone:
            return
        assert self.config.delete
        kept_bytes = sum(len(b.content) for b in self.model.visible(gone[-1].last + 1))
        is_too_much = 0 <= self.config.retention_bytes <= kept_bytes
        newest = max(batch.header.max_timestamp for batch in gone)
        is_too_old = 0 <= self.config.retention_ms < self.now_ms - newest
        assert is_too_much or is_too_old, f"{len(gone)} batches went too early"

    def compact(self) -> None:
        if not self.config.compact:
            return
        if self.random.random() < 0.7:
            self.log.roll(self.now_ms)
            self.background.pump()
            self.log.advance_high_watermark(self.log.log_end_offset)
            self.model.high_watermark = self.model.end
        before, size = self.model.copy(), self.log.size_bytes
        log, decided = self.log, self.log.last_stable_offset
        self.is_compacting = True
        self._run(self.engine.make_compaction_job(self.log, self.now_ms))
        self.is_compacting = False
        if self.log.failure is not None:
            self.is_compacting = True
            return
        if self.log is not log:
            return  # the log was deleted meanwhile
        assert self.log.uncleanable is None, self.log.uncleanable
        self._check_compaction(max(decided, self.log.last_stable_offset))
        self.witnessed["compaction"] += self.log.size_bytes < size
        self.ghosts.append(before)

    def _check_compaction(self, decided: int) -> None:
        after = self._read_batches()
        problem = find_hole(self.model.visible(), after, end_of_decided=decided)
        assert problem is None, problem
        self._adopt_compaction(after)

    def _adopt_compaction(self, after: list[Stored]) -> None:
        low = after[0].base if after else self.model.end
        front = [b for b in self.model.batches if b.last < self.log.log_start_offset]
        self.model.batches = [b for b in front if b.last < low] + after
        self.murky_below = max(self.murky_below, self.model.start)
        self.ended = replay(self.model.batches)[1]
        self.is_compacted = True

    def delete_before(self) -> None:
        offset = self.random.randint(self.model.start, self.model.end)
        if offset > self.model.high_watermark:
            try:
                self.log.delete_before(Offset(offset))
            except OffsetOutOfRange:
                return
            raise AssertionError(f"deleted {offset} above {self.model.high_watermark}")
        self.log.delete_before(Offset(offset))
        self._move_start(offset)

    def begin_epoch(self) -> None:
        if self.epoch < MAX_EPOCH:
            self.epoch += 1
        self.log.begin_epoch(LeaderEpoch(self.epoch))
        self.model.begin_epoch(self.epoch, self.model.end)

    def flush(self) -> None:
        answers: list[StorageError | None] = []
        upto = self.random.randint(self.model.start, self.model.end)
        generation = self.log.generation
        self.engine.flush(self.log, Offset(upto), answers.append)
        if self.random.random() < 0.7:
            self.background.pump()
            assert len(answers) == 1
        if answers == [None] and generation == self.log.generation:
            assert self.log.durable_offset >= upto

    def pump(self) -> None:
        self.background.pump()

    def _checkpoint_job(self) -> Job:
        return CheckpointJob(
            self.engine._directories,
            frozenset(
                {
                    "recovery-point-offset-checkpoint",
                    "log-start-offset-checkpoint",
                    "replication-offset-checkpoint",
                    "cleaner-offset-checkpoint",
                }
            ),
            self.engine._fail_directory,
        )

    def checkpoint(self) -> None:
        job = self._checkpoint_job()
        log, before = self.log, self.model.checkpointed_start
        self.intended = self.model.copy()
        self.intended.checkpointed_start = min(before, self.model.start)
        self._run(job)
        if self.log.failure is None and self.log is log:
            self.model.checkpointed_start = self.log.log_start_offset
            self._settle_checkpointed()

    def _settle_checkpointed(self) -> None:
        self._settle_deletion()

    def advance(self) -> None:
        offset = self.random.randint(self.model.start, self.model.end + 2)
        if self.random.random() < 0.5:
            offset = self.model.end
        reached = min(offset, self.model.end)
        self.log.advance_high_watermark(Offset(offset))
        self.model.high_watermark = max(self.model.high_watermark, reached)

    def _run(self, job: Job) -> None:
        self.is_in_job = True
        job.run(self._visit)
        self.is_in_job = False

    def _visit(self, function: Callable[[], Any]) -> Any:
        """The owner keeps working between the visits of a job."""
        if self.log.failure is None and self.random.random() < 0.05:
            self._move_start(self.log.log_start_offset)
            if self.is_compacting:
                self._check_compaction(self.log.last_stable_offset)
            if self.other is not None and self.random.random() < 0.3:
                self.recreate()
            else:
                self.random.choice([self.append, self.advance, self.truncate, self.pump])()
        return function()

    def read(self) -> None:
        for _ in range(3):
            start = self._some_offset()
            below = self.random.choice([self._some_offset(), self.model.end, self.model.end])
            max_bytes = self.random.choice([0, 1, 100, 300, 2000, 10**6])
            self._check_read(start, below, max_bytes, self.random.random() < 0.5)

    def look_up_time(self) -> None:
        timestamp_ms = self.random.choice([*TIMES[:-2], NOW_MS - 200, 0, 1, MAX_TIMESTAMP])
        timed = self.log.find_by_time(TimestampMs(timestamp_ms))
        expected = self.model.find_by_time(timestamp_ms)
        assert (timed and timed[:2]) == (expected and expected[:2]), f"time {timestamp_ms}"
        largest = self.log.find_max_timestamp()
        best = self.model.find_max_timestamp()
        assert (largest and largest[:2]) == (best and best[:2])

    def look_up_epoch(self) -> None:
        epochs = self.model.epochs
        epoch = self.random.choice([0, self.epoch, max(0, self.epoch - 1), *(e for e, _ in epochs)])
        answer = self.log.find_epoch_end(LeaderEpoch(epoch))
        if not epochs or epoch > epochs[-1][0]:
            assert answer is None
            return
        older = [e for e, _ in epochs if e <= epoch]
        end = min([s for e, s in epochs if e > epoch], default=self.model.end)
        assert answer == (older[-1] if older else epoch, end)


def find_failure(
    seed: int, steps: list[Step], harness: type[Harness] = Harness
) -> BaseException | None:
    try:
        harness(seed).run(steps)
    except (Exception, SimulatedCrash) as error:
        return error
    return None


def place_of(error: BaseException) -> tuple[str, str, int]:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return type(error).__name__, frame.name, frame.lineno or 0


def shorten(
    seed: int, steps: list[Step], where: object = None, harness: type[Harness] = Harness
) -> list[Step]:
    """Drops the steps that are not needed to fail at the same location."""
    size = len(steps) // 2
    while size:
        index = 0
        while index < len(steps):
            shorter = steps[:index] + steps[index + size :]
            error = find_failure(seed, shorter, harness)
            if error is not None and (where is None or place_of(error) == where):
                steps = shorter
            else:
                index += size
        size //= 2
    return steps
