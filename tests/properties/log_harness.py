"""Drives the segmented engine on a simulated disk, one seeded step after the other, and compares.

A step is a name and a seed of its own, so that a failing run can be shortened by leaving out steps.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from errno import EIO, ENOSPC
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from tests.properties.log_model import (
    Ended,
    Model,
    Producer,
    Stored,
    find_hole,
    follow,
    replay,
    stored,
)

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.model.ids import LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition
from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch
from penstock.protocol.records import Record, build_batch
from penstock.storage.compaction import CompactionJob
from penstock.storage.engine import Appended, AppendItem, Job, Origin, Read
from penstock.storage.errors import (
    DirectoryFailed,
    DuplicateSequence,
    LogFenced,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
)
from penstock.storage.log import SegmentedLog
from penstock.storage.producers import ProducerEntry
from penstock.storage.segmented import SegmentedEngine
from penstock.storage.upkeep import CheckpointJob, RetentionJob
from penstock.testing.simulated_disk import (
    Choice,
    KeepEverything,
    Kind,
    LoseEverything,
    SeededChoice,
    SimulatedCrash,
    SimulatedDisk,
)

PARTITION = TopicPartition("t", 0)
TOPIC_ID = TopicId(UUID(int=7))
NOW_MS = 1_000_000
MAX_EPOCH = 2**31 - 1
MAX_TIMESTAMP = 2**63 - 1
RELATIVE_LIMIT = 2**31 - 1
BOTH = frozenset({"compact", "delete"})
KEYS = [b"k0", b"k1", b"k2", b"k3"]
TIMES = [*range(NOW_MS - 400, NOW_MS, 37), 0, -1, MAX_TIMESTAMP]

OPERATIONS = {
    "append": 14,
    "append_by_producer": 14,
    "append_again": 3,
    "append_gap": 2,
    "mark": 6,
    "follow": 8,
    "truncate": 5,
    "roll": 3,
    "retain": 5,
    "compact": 9,
    "delete_before": 3,
    "begin_epoch": 3,
    "flush": 7,
    "checkpoint": 5,
    "advance": 12,
    "read": 10,
    "look_up_time": 4,
    "look_up_epoch": 3,
    "restart_log": 1,
    "pump": 5,
    "kill": 3,
    "cut_power": 4,
    "close": 2,
}


class Step(NamedTuple):
    operation: str
    seed: int


def draw_steps(seed: int, count: int) -> list[Step]:
    random = Random(seed)
    names = random.choices(list(OPERATIONS), list(OPERATIONS.values()), k=count)
    return [Step(name, random.getrandbits(32)) for name in names]


class Deferred:
    """A background that works only when asked to, so that the owner goes on meanwhile."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def run(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def each(self, function: Callable[[Any], None], items: Iterable[Any]) -> None:
        for item in items:
            function(item)

    def pump(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class Immediate(Deferred):
    def run(self, work: Callable[[], None]) -> None:
        work()


class Harness:
    """One example: `run` it; `witnessed` counts what it met."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.config = draw_config(random)
        self.is_deferred = random.random() < 0.4
        self.disk = SimulatedDisk("/d")
        self.model = Model()
        self.intended: Model | None = None  # where the running operation leads
        self.ghosts: list[Model] = []  # what a power cut may bring back
        self.producers: dict[int, Producer] = {}
        self.ended: list[Ended] = []
        self.is_reloaded = False  # producers came from a snapshot: their windows may be shorter
        self.is_compacted = False
        self.is_compacting = False
        self.sync_failed = False
        self.murky_below = 0  # compaction also changed records below the start, unseen
        self.max_start = 0  # transactions that began below may be known in part only
        self.witnessed: Counter[str] = Counter()
        self.now_ms = NOW_MS
        self._start_engine()
        self.engine.recover(ignore_progress, self.now_ms)
        created = self.engine.create(PARTITION, TOPIC_ID, self.config, self.now_ms)
        assert isinstance(created, SegmentedLog)
        self.log = created
        self.epoch = 0
        self.append()
        self.engine.flush(self.log, self.log.log_end_offset, lambda error: None)
        self.background.pump()  # from now on a power cut must leave the partition where it is
        if random.random() < 0.3:
            base = random.choice([RELATIVE_LIMIT - 3, 2**40, 2**62, 5])
            self.model.restart(base)
            self.log.restart_at(Offset(base), self.now_ms)
        self.epoch = random.choice([0, 0, 5, MAX_EPOCH - 4])

    def _start_engine(self) -> None:
        self.background = Deferred() if self.is_deferred else Immediate()
        self.reports: list[str] = []
        self.engine = SegmentedEngine(
            StorageConfig(
                log_dirs=("/d",),
                producer_id_expiration_ms=2**62,
                cleaner_io_buffer_bytes=self.random.choice([64, 4096]),
                cleaner_dedupe_buffer_bytes=self.random.choice([200, 100_000]),
            ),
            config_of=lambda topic: self.config,
            disk=self.disk,
            background=self.background,
            report=self.reports.append,
            descriptors=self.random.choice([1, 3, 50]),
        )

    def run(self, steps: list[Step]) -> None:
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
            place = len(self.disk.trace) + self.random.choice([0, 0, 1, 2, 4, 8])
            self.disk.fail_at(place, errno)
        self.intended = None
        self.is_compacting = False
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

    # -- operations ------------------------------------------------------------------------

    def append(self) -> None:
        records = self._records(self.model.end, self.random.randint(1, 4))
        codec = self.random.choice([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD])
        self._append_as_leader(build_batch(records, codec=codec, base_offset=self.model.end))

    def append_by_producer(self) -> None:
        producer_id = self.random.randint(0, 3)
        known = self.producers.get(producer_id)
        epoch = known.epoch if known is not None else self.random.choice([0, 1, 32766])
        if known is not None and known.open_since is None and epoch < 32767:
            epoch += self.random.random() < 0.1
        sequence = 0
        if known is not None and epoch == known.epoch and known.window:
            sequence = (known.window[-1][1] + 1) % 2**31
        self._append_as_leader(self._batch_of(producer_id, epoch, sequence))

    def append_again(self) -> None:
        """A client sends once more what was stored already."""
        known = [(p, w) for p, q in self.producers.items() for w in q.window if w[0] >= 0]
        if not known:
            return
        producer_id, (first, last, base, end) = self.random.choice(known)
        epoch = self.producers[producer_id].epoch
        count = end - base + 1
        batch = self._batch_of(producer_id, epoch, first, count=count)
        [result] = self._send(batch)
        if isinstance(result, LogFenced):
            raise result
        if isinstance(result, Appended):
            assert result.duplicate
            assert (result.base_offset, result.end_offset) == (base, end + 1), (first, last)
        else:
            assert isinstance(result, DuplicateSequence), result
            assert self.is_reloaded, "the batch is in the window"

    def append_gap(self) -> None:
        producer_id = self.random.randint(0, 5)
        known = self.producers.get(producer_id)
        expected = (known.window[-1][1] + 1) % 2**31 if known is not None and known.window else 0
        epoch = known.epoch if known is not None else 0
        [result] = self._send(self._batch_of(producer_id, epoch, expected + 7))
        if isinstance(result, LogFenced):
            raise result
        assert isinstance(result, OutOfOrderSequence), result

    def mark(self) -> None:
        candidates = [p for p, q in self.producers.items() if q.open_since is not None]
        if not candidates and self.random.random() < 0.8:
            return
        producer_id = self.random.choice(candidates or [0])
        known = self.producers.get(producer_id, Producer(0))
        batch = build_end_marker_batch(
            commit=self.random.random() < 0.5,
            coordinator_epoch=known.coordinator_epoch + self.random.choice([0, 1])
            if known.coordinator_epoch >= 0
            else 3,
            producer_id=producer_id,
            producer_epoch=known.epoch,
            timestamp_ms=self.now_ms,
            base_offset=self.model.end,
        )
        self._append_as_leader(batch, Origin.COORDINATOR)

    def follow(self) -> None:
        """Batches of a leader, with gaps where it has compacted."""
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
        item = AppendItem(self.log, memoryview(content + tail), LeaderEpoch(0), Origin.REPLICA)
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
            if not after.visible():
                self._adopt_empty(before, after, offset)
            # A segment that begins far behind the one before it may be left, and left empty.
            assert after.end <= self.log.log_end_offset <= offset
            after.end = self.log.log_end_offset
            after.high_watermark = min(before.high_watermark, after.end)
        self._adopt_cut(before, after)

    def _adopt_empty(self, before: Model, after: Model, offset: int) -> None:
        """Nothing is left: where the log goes on is a matter of its segments."""
        log = self.log
        assert log.log_start_offset <= before.start
        after.start, after.end = log.log_start_offset, log.log_end_offset
        if not log.segments.size_bytes and not log.snapshots.offsets:
            after.batches = []  # it began anew: not even a snapshot tells of what was deleted
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

    def retain(self) -> None:
        job = RetentionJob(
            self.disk, self.engine._directories, self.now_ms, self.engine._fail_directory
        )
        before, generation = self.model.start, self.log.generation
        self._run(job)
        if self.log.failure is not None:
            return
        if self.log.generation != generation:
            before = self.model.start  # the log was cut while the job ran
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
        before, size = self.model.copy(), self.log.segments.size_bytes
        decided = self.log.last_stable_offset
        self.is_compacting = True
        job = CompactionJob(
            self.log, disk=self.disk, storage=self.engine._config, now_ms=self.now_ms
        )
        self._run(job)
        self.is_compacting = False
        if self.log.failure is not None:
            self.is_compacting = True
            return
        assert self.log.uncleanable is None, self.log.uncleanable
        self._check_compaction(max(decided, self.log.last_stable_offset))
        self.witnessed["compaction"] += self.log.segments.size_bytes < size
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

    def _move_start(self, start: int) -> None:
        self.model.delete_before(start)
        self.max_start = max(self.max_start, start)

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

    def checkpoint(self) -> None:
        job = CheckpointJob(
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
        before = self.model.checkpointed_start
        self.intended = self.model.copy()
        self.intended.checkpointed_start = min(before, self.model.start)
        self._run(job)
        if self.log.failure is None:
            self.model.checkpointed_start = self.log.log_start_offset

    def advance(self) -> None:
        offset = self.random.randint(self.model.start, self.model.end + 2)
        if self.random.random() < 0.5:
            offset = self.model.end
        reached = min(offset, self.model.end)
        self.log.advance_high_watermark(Offset(offset))
        self.model.high_watermark = max(self.model.high_watermark, reached)

    def _run(self, job: Job) -> None:
        job.run(self._visit)

    def _visit(self, function: Callable[[], Any]) -> Any:
        """The owner lives on between the visits of a job."""
        if self.log.failure is None and self.random.random() < 0.05:
            self._move_start(self.log.log_start_offset)
            if self.is_compacting:
                self._check_compaction(self.log.last_stable_offset)
            self.random.choice([self.append, self.advance, self.truncate, self.pump])()
        return function()

    # -- looking ---------------------------------------------------------------------------

    def read(self) -> None:
        for _ in range(3):
            start = self._some_offset()
            below = self.random.choice([self._some_offset(), self.model.end, self.model.end])
            max_bytes = self.random.choice([0, 1, 100, 300, 2000, 10**6])
            self._check_read(start, below, max_bytes, self.random.random() < 0.5)

    def _check_read(self, start: int, below: int, max_bytes: int, at_least_one: bool) -> None:
        model = self.model
        if not model.start <= start <= model.end:
            try:
                self.log.read(Offset(start), below=Offset(below), max_bytes=9, at_least_one=True)
            except OffsetOutOfRange:
                return
            raise AssertionError(f"{start} is outside of the log")
        read = self.log.read(
            Offset(start), below=Offset(below), max_bytes=max_bytes, at_least_one=at_least_one
        )
        content = self._content(read)
        wanted = [b for b in model.batches if b.last >= start and b.last < below]
        if not content:
            assert read.end_offset == start
            assert not wanted or (not at_least_one and len(wanted[0].content) > max_bytes)
            return
        size, place = 0, -1
        while size < len(content):
            place += 1
            batch = wanted[place]
            size += len(batch.content)
        assert content == b"".join(b.content for b in wanted[: place + 1]), "not the batches there"
        assert size <= max_bytes or (place == 0 and at_least_one)
        following = [b.base for b in model.batches if b.base > batch.last]
        assert batch.last < read.end_offset <= min([*following, model.end])

    def _content(self, read: Read) -> bytes:
        try:
            return b"".join(self.disk.pread(s.fd, s.length, s.position) for s in read.slices)
        finally:
            read.lease.release()

    def _read_batches(self) -> list[Stored]:
        """All that a reader can get, by one read after the other."""
        found: list[Stored] = []
        position = self.log.log_start_offset
        while position < self.log.log_end_offset:
            read = self.log.read(
                position, below=self.log.log_end_offset, max_bytes=700, at_least_one=True
            )
            content = self._content(read)
            if not content:
                break
            assert read.end_offset > position
            position = read.end_offset
            place = 0
            while place < len(content):
                length = 12 + int.from_bytes(content[place + 8 : place + 12], "big")
                found.append(stored(content[place : place + length]))
                place += length
        return found

    def look_up_time(self) -> None:
        asked = self.random.choice([*TIMES[:-2], NOW_MS - 200, 0, 1, MAX_TIMESTAMP])
        found = self.log.find_by_time(TimestampMs(asked))
        expected = self.model.find_by_time(asked)
        assert (found and found[:2]) == (expected and expected[:2]), f"time {asked}"
        largest = self.log.find_max_timestamp()
        best = self.model.find_max_timestamp()
        assert (largest and largest[:2]) == (best and best[:2])

    def look_up_epoch(self) -> None:
        epochs = self.model.epochs
        asked = self.random.choice([0, self.epoch, max(0, self.epoch - 1), *(e for e, _ in epochs)])
        found = self.log.find_epoch_end(LeaderEpoch(asked))
        if not epochs or asked > epochs[-1][0]:
            assert found is None
            return
        known = [e for e, _ in epochs if e <= asked]
        end = min([s for e, s in epochs if e > asked], default=self.model.end)
        assert found == (known[-1] if known else asked, end)

    # -- stopping and coming back ------------------------------------------------------------

    def kill(self) -> None:
        self.witnessed["crash"] += 1
        self._come_back(is_power_cut=False)

    def cut_power(self) -> None:
        self.witnessed["crash"] += 1
        self._come_back(is_power_cut=True)

    def close(self) -> None:
        self.background.pump()
        self.engine.close()
        assert self.disk.open_descriptors == 0, "a descriptor was left open"
        model = self.model
        self.disk = self.disk.copy()
        if self.random.random() < 0.3:
            self.disk = self.disk.survivor_of_power_cut(self._choice())
        self._open()
        self.is_reloaded = True
        log = self.log
        assert not [r for r in self.reports if "rebuilding" in r or "recovering" in r], self.reports
        assert self._read_batches() == model.visible()
        if model.start < log.segments[0].base_offset:  # nothing lies between the two
            self._move_start(log.segments[0].base_offset)
            model.high_watermark = max(model.high_watermark, model.start)
        found = log.log_start_offset, log.high_watermark, log.log_end_offset
        assert found == (model.start, model.high_watermark, model.end), (
            found,
            model.start,
            model.high_watermark,
            model.end,
        )
        model.durable = model.end
        model.checkpointed_start = model.start
        self._adopt_epochs(model)
        self.ghosts.clear()
        self._check_producers(model.start)

    def _choice(self) -> Choice:
        kind = self.random.randrange(4)
        if kind == 0:
            return LoseEverything()
        return KeepEverything() if kind == 1 else SeededChoice(self.random.getrandbits(32))

    def _come_back_from_error(self) -> None:
        """A fenced log takes nothing more; what it said before holds."""
        self.witnessed["error"] += 1
        self.disk.heal()
        [result] = self._send(build_batch(self._records(0, 1)))
        assert isinstance(result, LogFenced), result
        self.log.statistics()
        failed = self.disk.trace and any(
            operation.kind is Kind.SYNC for operation in self.disk.trace[-12:]
        )
        # What a failed sync dropped is in the page cache still: only a reboot shows the truth.
        self._come_back(is_power_cut=bool(failed) or self.random.random() < 0.5)

    def _come_back(self, *, is_power_cut: bool) -> None:
        self.background.waiting.clear()
        disk = self.disk
        is_torn = is_power_cut
        self.disk = disk.survivor_of_power_cut(self._choice()) if is_power_cut else disk.copy()
        if self.random.random() < 0.3:
            is_torn |= self._crash_in_recovery()
        self._open()
        self.is_reloaded = True
        self._settle(is_power_cut=is_torn)

    def _crash_in_recovery(self) -> bool:
        """True if it ended in a power cut."""
        if self.random.random() < 0.7:
            self.disk.crash_before(self.random.choice([0, 1, 2, 3, 5, 8, 13, 21]))
        else:
            self.disk.fail_at(self.random.choice([0, 1, 2, 3, 5, 8, 13, 21]), EIO)
        try:
            self._open()
            if self.log.failure is None:
                return False
        except (SimulatedCrash, DirectoryFailed):
            pass
        self.witnessed["crash in recovery"] += 1
        is_power_cut = self.random.random() < 0.5
        disk = self.disk
        failed = any(operation.kind is Kind.SYNC for operation in disk.trace)
        if failed or is_power_cut:
            self.disk = disk.survivor_of_power_cut(self._choice())
            return True
        self.disk = disk.copy()
        return False

    def _open(self) -> None:
        if self.disk.open_descriptors:
            self.disk = self.disk.copy()
        self._start_engine()
        logs = self.engine.recover(ignore_progress, self.now_ms)
        assert PARTITION in logs, f"the partition is gone: {self.reports}"
        log = logs[PARTITION]
        assert isinstance(log, SegmentedLog)
        assert log.topic_id in (TOPIC_ID, TopicId(UUID(int=0)))
        self.log = log

    def _settle(self, *, is_power_cut: bool) -> None:
        """What was found must be one of the states that the crash may leave; go on from it."""
        found = self._read_batches()
        alternatives = [self.model]
        if self.intended is not None:
            alternatives.append(self.intended)
        floor: list[Stored] = self._least()
        if is_power_cut:
            alternatives += reversed(self.ghosts)
            floor = self._durable()
        log = self.log
        start = log.log_start_offset
        assert start >= min(m.checkpointed_start for m in alternatives), "deleted records are back"
        # An empty segment gives way to one that begins at a leader's far offset: then nothing lies
        # between the old start and the new.
        highest = max(max(m.start, m.high_watermark) for m in alternatives)
        if not found:
            highest = max(m.end for m in alternatives)
        assert start <= max([highest, *(b.base for b in found[:1])])
        matching = self._find_match(found, alternatives, start)
        assert matching is not None, self._describe(found, alternatives)
        low = max(start, self.murky_below)
        needed = [batch for batch in floor if batch.last >= low]
        clear = [batch for batch in found if batch.last >= low]
        if needed and not self._is_compacted_match:
            there = [batch for batch in found if batch.base >= needed[0].base]
            assert there[: len(needed)] == needed, "lost: " + self._describe(found, [matching])
        if not is_power_cut and self.intended is None and not self.is_compacting:
            assert clear == self.model.visible(low), self._describe(found, [self.model])
            assert log.log_end_offset == self.model.end
        self._adopt(found, matching, is_power_cut=is_power_cut)

    def _least(self) -> list[Stored]:
        """After a kill: all but what the interrupted operation was taking away."""
        if self.intended is None:
            return self.model.batches
        pairs = zip(self.model.batches, self.intended.batches, strict=False)
        return [a for a, b in pairs if a == b and a.last >= self.model.start]

    def _durable(self) -> list[Stored]:
        if self.intended is None:
            return self.model.required()
        both = self.intended.required()
        start = self.model.start
        return [b for b in self.model.required() if b in both and b.last >= start]

    _is_compacted_match = False

    def _find_match(
        self, found: list[Stored], alternatives: list[Model], start: int
    ) -> Model | None:
        self._is_compacted_match = False
        start = max(start, self.murky_below)
        found = [batch for batch in found if batch.last >= start]
        for model in alternatives:
            expected = model.visible(start)
            if found == expected[: len(found)] and (
                found or self.log.log_end_offset <= max(m.end for m in alternatives)
            ):
                return model
        if self.is_compacting:
            for model in alternatives:
                before = model.visible(start)
                decided = min(self.log.log_end_offset, self.model.high_watermark)
                if find_hole(before, found, end_of_decided=decided) is None:
                    self._is_compacted_match = True
                    return model
        return None

    def _describe(self, found: list[Stored], alternatives: list[Model]) -> str:
        lines = [
            f"found {brief(found)} from {self.log.log_start_offset} to {self.log.log_end_offset}"
        ]
        lines += [
            f"  allowed {brief(m.batches)} from {m.start} to {m.end}, durable {m.durable}"
            for m in alternatives
        ]
        return "\n".join([*lines, *self.reports])

    def _adopt(self, found: list[Stored], matching: Model, *, is_power_cut: bool) -> None:
        log = self.log
        start = log.log_start_offset
        front = [b for b in matching.batches if b.last < start]
        self.max_start = max(self.max_start, start)
        model = matching.copy()
        model.batches = front + found
        model.start, model.end = start, log.log_end_offset
        assert start <= log.high_watermark <= log.log_end_offset
        model.high_watermark = log.high_watermark
        model.durable = model.end if is_power_cut else min(model.durable, model.end)
        model.checkpointed_start = min(model.checkpointed_start, start)
        if is_power_cut:
            self.ghosts.clear()
        elif self.intended is not None:
            self.ghosts += [self.model, self.intended]
        self.model = model
        self._adopt_epochs(model)
        self.producers, self.ended = replay(model.batches)
        self._check_producers(start)

    def _adopt_epochs(self, model: Model) -> None:
        """Epochs of batches are known; one that had none yet may be forgotten."""
        epochs = self.log.epochs
        # Deleting records moves the first epoch's start at once, the log's only by a checkpoint.
        first = epochs.entries[0].start_offset if epochs.entries else self.max_start
        for batch in model.visible(max(model.start, min(first, self.max_start))):
            assert epochs.find_epoch_at(max(batch.base, first)) == batch.header.leader_epoch
        for epoch, offset in epochs.entries:
            assert offset < model.end or offset == model.start or (epoch, offset) in model.epochs
        model.epochs = [(entry.epoch, entry.start_offset) for entry in epochs.entries]
        self.epoch = max(self.epoch, self.log.latest_epoch)

    # -- after every step --------------------------------------------------------------------

    def check(self) -> None:
        log, model = self.log, self.model
        assert log.failure is None
        assert log.log_end_offset == model.end, (log.log_end_offset, model.end)
        assert log.log_start_offset == model.start
        assert log.high_watermark == model.high_watermark
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.durable_offset <= log.log_end_offset
        entries = [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
        assert entries == model.epochs, (entries, model.epochs)
        model.durable = max(model.durable, log.durable_offset)
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        assert log.segments.active.is_active
        self._check_last_stable()

    def _check_last_stable(self) -> None:
        model = self.model
        undecided = [p.open_since for p in self.producers.values() if p.open_since is not None]
        waiting = [e.first for e in self.ended if e.marker >= model.high_watermark]
        allowed = [min([*undecided, *waiting, model.high_watermark])]
        if self.is_reloaded:
            # A snapshot does not tell of transactions that were over but not replicated.
            known = [*waiting, model.high_watermark]
            allowed += [min([*undecided, first, model.high_watermark]) for first in known]
        if self.max_start:
            allowed.append(model.high_watermark)
            allowed += undecided
        found = self.log.last_stable_offset
        if self.is_compacted and self.is_reloaded:
            # Where a transaction began may be gone, and a snapshot still tell of it.
            assert found <= max(model.start, *allowed)
            return
        assert found in [max(model.start, a) for a in allowed], (found, allowed)

    def _check_producers(self, start: int) -> None:
        """Exactly what the batches tell; what lies below the start may be known or not."""
        retained, _ = replay(self.model.visible(start))
        for producer_id in range(6):
            found = self.log.producers.find(producer_id)
            known = [self.producers.get(producer_id), retained.get(producer_id)]
            if found is None:
                assert known[1] is None or self.is_compacted, f"producer {producer_id} is forgotten"
                self.producers.pop(producer_id, None)
                continue
            if self.is_compacted:  # its batches may be gone, and a snapshot still tell of it
                self.producers[producer_id] = as_found(found)
                continue
            told = [producer for producer in reversed(known) if producer is not None]
            assert told, f"producer {producer_id} is known though nothing tells of it"
            assert found.producer_epoch in [p.epoch for p in told]
            lasts = [p.window[-1][1::2] if p.window else (-1, -1) for p in told]
            assert (found.last_sequence, found.last_offset) in lasts, (found, told)
            if not self.max_start:
                assert found.current_txn_first_offset in [p.open_since for p in told], found
            last = found.last_sequence, found.last_offset
            self.producers[producer_id] = told[lasts.index(last)]
            self.producers[producer_id].epoch = found.producer_epoch
            self.producers[producer_id].open_since = found.current_txn_first_offset
        self._check_aborted()

    def _check_aborted(self) -> None:
        start = self.model.start
        low = self.random.randint(start, self.model.end)
        below = self.random.randint(low, self.model.end)
        found = self.log.aborted(Offset(low), Offset(below))
        ends = {(int(a.producer_id), int(a.last_offset)): a.first_offset for a in found}
        for producer_id, first, marker, is_aborted in self.ended:
            is_wanted = is_aborted and marker >= low and first < below
            if first < self.max_start or (self.is_compacted and not is_wanted):
                continue  # known in part only, or as it was before compaction
            known = ends.get((producer_id, marker))
            assert (known is not None) == is_wanted, (producer_id, first, marker)
            assert known is None or known == first or (self.is_compacted and known < first)

    def read_everything(self) -> None:
        assert self._read_batches() == self.model.visible()
        self._check_producers(self.model.start)

    # -- making batches ----------------------------------------------------------------------

    def _append_as_leader(self, batch: bytearray, origin: Origin = Origin.CLIENT) -> None:
        after = self.model.copy()
        placed = bytearray(batch)
        placed[0:8] = after.end.to_bytes(8, "big")
        placed[12:16] = max(self.epoch, 0).to_bytes(4, "big")
        fresh = stored(bytes(placed))
        after.append(fresh)
        self.intended = after
        [result] = self._send(batch, origin)
        if isinstance(result, StorageError):
            raise result
        assert result == (self.model.end, after.end, -1, False)
        self.model = after
        if fresh.header.producer_id >= 0:
            follow(self.producers, self.ended, fresh)
            self._check_one_producer(fresh.header.producer_id)

    def _check_one_producer(self, producer_id: int) -> None:
        found, known = self.log.producers.find(producer_id), self.producers[producer_id]
        assert found is not None
        assert found.last_sequence == (known.window[-1][1] if known.window else -1)
        assert found.current_txn_first_offset == known.open_since

    def _send(
        self, batch: bytearray, origin: Origin = Origin.CLIENT
    ) -> list[Appended | StorageError]:
        item = AppendItem(self.log, memoryview(batch), LeaderEpoch(max(self.epoch, 0)), origin)
        return self.engine.append([item], self.now_ms)

    def _batch_of(
        self, producer_id: int, epoch: int, sequence: int, count: int | None = None
    ) -> bytearray:
        known = self.producers.get(producer_id)
        is_open = known is not None and known.open_since is not None
        return build_batch(
            self._records(self.model.end, count or self.random.randint(1, 3)),
            base_offset=self.model.end,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=is_open or self.random.random() < 0.5,
        )

    def _records(self, base: int, count: int) -> list[Record]:
        times = self.random.sample(TIMES[:-2], 2)
        if self.random.random() < 0.1:
            times = [self.random.choice([0, -1, MAX_TIMESTAMP])]
        return [
            Record(
                base + place,
                self.random.choice(times),
                self.random.choice(KEYS),
                self.random.choice([None, b"v%d" % self.random.getrandbits(20), b"x" * 60]),
            )
            for place in range(count)
        ]

    def _some_offset(self) -> int:
        model = self.model
        near = [b.base for b in model.batches] + [b.last for b in model.batches]
        near += [model.start, model.end, model.high_watermark]
        return max(0, self.random.choice(near) + self.random.choice([-1, 0, 0, 0, 1]))


def draw_config(random: Random) -> LogConfig:
    return LogConfig(
        segment_bytes=random.choice([450, 700, 1200, 2000]),
        index_interval_bytes=random.choice([0, 100, 300, 4096]),
        segment_index_bytes=random.choice([48, 10_000, 10_000]),
        segment_ms=random.choice([200, 10**9]),
        retention_ms=random.choice([-1, 150, 10**9]),
        retention_bytes=random.choice([-1, 600, 1500]),
        cleanup_policy=random.choice(
            [frozenset({"delete"}), frozenset({"compact"}), frozenset({"compact"}), BOTH]
        ),
        delete_retention_ms=random.choice([0, 50, 10**6]),
        message_timestamp_after_max_ms=MAX_TIMESTAMP,
        flush_messages=random.choice([1, 5, 2**60]),
    )


def as_found(entry: ProducerEntry) -> Producer:
    first = max(-1, entry.last_sequence - entry.offset_delta)
    last = first, entry.last_sequence, entry.last_offset - entry.offset_delta, entry.last_offset
    return Producer(
        entry.producer_epoch,
        [last] if entry.last_offset >= 0 else [],
        entry.coordinator_epoch,
        entry.current_txn_first_offset,
    )


def ignore_progress(*, done: int, total: int) -> None:
    assert done <= total


def brief(batches: list[Stored]) -> list[tuple[int, int, int]]:
    return [(b.base, b.last, b.header.leader_epoch) for b in batches]


def find_failure(seed: int, steps: list[Step]) -> BaseException | None:
    try:
        Harness(seed).run(steps)
    except (Exception, SimulatedCrash) as error:
        return error
    return None


def place_of(error: BaseException) -> tuple[str, str, int]:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return type(error).__name__, frame.name, frame.lineno or 0


def shorten(seed: int, steps: list[Step], where: object = None) -> list[Step]:
    """Leave out whatever is not needed for the run to fail in the same place."""
    size = len(steps) // 2
    while size:
        place = 0
        while place < len(steps):
            shorter = steps[:place] + steps[place + size :]
            error = find_failure(seed, shorter)
            if error is not None and (where is None or place_of(error) == where):
                steps = shorter
            else:
                place += size
        size //= 2
    return steps
