"""A log of known batches on a simulated disk: what a recovery shows, and what it may show.

Not a test. `Timeline` is the model: batches byte for byte, with the least that must survive.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.io.disk import Disk
from penstock.logs.event_logger import message_logger
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.batch import BatchHeader, iter_headers, read_header
from penstock.protocol.compression import Codec
from penstock.protocol.control import EndMarker, build_end_marker_batch, read_end_marker
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.storage.engine import NO_TOPIC_ID, AppendItem, AppendOrigin, LogAppendInfo
from penstock.storage.group_commit import Background
from penstock.storage.log import SegmentedLog
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import LoseEverything, SimulatedDisk

DATA = "/data"
PARTITION = TopicPartition("orders", 0)
FOLDER = f"{DATA}/{PARTITION}"
TOPIC_ID = TopicId(UUID(int=7))
NOW_MS = 1_000_000
CONFIG = LogConfig(
    segment_bytes=800,
    index_interval_bytes=150,
    retention_ms=-1,
    message_timestamp_after_max_ms=10**9,
)


def progress(*, done: int, total: int) -> None:
    assert done <= total


class Opened(NamedTuple):
    engine: SegmentedEngine
    logs: dict[TopicPartition, SegmentedLog]

    @property
    def log(self) -> SegmentedLog:
        return self.logs[PARTITION]


def start(
    disk: Disk,
    config: LogConfig = CONFIG,
    *,
    background: Background | None = None,
    report: Callable[[str], None] = lambda message: None,
    data: str = DATA,
    make: Callable[..., Any] = SegmentedEngine,
) -> Opened:
    """Recovers the storage of a broker."""
    engine = make(
        StorageConfig(log_dirs=(data,), producer_id_expiration_ms=2**62),
        config_of=lambda topic: config,
        disk=disk,
        background=background,
        logger=message_logger(report),
    )
    logs: dict[TopicPartition, SegmentedLog] = dict(engine.recover(progress, NOW_MS))
    return Opened(engine, logs)


def create(
    engine: SegmentedEngine,
    config: LogConfig = CONFIG,
    partition: TopicPartition = PARTITION,
    topic_id: TopicId = TOPIC_ID,
) -> SegmentedLog:
    log: Any = engine.create(partition, topic_id, config, NOW_MS)  # of any engine
    return log  # type: ignore[no-any-return]


# -- batches ---------------------------------------------------------------------------------


def data_batch(
    number: int,
    *,
    records: int = 2,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    key: bytes | None = None,
    value_bytes: int = 10,
) -> bytearray:
    """Records whose values name their batch."""
    return build_batch(
        [
            Record(
                index,
                1000 + 10 * number + index,
                key or b"k%d" % index,
                _value(number, index, value_bytes),
            )
            for index in range(records)
        ],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=sequence,
        transactional=transactional,
    )


def _value(number: int, index: int, length: int) -> bytes:
    return random.Random(1000 * number + index).randbytes(length)  # does not compress


def marker(number: int, producer_id: int, *, commit: bool) -> bytearray:
    return build_end_marker_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=1000 + 10 * number,
    )


class Step(NamedTuple):
    batch: bytearray
    epoch: int
    origin: AppendOrigin = AppendOrigin.CLIENT


def scenario(value_bytes: int = 10) -> list[Step]:
    """Every kind of batch: three epochs from 0 on, five codecs, an idempotent producer; committed,
    aborted, nested and undecided transactions, some of which cross segments."""

    def txn(number: int, producer: int, sequence: int) -> bytearray:
        return data_batch(
            number,
            producer_id=producer,
            sequence=sequence,
            transactional=True,
            value_bytes=value_bytes,
        )

    def plain(number: int, codec: Codec = Codec.NONE, records: int = 2) -> bytearray:
        return data_batch(number, codec=codec, records=records, value_bytes=value_bytes)

    coordinator = AppendOrigin.COORDINATOR
    return [
        Step(plain(0), 0),
        Step(data_batch(1, producer_id=5, sequence=0, value_bytes=value_bytes), 0),
        Step(txn(2, 8, 0), 0),
        Step(plain(3, Codec.GZIP, 3), 0),
        Step(txn(4, 9, 0), 0),
        Step(marker(5, 8, commit=False), 0, coordinator),
        Step(data_batch(6, producer_id=5, sequence=2, value_bytes=value_bytes), 1),
        Step(plain(7, Codec.LZ4, 3), 1),
        Step(txn(8, 8, 2), 1),
        Step(marker(9, 9, commit=True), 1, coordinator),
        Step(plain(10, Codec.SNAPPY), 3),
        Step(marker(11, 8, commit=False), 3, coordinator),
        Step(txn(12, 9, 2), 3),
        Step(plain(13, Codec.ZSTD, 1), 3),
        Step(data_batch(14, producer_id=5, sequence=4, value_bytes=value_bytes), 3),
        Step(marker(15, 9, commit=False), 3, coordinator),
        Step(txn(16, 8, 4), 3),
    ]


# -- what a log shows --------------------------------------------------------------------------


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int


class Producer(NamedTuple):
    producer_id: int
    last_sequence: int
    open_since: int | None


class Seen(NamedTuple):
    """Everything that a log shows to its users."""

    log_start_offset: int
    log_end_offset: int
    batches: tuple[bytes, ...]
    aborted: tuple[Aborted, ...]
    producers: frozenset[Producer]
    epochs: tuple[tuple[int, int], ...]
    topic_id: UUID


def look(log: SegmentedLog, disk: Disk) -> Seen:
    assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
    assert log.durable_offset <= log.log_end_offset
    aborted = log.aborted(log.log_start_offset, log.log_end_offset)
    return Seen(
        log.log_start_offset,
        log.log_end_offset,
        tuple(read_all(log, disk)),
        tuple(Aborted(*entry[:3]) for entry in aborted),
        frozenset(
            Producer(entry.producer_id, entry.last_sequence, entry.current_txn_first_offset)
            for entry in log.producers.producers()
        ),
        tuple((entry.epoch, entry.start_offset) for entry in log.epochs.entries),
        log.topic_id,
    )


def read_all(log: SegmentedLog, disk: Disk, max_bytes: int = 4096) -> Iterable[bytes]:
    """Every batch as read from the log; its records must decode."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, below=log.log_end_offset, max_bytes=max_bytes, at_least_one=True)
        content = b"".join(disk.pread(s.fd, s.length, s.position) for s in read.slices)
        read.lease.release()
        assert read.end_offset > offset, f"a read at {offset} makes no progress"
        for position, header in iter_headers(content):
            batch = content[position : position + header.size]
            check_records(batch)
            yield batch
        offset = read.end_offset


