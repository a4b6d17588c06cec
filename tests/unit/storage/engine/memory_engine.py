"""The smallest engine that passes the contract suite: a list of batches per log, in memory.

It shows what the interface requires of every engine, and what it does not: segments, files and
jobs. Tests of replication run on the segmented engine over a simulated disk, whose failures they
need.
"""

import os
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from penstock.config.log_config import LogConfig
from penstock.model.ids import (
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicId,
    TopicPartition,
    check_partition,
    check_topic_name,
)
from penstock.model.slices import FileSlice
from penstock.protocol.batch import (
    BatchHeader,
    CorruptBatch,
    check_header,
    is_crc_valid,
    iter_headers,
    read_header,
    stamp_offset_and_epoch,
)
from penstock.protocol.records import Record, iter_records
from penstock.storage.damage import check_batches
from penstock.storage.engine import (
    AppendItem,
    AppendOrigin,
    DamagedBatch,
    DirectoryStatistics,
    EngineStatistics,
    Job,
    LogAppendInfo,
    LogStatistics,
    PartitionLog,
    Read,
    RecoveryProgress,
    TimestampAndOffset,
)
from penstock.storage.errors import (
    CorruptRecords,
    DirectoryFailed,
    DirectoryLocked,
    InvalidRecords,
    LogFenced,
    OffsetOutOfRange,
    PartitionExists,
    StorageError,
    UnexpectedOffset,
    UnknownPartition,
    without_frames,
)
from penstock.storage.leader_epoch_cache import LeaderEpochCache, OffsetAndEpoch
from penstock.storage.log_validator import prepare, validate_batch
from penstock.storage.producer_replay import apply_batch, check_batch
from penstock.storage.producer_state_manager import ProducerStateManager
from penstock.storage.transaction_index import AbortedTxn


class _Stored(NamedTuple):
    header: BatchHeader
    content: bytes


