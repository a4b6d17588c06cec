"""A compacted log on a simulated disk: appends, rolls, passes, and the consumer's view."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar
from uuid import UUID

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.io.disk import Disk
from penstock.model.ids import Offset, TopicId, TopicPartition
from penstock.protocol.batch import BatchHeader
from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch, read_end_marker
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.storage.compaction import CompactionJob, CompactionResult
from penstock.storage.engine import AppendOrigin
from penstock.storage.handles import Handles
from penstock.storage.log import SegmentedLog
from penstock.storage.producer_state_manager import ProducerStateEntry
from penstock.storage.segment_file import LOG_SUFFIX
from penstock.testing.simulated_disk import SimulatedDisk

FOLDER = "/data/table-0"
COMPACT = frozenset({"compact"})
Result = TypeVar("Result")


class Seen(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def directly(function: Callable[[], Result]) -> Result:
    """Run a job's calls to the owner in the job's thread."""
    return function()


def make_log(disk: Disk, config: LogConfig) -> SegmentedLog:
    return SegmentedLog(
        disk=disk,
        handles=Handles(disk),
        directory=FOLDER,
        tp=TopicPartition("table", 0),
        topic_id=TopicId(UUID(int=1)),
        config=config,
        on_rolled=lambda log: None,
        on_failed=lambda error: None,
        before_cut=lambda log, end_offset, kept_below: None,
    )


class Table:
    """A compacted log whose records are replicated and durable at once."""

    def __init__(self, **settings: object) -> None:
        self.disk = SimulatedDisk(FOLDER)
        self.config = LogConfig(**{"cleanup_policy": COMPACT, **settings})  # type: ignore[arg-type]
        self.log = make_log(self.disk, self.config)
        self.log.start_at(Offset(0), 0)
        self.now_ms = 1_000
        self._sequences: dict[tuple[int, int], int] = {}

    @classmethod
    def on(cls, disk: SimulatedDisk, config: LogConfig) -> "Table":
        """Return the current log on this disk."""
        table = cls.__new__(cls)
        table.disk, table.config, table.now_ms = disk, config, 1_000
        table.log = reopen(disk, config)
        table._sequences = {}
        return table

    def put(
        self,
        *records: tuple[bytes | None, bytes | None],
        pid: int = -1,
        epoch: int = 0,
        transactional: bool = False,
        codec: Codec = Codec.NONE,
        step_ms: int = 0,
    ) -> int:
        """Append one batch with records `step_ms` apart; returns its base offset."""
        sequence = self._sequences.get((pid, epoch), 0)
        batch = build_batch(
            [
                Record(index, self.now_ms + index * step_ms, key, value)
                for index, (key, value) in enumerate(records)
            ],
            codec=codec,
            producer_id=pid,
            producer_epoch=epoch if pid >= 0 else -1,
            base_sequence=sequence if pid >= 0 else -1,
            transactional=transactional,
        )
        self._sequences[pid, epoch] = sequence + len(records)
        return self._append(batch, AppendOrigin.CLIENT)

    def end(self, pid: int, *, commit: bool, epoch: int = 0) -> int:
        marker = build_end_marker_batch(
            commit=commit,
            coordinator_epoch=0,
            producer_id=pid,
            producer_epoch=epoch,
            timestamp_ms=self.now_ms,
        )
        return self._append(marker, AppendOrigin.COORDINATOR)

    def _append(self, batch: bytearray, origin: AppendOrigin) -> int:
        appended = self.log.append_as_leader(memoryview(batch), 0, origin, self.now_ms)
        self.settle()
        return appended.base_offset

    def settle(self) -> None:
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.log.durable_offset = self.log.log_end_offset

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def compact(self, storage: StorageConfig | None = None) -> CompactionResult | None:
        results: list[CompactionResult] = []
        job = CompactionJob(
            self.log,
            disk=self.disk,
            storage=StorageConfig() if storage is None else storage,
            now_ms=self.now_ms,
            checkpoint=lambda on_owner: self.log.durable_offset,
            on_done=results.append,
        )
        job.run(directly)
        return results[0] if results else None

    # -- content ---------------------------------------------------------------------------

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        return list(iter_batches(self.log))

    def committed(self) -> list[Seen]:
        return read_committed(self.log)

    def everything(self) -> list[Seen]:
        """Return data records, whether committed or aborted."""
        return [
            Seen(record.offset, record.timestamp_ms, record.key, record.value)
            for header, content in self.batches()
            if not header.is_control
            for record in iter_records(content)
        ]

    def markers(self) -> list[int]:
        return [
            header.base_offset
            for header, content in self.batches()
            if header.is_control and read_end_marker(content) is not None
        ]

    def list_keys(self) -> list[bytes | None]:
        return [seen.key for seen in self.everything()]

    def reopened(self) -> SegmentedLog:
        return reopen(self.disk, self.config)


def iter_batches(log: SegmentedLog) -> Iterator[tuple[BatchHeader, bytes]]:
    for segment in log.segments:
        scan = segment.scan(check_crc=True)
        for _, header, content in scan:
            yield header, bytes(content)
        assert scan.problem is None, scan.problem


def read_committed(log: SegmentedLog) -> list[Seen]:
    """Return what a consumer with isolation.level=read_committed sees, by its own rules.

    It reads batches up to the last stable offset and the list of aborted transactions, and skips a
    producer's batches from a transaction's first offset to its abort marker.
    """
    stable = log.last_stable_offset
    pending = sorted(log.aborted(log.log_start_offset, stable), key=lambda a: a.first_offset)
    skipped: set[int] = set()
    seen: list[Seen] = []
    for header, content in iter_batches(log):
        if header.base_offset >= stable:
            break
        while pending and pending[0].first_offset <= header.last_offset:
            skipped.add(pending.pop(0).producer_id)
        if header.is_control:
            marker = read_end_marker(content)
            if marker is not None and not marker.commit:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            seen += [Seen(r.offset, r.timestamp_ms, r.key, r.value) for r in iter_records(content)]
    return seen


def table_of(seen: list[Seen]) -> dict[bytes | None, bytes]:
    """Return the table that a consumer ends up with; tombstones delete."""
    table: dict[bytes | None, bytes] = {}
    for record in seen:
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table


def reopen(disk: Disk, config: LogConfig) -> SegmentedLog:
    """Reopen the log without snapshots, with producers replayed from the first batch."""
    names = {entry.name for entry in disk.list(FOLDER)}
    log = make_log(disk, config)
    for name in sorted(name for name in names if name.endswith(LOG_SUFFIX)):
        segment = log.segment_at(int(name.removesuffix(LOG_SUFFIX)), 0)
        segment.size = disk.size_of(f"{FOLDER}/{name}")
        log.segments.add(segment)
    active = log.segments.active
    active.resume(active.size)
    end = active.base_offset
    for header, _ in iter_batches(log):
        end = max(end, header.next_offset)
    log.log_start_offset = Offset(log.segments[0].base_offset)
    log.log_end_offset = log.high_watermark = log.durable_offset = Offset(end)
    log.replay_producers(0)
    return log


def lasting(entries: list[ProducerStateEntry]) -> dict[int, tuple[int, int, int, int, int | None]]:
    """Return the part of producer state that a restart must not change."""
    return {
        e.producer_id: (
            e.producer_epoch,
            e.last_sequence,
            e.last_offset,
            e.offset_delta,
            e.current_txn_first_offset,
        )
        for e in entries
    }