# Tens of thousands of recoveries show the same few batches, so decoded batches are cached.


@lru_cache(maxsize=1 << 16)
def check_records(batch: bytes) -> None:
    header = read_header(batch)
    for record in iter_records(batch):
        assert header.base_offset <= record.offset <= header.last_offset


@lru_cache(maxsize=1 << 16)
def header_of(batch: bytes) -> BatchHeader:
    return read_header(batch)


@lru_cache(maxsize=1 << 16)
def end_marker_of(batch: bytes) -> EndMarker | None:
    return read_end_marker(batch)


# -- what it may show --------------------------------------------------------------------------


def aborted_in(batches: Sequence[bytes]) -> tuple[Aborted, ...]:
    """Computed by definition: from the first batch of a transaction to its abort marker."""
    opened: dict[int, int] = {}
    aborted_txns: list[Aborted] = []
    for batch in batches:
        header = header_of(batch)
        end = end_marker_of(batch)
        if end is not None:
            first = opened.pop(header.producer_id, None)
            if first is not None and not end.commit:
                aborted_txns.append(Aborted(header.producer_id, first, header.last_offset))
        elif header.is_transactional:
            opened.setdefault(header.producer_id, header.base_offset)
    return tuple(aborted_txns)


def skipped(batches: Sequence[bytes], aborted: Sequence[Aborted]) -> list[int]:
    """Base offsets of the batches that a read_committed consumer skips."""
    headers = [header_of(batch) for batch in batches]
    return [
        header.base_offset
        for header in headers
        if header.is_transactional
        and not header.is_control
        and any(
            entry.producer_id == header.producer_id
            and entry.first_offset <= header.base_offset < entry.last_offset
            for entry in aborted
        )
    ]


def producers_in(batches: Sequence[bytes]) -> frozenset[Producer]:
    last_sequences: dict[int, int] = {}
    opened: dict[int, int] = {}
    for batch in batches:
        header = header_of(batch)
        if header.producer_id < 0:
            continue
        if header.is_control:
            opened.pop(header.producer_id, None)
            last_sequences.setdefault(header.producer_id, -1)
            continue
        last_sequences[header.producer_id] = header.last_sequence
        if header.is_transactional:
            opened.setdefault(header.producer_id, header.base_offset)
    return frozenset(
        Producer(producer, sequence, opened.get(producer))
        for producer, sequence in last_sequences.items()
    )


def epochs_in(batches: Sequence[bytes]) -> tuple[tuple[int, int], ...]:
    epochs: list[tuple[int, int]] = []
    for header in map(header_of, batches):
        if not epochs or header.leader_epoch > epochs[-1][0]:
            epochs.append((header.leader_epoch, header.base_offset))
    return tuple(epochs)