class _MemoryFile:
    """The bytes of a read behind a real descriptor, as sendfile needs."""

    def __init__(self, content: bytes) -> None:
        self.descriptor = os.memfd_create("read")
        os.write(self.descriptor, content)

    def release(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class _NullLease:
    def release(self) -> None: ...


_DIRECTORY = "memory"


class MemoryLog:
    """Owned by its engine's owner thread."""

    def __init__(self, tp: TopicPartition, topic_id: TopicId, config: LogConfig) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.config = config
        self.log_start_offset = Offset(0)
        self.log_end_offset = Offset(0)
        self.durable_offset = Offset(0)
        self.high_watermark = Offset(0)
        self.producers = ProducerStateManager(str(tp))
        self.failure: OSError | None = None
        self._batches: list[_Stored] = []
        self._epochs = LeaderEpochCache()
        self._aborted: list[AbortedTxn] = []

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config

    # -- appending -------------------------------------------------------------------------

    def append(self, item: AppendItem, now_ms: int) -> LogAppendInfo:
        if self.failure is not None:
            raise LogFenced(self.tp, self.failure)
        if item.origin is AppendOrigin.REPLICATION:
            return self._append_as_follower(item.batches, now_ms)
        header = BatchHeader._make(validate_batch(item.batches, item.origin, self.tp))
        batches, header = prepare(
            item.batches,
            header,
            self.config,
            now_ms=now_ms,
            origin=item.origin,
            tp=self.tp,
        )
        duplicate = self._check_producer(header, batches) if header.has_producer else None
        if duplicate is not None:
            return duplicate
        first = self.log_end_offset
        stamp_offset_and_epoch(batches, 0, first, item.leader_epoch)
        self.begin_epoch(item.leader_epoch)
        self._store(bytes(batches), now_ms)
        return LogAppendInfo(first, self.log_end_offset, self._append_time(now_ms), False)

    def _append_as_follower(self, batches: memoryview, now_ms: int) -> LogAppendInfo:
        located = self._check_continuation(batches)
        if not located:
            raise InvalidRecords(f"{self.tp}: {len(batches)} bytes hold no whole batch")
        for position, header in located:
            if header.leader_epoch > self._epochs.latest:
                self._epochs.assign(header.leader_epoch, header.base_offset)
            self._store(bytes(batches[position : position + header.size]), now_ms)
        return LogAppendInfo(
            Offset(located[0][1].base_offset), self.log_end_offset, NO_TIMESTAMP, False
        )

    def _check_continuation(self, batches: memoryview) -> list[tuple[int, BatchHeader]]:
        end_offset: int = self.log_end_offset
        try:
            located = list(iter_headers(batches))
            for position, header in located:
                check_header(header, len(batches) - position)
                if not is_crc_valid(batches, position, header.size):
                    raise CorruptBatch(f"CRC of the batch at offset {header.base_offset} is wrong")
        except CorruptBatch as error:
            raise CorruptRecords(f"{self.tp}: {error.reason}; fetch again") from error
        for _, header in located:
            if header.base_offset < end_offset:
                raise UnexpectedOffset(f"{self.tp} ends at {end_offset}; truncate first")
            end_offset = header.next_offset
        return located

    def _store(self, content: bytes, now_ms: int) -> None:
        batch = _Stored(read_header(content), content)
        self._batches.append(batch)
        self.log_end_offset = Offset(batch.header.next_offset)
        if batch.header.has_producer:
            self._follow(batch, now_ms)

    def _append_time(self, now_ms: int) -> TimestampMs:
        is_stamped = self.config.message_timestamp_type == "LogAppendTime"
        return TimestampMs(now_ms) if is_stamped else NO_TIMESTAMP

    # -- producers -------------------------------------------------------------------------

    def _check_producer(self, header: BatchHeader, batches: memoryview) -> LogAppendInfo | None:
        stored = check_batch(self.producers, header, batches, self.tp)
        if stored is None:
            return None
        time = self._append_time(stored.timestamp_ms)
        return LogAppendInfo(stored.base_offset, Offset(stored.last_offset + 1), time, True)

    def _follow(self, batch: _Stored, now_ms: int) -> None:
        aborted = apply_batch(self.producers, batch.header, memoryview(batch.content), now_ms)
        if aborted is not None:
            self._aborted.append(aborted)

    def _replay(self, now_ms: int) -> None:
        self.producers.clear()
        self._aborted.clear()
        for batch in self._batches:
            if batch.header.has_producer:
                self._follow(batch, now_ms)
        self.producers.on_high_watermark(self.high_watermark)

    def aborted(self, start: Offset, below: Offset) -> Sequence[AbortedTxn]:
        return [a for a in self._aborted if a.last_offset >= start and a.first_offset < below]

    # -- reading ---------------------------------------------------------------------------

    def read(
        self,
        start: Offset,
        *,
        below: Offset,
        max_bytes: int,
        at_least_one: bool,
        skip_empty: bool = False,
    ) -> Read:
        if not self.log_start_offset <= start <= self.log_end_offset:
            raise OffsetOutOfRange(start, self.log_start_offset, self.log_end_offset)
        wanted = [b for b in self._batches if start <= b.header.last_offset < below]
        taken: list[bytes] = []
        end_offset, left = start, max_bytes
        for header, content in wanted:
            left -= len(content)
            if left < 0 and (taken or not at_least_one):
                break
            taken.append(content)
            end_offset = Offset(header.next_offset)
        if not taken:
            return Read((), start, _NullLease())
        file = _MemoryFile(b"".join(taken))
        return Read((FileSlice(file.descriptor, 0, sum(map(len, taken))),), end_offset, file)

    def find_damage(self, start: Offset, max_bytes: int) -> DamagedBatch | None:
        read = self.read(start, below=self.log_end_offset, max_bytes=max_bytes, at_least_one=True)
        try:
            pieces = [os.pread(piece.fd, piece.length, piece.position) for piece in read.slices]
        finally:
            read.lease.release()
        return check_batches(b"".join(pieces), start)[0]

    def _records(self) -> list[tuple[Record, int]]:
        try:
            return [
                (record, header.leader_epoch)
                for header, content in self._batches
                for record in iter_records(content)
                if record.offset >= self.log_start_offset
            ]
        except CorruptBatch as error:
            raise CorruptRecords(f"{self.tp}: {error.reason}") from error

    def find_by_time(self, timestamp_ms: TimestampMs) -> TimestampAndOffset | None:
        for record, epoch in self._records():
            if record.timestamp_ms >= timestamp_ms:
                return _timed(record, epoch)
        return None

    def find_appended_after(
        self, timestamp_ms: TimestampMs, start: Offset
    ) -> TimestampAndOffset | None:
        for header, _ in self._batches:
            is_later = header.is_append_time and header.max_timestamp > timestamp_ms
            if is_later and header.last_offset >= start:
                return TimestampAndOffset(
                    Offset(max(header.base_offset, start)),
                    TimestampMs(header.max_timestamp),
                    LeaderEpoch(header.leader_epoch),
                )
        return None

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        timed = [item for item in self._records() if item[0].timestamp_ms >= 0]
        return _timed(*max(timed, key=lambda item: item[0].timestamp_ms)) if timed else None

    def find_time_of(self, offset: Offset) -> TimestampMs | None:
        for header, _ in self._batches:
            if header.last_offset >= max(offset, self.log_start_offset):
                is_last = header.is_append_time or header.has_delete_horizon
                time_ms = header.max_timestamp if is_last else header.base_timestamp
                return TimestampMs(time_ms) if time_ms >= 0 else None
        return None

    def segment_offsets(self, *, before_ms: TimestampMs | None = None) -> Sequence[Offset]:
        """Everything is in one segment."""
        newest = max((header.max_timestamp for header, _ in self._batches), default=-1)
        is_after = before_ms is not None and newest > before_ms
        return [] if is_after else [self.log_start_offset]

    # -- watermarks and epochs -------------------------------------------------------------

    @property
    def last_stable_offset(self) -> Offset:
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def advance_high_watermark(self, offset: Offset) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end_offset))
        self.producers.on_high_watermark(self.high_watermark)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return self._epochs.latest

    def find_epoch_end(self, epoch: LeaderEpoch) -> OffsetAndEpoch | None:
        return self._epochs.find_end_offset(epoch, self.log_end_offset)

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        assert epoch >= self._epochs.latest, f"{self.tp}: epoch {epoch} is a former leader's"
        self._epochs.assign(epoch, self.log_end_offset)

    # -- shape -----------------------------------------------------------------------------

    def truncate_to(self, offset: Offset, now_ms: int) -> None:
        if offset < self.log_start_offset:
            self.restart_at(offset, now_ms)
            return
        if offset < self.log_end_offset:
            self._batches = [b for b in self._batches if b.header.last_offset < offset]
            last = self._batches[-1].header.next_offset if self._batches else 0
            self._settle_end(Offset(max(last, self.log_start_offset)))
            self._replay(now_ms)
        self._epochs.truncate_from_end(self.log_end_offset)

    def _settle_end(self, offset: Offset) -> None:
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.durable_offset = min(self.durable_offset, offset)

    def restart_at(self, offset: Offset, now_ms: int) -> None:
        self._batches.clear()
        self._epochs.clear()
        self.log_start_offset = self.high_watermark = offset
        self.log_end_offset = self.durable_offset = offset
        self._replay(now_ms)

    def delete_before(self, offset: Offset) -> None:
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs.truncate_from_start(offset)

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.content) for batch in self._batches)

    @property
    def appended_bytes(self) -> int:
        return self.size_bytes

    @property
    def segment_count(self) -> int:
        return 1

    def statistics(self) -> LogStatistics:
        return LogStatistics(
            tp=self.tp,
            directory=_DIRECTORY,
            log_start_offset=self.log_start_offset,
            last_stable_offset=self.last_stable_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            durable_offset=self.durable_offset,
            size_bytes=self.size_bytes,
            segments=self.segment_count,
            producers=len(self.producers),
            fenced=None if self.failure is None else str(self.failure),
        )


