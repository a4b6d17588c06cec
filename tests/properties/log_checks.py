"""The log under test beside its model, and their comparison."""

from collections import Counter
from random import Random

from tests.properties.log_drawing import (
    KEYS,
    MAX_EPOCH,
    MAX_TIMESTAMP,
    NOW_MS,
    PARTITION,
    RELATIVE_LIMIT,
    TIMES,
    TOPIC_ID,
    Deferred,
    Immediate,
    draw_config,
    ignore_progress,
)
from tests.properties.log_model import (
    Ended,
    Incarnation,
    Model,
    Producer,
    Stored,
    follow,
    replay,
    stored,
)

from penstock.config.log_config import StorageConfig
from penstock.logs.event_logger import message_logger
from penstock.model.ids import LeaderEpoch, Offset
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendItem, AppendOrigin, LogAppendInfo, PartitionLog, Read
from penstock.storage.errors import (
    OffsetOutOfRange,
    StorageError,
)
from penstock.storage.log import SegmentedLog
from penstock.storage.producer_state_manager import ProducerStateEntry
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import (
    SimulatedDisk,
)


class Pair:
    """One log on a simulated disk, the model of it, and the batches that go to both."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.config = draw_config(random)
        self.is_deferred = random.random() < 0.4
        self.disk = SimulatedDisk("/d")
        self.model = Model()
        self.intended: Model | None = None  # the state after the running operation
        self.ghosts: list[Model] = []  # former states that a power cut may bring back
        self.producers: dict[int, Producer] = {}
        self.ended: list[Ended] = []
        self.is_reloaded = False  # from a snapshot: duplicate windows may be shorter
        self.is_compacted = False
        self.is_compacting = False
        self.murky_below = 0  # compaction changed records unseen below the start
        self.max_start = 0  # transactions that began below may be known only in part
        self.witnessed: Counter[str] = Counter()
        self.incarnations = 0  # number of deletions of the log
        self.topic_id = TOPIC_ID
        self.is_absent = False  # the log was not found at the last start
        self.may_be_absent: set[str] = set()  # crashes ("kill", "power") that may leave no log
        self.formers: list[Incarnation] = []  # deleted logs that a power cut may bring back
        self.is_in_job = False
        self.may_fail = False  # a disk call of the running step may fail
        self.now_ms = NOW_MS
        self._start_engine()
        self.engine.recover(ignore_progress, self.now_ms)
        self.log = self._own(self.engine.create(PARTITION, TOPIC_ID, self.config, self.now_ms))
        self.epoch = 0
        self.append()
        self.engine.flush(self.log, self.log.log_end_offset, lambda error: None)
        self.background.pump()  # from now on a power cut must not lose the partition
        if random.random() < 0.3:
            base = random.choice([RELATIVE_LIMIT - 3, 2**40, 2**62, 5])
            self.model.restart(base)
            self.log.restart_at(Offset(base), self.now_ms)
        self.epoch = random.choice([0, 0, 5, MAX_EPOCH - 4])

    def _start_engine(self) -> None:
        self.background = Deferred() if self.is_deferred else Immediate()
        self.reports: list[str] = []
        self.engine = self._make_engine(
            StorageConfig(
                log_dirs=("/d",),
                producer_id_expiration_ms=2**62,
                cleaner_io_buffer_bytes=self.random.choice([64, 4096]),
                cleaner_dedupe_buffer_bytes=self.random.choice([200, 100_000]),
            ),
            self.random.choice([1, 3, 50]),
        )

    # Another engine replaces these.

    def _make_engine(self, config: StorageConfig, descriptors: int) -> SegmentedEngine:
        return SegmentedEngine(
            config,
            config_of=lambda topic: self.config,
            disk=self.disk,
            background=self.background,
            logger=message_logger(self.reports.append),
            descriptors=descriptors,
        )

    def _own(self, log: PartitionLog | None) -> SegmentedLog:
        assert isinstance(log, SegmentedLog), f"the log is gone: {self.reports}"
        return log

    def _check_segments(self) -> None:
        bases = [segment.base_offset for segment in self.log.segments]
        assert bases == sorted(set(bases))
        assert self.log.segments.active.is_active

    def _first_offset(self) -> int:
        """Where the files of the log begin."""
        return self.log.segments[0].base_offset

    def _has_snapshots(self) -> bool:
        return bool(self.log.snapshots.offsets)

    def append(self) -> None:
        records = self._records(self.model.end, self.random.randint(1, 4))
        codec = self.random.choice([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD])
        self._append_as_leader(build_batch(records, codec=codec, base_offset=self.model.end))

    def _append_as_leader(
        self, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> None:
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
        entry, producer = self.log.producers.find(producer_id), self.producers[producer_id]
        assert entry is not None
        assert entry.last_sequence == (producer.window[-1][1] if producer.window else -1)
        assert entry.current_txn_first_offset == producer.open_since

    def _send(
        self, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> list[LogAppendInfo | StorageError]:
        item = AppendItem(self.log, memoryview(batch), LeaderEpoch(max(self.epoch, 0)), origin)
        return self.engine.append([item], self.now_ms)

    def _batch_of(
        self, producer_id: int, epoch: int, sequence: int, count: int | None = None
    ) -> bytearray:
        producer = self.producers.get(producer_id)
        is_open = producer is not None and producer.open_since is not None
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
                base + index,
                self.random.choice(times),
                self.random.choice(KEYS),
                self.random.choice([None, b"v%d" % self.random.getrandbits(20), b"x" * 60]),
            )
            for index in range(count)
        ]

    def _some_offset(self) -> int:
        model = self.model
        near = [b.base for b in model.batches] + [b.last for b in model.batches]
        near += [model.start, model.end, model.high_watermark]
        return max(0, self.random.choice(near) + self.random.choice([-1, 0, 0, 0, 1]))

    def _move_start(self, start: int) -> None:
        self.model.delete_before(start)
        self.max_start = max(self.max_start, start)

    def _content(self, read: Read) -> bytes:
        try:
            return b"".join(self.disk.pread(s.fd, s.length, s.position) for s in read.slices)
        finally:
            read.lease.release()

    def _read_batches(self) -> list[Stored]:
        """All batches, by consecutive reads."""
        batches: list[Stored] = []
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
            cursor = 0
            while cursor < len(content):
                length = 12 + int.from_bytes(content[cursor + 8 : cursor + 12], "big")
                batches.append(stored(content[cursor : cursor + length]))
                cursor += length
        return batches


class Checks(Pair):
    """Compares everything that log and model both know."""

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
        self._check_segments()
        self._check_last_stable()

    def _check_last_stable(self) -> None:
        model = self.model
        undecided = [p.open_since for p in self.producers.values() if p.open_since is not None]
        waiting = [e.first for e in self.ended if e.marker >= model.high_watermark]
        allowed = [min([*undecided, *waiting, model.high_watermark])]
        if self.is_reloaded:
            # A snapshot does not contain transactions that had ended but were not replicated.
            bounds = [*waiting, model.high_watermark]
            allowed += [min([*undecided, first, model.high_watermark]) for first in bounds]
        if self.max_start:
            allowed.append(model.high_watermark)
            allowed += undecided
        stable = self.log.last_stable_offset
        if self.is_compacted and self.is_reloaded:
            # The first batch of a transaction may be gone while a snapshot still contains it.
            assert stable <= max(model.start, *allowed)
            return
        assert stable in [max(model.start, a) for a in allowed], (stable, allowed)

    def _check_producers(self, start: int) -> None:
        """Expects exactly the state of the batches; producers below the log start may be present or
        not."""
        retained, _ = replay(self.model.visible(start))
        for producer_id in range(6):
            entry = self.log.producers.find(producer_id)
            candidates = [self.producers.get(producer_id), retained.get(producer_id)]
            if entry is None:
                assert candidates[1] is None or self.is_compacted, (
                    f"producer {producer_id} is forgotten"
                )
                self.producers.pop(producer_id, None)
                continue
            if self.is_compacted:  # its batches may be gone while a snapshot still contains it
                self.producers[producer_id] = as_found(entry)
                continue
            possible = [producer for producer in reversed(candidates) if producer is not None]
            assert possible, f"producer {producer_id} is known though nothing tells of it"
            assert entry.producer_epoch in [p.epoch for p in possible]
            lasts = [p.window[-1][1::2] if p.window else (-1, -1) for p in possible]
            assert (entry.last_sequence, entry.last_offset) in lasts, (entry, possible)
            if not self.max_start:
                assert entry.current_txn_first_offset in [p.open_since for p in possible], entry
            last = entry.last_sequence, entry.last_offset
            self.producers[producer_id] = possible[lasts.index(last)]
            self.producers[producer_id].epoch = entry.producer_epoch
            self.producers[producer_id].open_since = entry.current_txn_first_offset
        self._check_aborted()

    def _check_aborted(self) -> None:
        start = self.model.start
        low = self.random.randint(start, self.model.end)
        below = self.random.randint(low, self.model.end)
        aborted = self.log.aborted(Offset(low), Offset(below))
        ends = {(int(a.producer_id), int(a.last_offset)): a.first_offset for a in aborted}
        for producer_id, first, marker, is_aborted in self.ended:
            is_wanted = is_aborted and marker >= low and first < below
            if first < self.max_start or (self.is_compacted and not is_wanted):
                continue  # known only in part, or as it was before compaction
            end = ends.get((producer_id, marker))
            assert (end is not None) == is_wanted, (producer_id, first, marker)
            assert end is None or end == first or (self.is_compacted and end < first)

    def _check_read(self, start: int, below: int, max_bytes: int, at_least_one: bool) -> None:
        model = self.model
        if not model.start <= start <= model.end:
            try:
                self.log.read(Offset(start), below=Offset(below), max_bytes=9, at_least_one=True)
            except OffsetOutOfRange:
                return
            raise AssertionError(f"{start} is outside of the log")
        has_room = self.log._handles.has_room  # False while a flush holds all handles
        read = self.log.read(
            Offset(start), below=Offset(below), max_bytes=max_bytes, at_least_one=at_least_one
        )
        content = self._content(read)
        wanted = [b for b in model.batches if b.last >= start and b.last < below]
        if not content:
            assert read.end_offset == start
            is_too_large = bool(wanted) and len(wanted[0].content) > max_bytes
            assert not wanted or (not at_least_one and (is_too_large or not has_room))
            return
        size, index = 0, -1
        while size < len(content):
            index += 1
            batch = wanted[index]
            size += len(batch.content)
        assert content == b"".join(b.content for b in wanted[: index + 1]), "not the batches there"
        assert size <= max_bytes or (index == 0 and at_least_one)
        following = [b.base for b in model.batches if b.base > batch.last]
        assert batch.last < read.end_offset <= min([*following, model.end])

    def read_everything(self) -> None:
        assert self._read_batches() == self.model.visible()
        self._check_producers(self.model.start)

    def _adopt_epochs(self, model: Model) -> None:
        """Epochs of batches are present; one without a batch may be missing."""
        epochs = self.log.epochs
        # Deleting records moves the first epoch's start at once, but the log's only with a
        # checkpoint.
        first = epochs.entries[0].start_offset if epochs.entries else self.max_start
        for batch in model.visible(max(model.start, min(first, self.max_start))):
            assert epochs.find_epoch_at(max(batch.base, first)) == batch.header.leader_epoch
        for epoch, offset in epochs.entries:
            # What is lost may be a log start that had moved the epoch's start, or a later epoch
            # that had begun at the same offset.
            is_begun = any(later >= epoch and offset <= start for later, start in model.epochs)
            assert offset < model.end or offset == model.start or is_begun
        model.epochs = [(entry.epoch, entry.start_offset) for entry in epochs.entries]
        self.epoch = max(self.epoch, self.log.latest_epoch)


def as_found(entry: ProducerStateEntry) -> Producer:
    first = max(-1, entry.last_sequence - entry.offset_delta)
    last = first, entry.last_sequence, entry.last_offset - entry.offset_delta, entry.last_offset
    return Producer(
        entry.producer_epoch,
        [last] if entry.last_offset >= 0 else [],
        coordinator_epoch=entry.coordinator_epoch,
        marker=-1 if entry.coordinator_epoch < 0 else 0,  # the offset does not matter
        open_since=entry.current_txn_first_offset,
    )