@dataclass(slots=True)
class Timeline:
    """One possible state of the log: a prefix of `batches`, at least those below `min_end`."""

    batches: list[bytes] = field(default_factory=list)
    starts: set[int] = field(default_factory=lambda: {0})  # possible log start offsets
    min_end: int = 0  # everything below was acknowledged as durable
    first_epochs: tuple[tuple[int, int], ...] = ()
    topic_id: TopicId = TOPIC_ID

    def find_problem(self, seen: Seen) -> str | None:
        if seen.topic_id not in (self.topic_id, NO_TOPIC_ID):
            return f"has the id {seen.topic_id} of another topic"
        if seen.log_start_offset not in self.starts:
            return f"starts at {seen.log_start_offset}, not one of {sorted(self.starts)}"
        if seen.log_end_offset < self.min_end:
            return f"ends at {seen.log_end_offset}, {self.min_end} was acknowledged"
        if seen.log_end_offset not in self.ends:
            return f"ends at {seen.log_end_offset}, not at a batch's end"
        expected = self.between(seen.log_start_offset, seen.log_end_offset)
        if list(seen.batches) != expected:
            return f"{len(seen.batches)} batches differ from the {len(expected)} written"
        return None

    @property
    def ends(self) -> set[int]:
        """Possible log end offsets: after each batch, or the start if there is none."""
        return {header_of(batch).next_offset for batch in self.batches} | self.starts

    def between(self, start: int, end: int) -> list[bytes]:
        headers = [(header_of(batch), batch) for batch in self.batches]
        return [
            b for header, b in headers if header.last_offset >= start and header.base_offset < end
        ]

    def copy(self) -> Timeline:
        return Timeline(list(self.batches), set(self.starts), self.min_end, topic_id=self.topic_id)


def check_derived(seen: Seen) -> None:
    """Checks aborted transactions, producers and epochs against the batches from offset 0 on."""
    assert seen.log_start_offset == 0
    assert seen.aborted == aborted_in(seen.batches)
    assert seen.producers == producers_in(seen.batches)
    assert seen.epochs == epochs_in(seen.batches)


# -- recoveries ------------------------------------------------------------------------------


class Counter:
    """Counts the recoveries of a test for the summary of the suite."""

    def __init__(self, make: Callable[..., Any] = SegmentedEngine) -> None:
        self.recoveries = 0
        self.make = make

    def recover(
        self, disk: SimulatedDisk, config: LogConfig = CONFIG
    ) -> tuple[SegmentedEngine, SegmentedLog, Seen]:
        engine, logs = start(disk, config, make=self.make)
        self.recoveries += 1
        assert not engine.statistics().failed_directories
        log = logs[PARTITION]
        return engine, log, look(log, disk)

    def check_settled(
        self,
        disk: SimulatedDisk,
        engine: SegmentedEngine,
        log: SegmentedLog,
        seen: Seen,
        config: LogConfig = CONFIG,
    ) -> None:
        """Checks that a second recovery changes nothing, and that the log accepts appends."""
        _, _, again = self.recover(disk.survivor_of_kill(), config)
        assert again._replace(aborted=seen.aborted) == seen
        assert skipped(again.batches, again.aborted) == skipped(seen.batches, seen.aborted)
        epoch = max(log.latest_epoch, 0)
        (added,) = engine.append(
            [AppendItem(log, memoryview(data_batch(99)), LeaderEpoch(epoch))], NOW_MS
        )
        assert isinstance(added, LogAppendInfo), added
        flush(engine, log)
        _, _, grown = self.recover(disk.survivor_of_power_cut(LoseEverything()), config)
        assert grown.log_end_offset == added.end_offset
        assert grown.batches[:-1] == seen.batches
        assert skipped(grown.batches, grown.aborted) == skipped(seen.batches, seen.aborted)


def flush(engine: SegmentedEngine, log: SegmentedLog) -> None:
    answers: list[object] = []
    engine.flush(log, log.log_end_offset, answers.append)
    assert answers == [None]


def write_scenario(
    disk: SimulatedDisk, steps: Sequence[Step], config: LogConfig = CONFIG
) -> Opened:
    """Creates a log with these batches, all replicated, and flushed only by rolling."""
    engine, _ = start(disk, config)
    log = create(engine, config)
    append_steps(engine, log, steps)
    return Opened(engine, {PARTITION: log})


def append_steps(engine: SegmentedEngine, log: SegmentedLog, steps: Sequence[Step]) -> None:
    for step in steps:
        (result,) = engine.append(
            [AppendItem(log, memoryview(step.batch), LeaderEpoch(step.epoch), step.origin)], NOW_MS
        )
        assert isinstance(result, LogAppendInfo), result
        log.advance_high_watermark(Offset(log.log_end_offset))