def _timed(record: Record, epoch: int) -> TimestampAndOffset:
    return TimestampAndOffset(
        Offset(record.offset), TimestampMs(record.timestamp_ms), LeaderEpoch(epoch)
    )


class MemoryData:
    """The data that outlives an engine, as log directories do on a disk."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.checkpointed: set[TopicPartition] = set()
        self.failure: OSError | None = None
        self.owner: MemoryEngine | None = None  # the engine that holds the lock


class MemoryEngine:
    """All logs in one dict, which the next engine over the same data finds again."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data
        self._logs: dict[TopicPartition, MemoryLog] = {}
        self._missing: set[TopicPartition] = set()

    def lock(self) -> None:
        if self._data.owner not in (None, self):
            raise DirectoryLocked(_DIRECTORY)
        if self._data.failure is None:
            self._data.owner = self

    def recover(
        self, progress: RecoveryProgress, now_ms: int
    ) -> Mapping[TopicPartition, PartitionLog]:
        self.lock()
        self.check_any_works()
        self._logs = self._data.logs
        for log in self._logs.values():
            log.failure = None
        self._missing = self._data.checkpointed - self._logs.keys()
        progress(done=len(self._logs), total=len(self._logs))
        return dict(self._logs)

    def missing(self) -> Set[TopicPartition]:
        return frozenset(self._missing)

    def short(self) -> Mapping[TopicPartition, Offset]:
        return {}

    def without_segments(self) -> Set[TopicPartition]:
        return frozenset()

    def create(
        self,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        now_ms: int,
        *,
        is_new: bool = True,
    ) -> PartitionLog:
        check_topic_name(tp.topic)
        check_partition(tp.partition)
        if tp in self._logs:
            raise PartitionExists(tp)
        log = self._logs[tp] = MemoryLog(tp, topic_id, config)
        self._missing.discard(tp)
        return log

    def delete(self, tp: TopicPartition) -> None:
        log = self._logs.pop(tp, None)
        if log is None:
            raise UnknownPartition(tp)
        log.failure = FileNotFoundError("the partition was deleted")

    def append(
        self, items: Sequence[AppendItem], now_ms: int
    ) -> list[LogAppendInfo | StorageError]:
        return [_try_append(item, now_ms) for item in items]

    def flush(
        self, log: PartitionLog, upto: Offset, done: Callable[[StorageError | None], None]
    ) -> None:
        assert isinstance(log, MemoryLog)
        if log.failure is not None:
            done(LogFenced(log.tp, log.failure))
            return
        if log.durable_offset < upto:
            log.durable_offset = log.log_end_offset
        done(None)

    def due_jobs(self, now_ms: int) -> Sequence[Job]:
        return ()

    def check_any_works(self) -> None:
        if self._data.failure is not None:
            raise DirectoryFailed(_DIRECTORY, self._data.failure)

    def directory_statistics(self) -> DirectoryStatistics:
        return DirectoryStatistics(directories=1, failed={}, open_files=0)

    def statistics(self) -> EngineStatistics:
        logs = tuple(log.statistics() for log in self._logs.values())
        failure = self._data.failure
        failed = {} if failure is None else {_DIRECTORY: str(failure)}
        return EngineStatistics(logs=logs, failed_directories=failed, open_files=0)

    def close(self) -> None:
        for log in self._logs.values():
            log.durable_offset = log.log_end_offset
        if self._data.owner is self:
            self._data.checkpointed = set(self._logs)
        self.abandon()

    def abandon(self) -> None:
        for log in self._logs.values():
            log.failure = OSError("the engine is closed")
        self._logs = {}
        if self._data.owner is self:
            self._data.owner = None


def _try_append(item: AppendItem, now_ms: int) -> LogAppendInfo | StorageError:
    assert isinstance(item.log, MemoryLog)
    try:
        return item.log.append(item, now_ms)
    except StorageError as error:
        return without_frames(error)
