"""Converts a log directory from one storage engine to the other, without a broker.

The copy grows in a folder of the log directory, is read again and compared batch by batch, and
counts from one atomic rename on: that of meta.properties. Invariant: until then the source is
whole, and afterwards the copy is; a conversion that was interrupted is started again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.io.disk import APPEND, Disk, read_fully
from penstock.logs.event_logger import NO_LOGGER, EventLogger
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.protocol.batch import BatchHeader, iter_headers
from penstock.storage.checkpoints import MAX_OFFSET
from penstock.storage.commit_log.commit_log import COMMIT_LOG_FOLDER
from penstock.storage.commit_log.commit_log_directory import ABORT_FILE
from penstock.storage.commit_log.commit_log_engine import CommitLogEngine
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.commit_log.state_checkpoint import QUEUE_FOLDER, STATE_CHECKPOINT_FILE
from penstock.storage.damage import check_batches
from penstock.storage.engine import (
    AppendItem,
    AppendOrigin,
    Engine,
    LogAppendInfo,
    LogBeginning,
    PartitionLog,
)
from penstock.storage.errors import StorageError
from penstock.storage.leader_epoch_cache import EpochEntry
from penstock.storage.log import SegmentedLog
from penstock.storage.log_directory import (
    CHECKPOINT_FILES,
    METADATA_TOPIC,
    is_deleted_folder,
    parse_folder_name,
)
from penstock.storage.partition_metadata import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from penstock.storage.producer_state_manager import ProducerStateEntry
from penstock.storage.segmented_engine import SegmentedEngine

SEGMENTED, COMMIT_LOG = "segmented", "commitlog"
COPY_FOLDER = ".conversion"
_COMMIT_LOG_FILES = frozenset({COMMIT_LOG_FOLDER, QUEUE_FOLDER, STATE_CHECKPOINT_FILE, ABORT_FILE})
_SEGMENTED_FILES = frozenset({*CHECKPOINT_FILES, CLEAN_SHUTDOWN_FILE})
_READ_BYTES = 1 << 20
_CONFIG = LogConfig()  # topics' own configs matter to retention and compaction, which do not run

CopiedLog = SegmentedLog | CommitLogPartition
Progress = Callable[[int], None]


class ConversionRefused(Exception):
    """The log directory stays as it is."""


class ConvertibleEngine(Engine, Protocol):
    def restore(self, beginning: LogBeginning, config: LogConfig, now_ms: int) -> CopiedLog: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What a conversion has done."""

    directory: str
    engine: str
    partitions: int
    batches: int
    size_bytes: int


class _State(NamedTuple):
    """All of a log but its batches: what a copy must have too."""

    topic_id: object
    log_start_offset: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    log_end_offset: Offset
    cleaned_offset: Offset
    epochs: Sequence[EpochEntry]
    producers: dict[int, ProducerStateEntry]


class Conversion:
    """One conversion of one log directory. Run it once."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        engine: str,
        *,
        now_ms: int,
        progress: Progress = lambda count: None,
        logger: EventLogger = NO_LOGGER,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._engine = engine
        self._copy = f"{directory}/{COPY_FOLDER}"
        self._now_ms = now_ms
        self._progress = progress
        self._logger = logger
        self._is_over = False  # the copy counts, or may
        self._batches = 0
        self._size_bytes = 0

    def run(self) -> Converted:
        """ConversionRefused, a StorageError or an OSError leaves the directory to its engine."""
        stored = self._read_properties()
        used = stored.engine or SEGMENTED
        source = self._make_engine(used, self._directory)
        source.lock()  # DirectoryLocked while a broker runs
        try:
            if used == self._engine:
                self._remove_files_of(_other(used))
                return self._converted(0)
            self._remove_files_of(self._engine)
            partitions = self._convert(source, stored)
        finally:
            source.abandon()
        return self._converted(partitions)

    def _convert(self, source: ConvertibleEngine, stored: MetaProperties) -> int:
        logs = self._recover(source)
        try:
            beginnings = [self._check(log) for log in logs]
            self._copy_logs(logs, beginnings)
            self._compare_logs(logs)
            self._take_over(stored)
        except Exception:
            if not self._is_over:
                self._remove_files_of(self._engine)
                source.close()  # so that the broker's next start need not recover
            raise
        self._remove_files_of(_other(self._engine))
        return len(logs)

    def _converted(self, partitions: int) -> Converted:
        return Converted(
            directory=self._directory,
            engine=self._engine,
            partitions=partitions,
            batches=self._batches,
            size_bytes=self._size_bytes,
        )

    def _read_properties(self) -> MetaProperties:
        stored = read_meta_properties(self._disk, self._directory)
        if stored is None:
            raise ConversionRefused(
                f"{self._directory} has no {META_PROPERTIES_FILE}, so it is no log directory of a "
                f"broker; name one of its log.dirs"
            )
        return stored

    def _make_engine(self, kind: str, directory: str) -> ConvertibleEngine:
        make = SegmentedEngine if kind == SEGMENTED else CommitLogEngine
        return make(
            StorageConfig(log_dirs=(directory,)),
            config_of=lambda topic: _CONFIG,
            disk=self._disk,
            logger=self._logger,
        )

    # -- the source ------------------------------------------------------------------------

    def _recover(self, source: ConvertibleEngine) -> list[CopiedLog]:
        """As a start of the broker would."""
        recovered = source.recover(lambda *, done, total: None, self._now_ms)
        lost = {*source.missing(), *source.short(), *source.without_segments()}
        if lost:
            listed = ", ".join(sorted(map(str, lost))[:5])
            raise ConversionRefused(
                f"records of {len(lost)} partitions of {self._directory} are lost ({listed}); "
                f"start the broker with its present engine, let it fetch them again, and stop it"
            )
        return [_own(recovered[tp]) for tp in sorted(recovered)]

    def _check(self, log: CopiedLog) -> LogBeginning:
        """Every CRC. Producers whose batches are all gone are in snapshots only."""
        seen: set[int] = set()
        start_offset, offset = log.log_start_offset, log.log_start_offset
        for content in self._read(log):
            damaged, offset = check_batches(content, offset)
            if damaged is not None:
                raise ConversionRefused(
                    f"the batch of {log.tp} at offset {damaged.offset} is damaged: "
                    f"{damaged.reason}; delete it, or fetch this replica again"
                )
            for _, header in iter_headers(content):
                start_offset = Offset(min(header.base_offset, start_offset))
                seen.add(header.producer_id)
                self._batches += 1
        return LogBeginning(
            log.tp,
            log.topic_id,
            start_offset,
            log.epochs.entries,
            [entry for entry in log.producers.producers() if entry.producer_id not in seen],
        )

    def _read(self, log: CopiedLog) -> Iterator[bytes]:
        """All batches, from the one on that holds the log start offset."""
        position = log.log_start_offset
        while position < log.log_end_offset:
            read = log.read(
                position, below=log.log_end_offset, max_bytes=_READ_BYTES, at_least_one=True
            )
            try:
                content = b"".join(
                    read_fully(self._disk, piece.fd, piece.length, piece.position)
                    for piece in read.slices
                )
            finally:
                read.lease.release()
            if not content:
                return
            yield content
            self._progress(len(content))
            position = read.end_offset

    # -- the copy --------------------------------------------------------------------------

    def _copy_logs(self, logs: Sequence[CopiedLog], beginnings: Sequence[LogBeginning]) -> None:
        copy = self._make_engine(self._engine, self._copy)
        try:
            copy.recover(lambda *, done, total: None, self._now_ms)
            for log, beginning in zip(logs, beginnings, strict=True):
                self._copy_log(copy, log, beginning)
            copy.close()
            failed = copy.statistics().failed_directories
        finally:
            copy.abandon()
        if failed:
            raise OSError(f"the copy cannot be written: {next(iter(failed.values()))}")

    def _copy_log(self, copy: ConvertibleEngine, log: CopiedLog, beginning: LogBeginning) -> None:
        copied = copy.restore(beginning, _CONFIG, self._now_ms)
        for content in self._read(log):
            item = AppendItem(copied, memoryview(content), LeaderEpoch(0), AppendOrigin.REPLICATION)
            [result] = copy.append([item], self._now_ms)
            if not isinstance(result, LogAppendInfo):
                raise result
            self._size_bytes += len(content)
        if copied.log_end_offset != log.log_end_offset:
            raise ConversionRefused(
                f"{log.tp} ends at offset {log.log_end_offset}, but its last record is at "
                f"{copied.log_end_offset - 1}; append a record to it first"
            )
        copied.advance_high_watermark(log.high_watermark)
        if log.log_start_offset > copied.log_start_offset:
            copied.delete_before(log.log_start_offset)
        copied.cleaned_offset = log.cleaned_offset
        copied.producers.load(log.producers.producers(), log.log_end_offset)
        copied.take_snapshot()

    # -- the comparison --------------------------------------------------------------------

    def _compare_logs(self, logs: Sequence[CopiedLog]) -> None:
        """Of what was written, as the next start of a broker finds it."""
        copy = self._make_engine(self._engine, self._copy)
        try:
            copied = copy.recover(lambda *, done, total: None, self._now_ms)
            for log in logs:
                self._compare(log, _own(copied[log.tp]))
            copy.close()
        finally:
            copy.abandon()

    def _compare(self, log: CopiedLog, copied: CopiedLog) -> None:
        expected, actual = _state_of(log), _state_of(copied)
        for name, wanted, value in zip(_State._fields, expected, actual, strict=True):
            if wanted != value:
                raise _differs(log.tp, f"{name.replace('_', ' ')}: {value} instead of {wanted}")
        contents, copies = self._read(log), self._read(copied)
        left = right = b""
        while True:
            left, right = left or next(contents, b""), right or next(copies, b"")
            size = min(len(left), len(right))
            if left[:size] != right[:size] or (not size and (left or right)):
                raise _differs(log.tp, "its batches")
            if not size:
                break
            left, right = left[size:], right[size:]
        end_offset = log.log_end_offset
        if not (log.aborted(Offset(0), end_offset) or copied.aborted(Offset(0), end_offset)):
            return
        for content in self._read(log):
            headers = [header for _, header in iter_headers(content)]
            if _aborted(log, headers) != _aborted(copied, headers):
                raise _differs(log.tp, f"aborted transactions from {headers[0].base_offset} on")

    # -- the change ------------------------------------------------------------------------

    def _take_over(self, stored: MetaProperties) -> None:
        """Neither engine has a name that the other one reads, so both are there for a moment."""
        disk, directory = self._disk, self._directory
        _sync(disk, self._copy)  # an engine does not sync snapshots, but there are no others here
        for entry in disk.list(self._copy):
            if _belongs(entry.name, self._engine):
                disk.rename(f"{self._copy}/{entry.name}", f"{directory}/{entry.name}")
        disk.sync_directory(directory)
        engine = None if self._engine == SEGMENTED else self._engine
        self._is_over = True
        write_meta_properties(disk, directory, replace(stored, engine=engine))

    def _remove_files_of(self, engine: str) -> None:
        """Those of a conversion that was interrupted, or of the engine that is no more."""
        disk, directory = self._disk, self._directory
        for entry in disk.list(directory):
            if entry.name == COPY_FOLDER or _belongs(entry.name, engine):
                _remove(disk, f"{directory}/{entry.name}", is_folder=entry.is_directory)
        disk.sync_directory(directory)


def _own(log: PartitionLog) -> CopiedLog:
    assert isinstance(log, SegmentedLog | CommitLogPartition)
    return log


def _other(engine: str) -> str:
    return COMMIT_LOG if engine == SEGMENTED else SEGMENTED


def _belongs(name: str, engine: str) -> bool:
    """Whether only this engine has a file or folder of this name in a log directory."""
    if engine == COMMIT_LOG:
        return name in _COMMIT_LOG_FILES
    tp = parse_folder_name(name)
    is_partition = tp is not None and tp.topic != METADATA_TOPIC
    return is_partition or name in _SEGMENTED_FILES or is_deleted_folder(name)


def _remove(disk: Disk, path: str, *, is_folder: bool) -> None:
    if not is_folder:
        disk.unlink(path)
        return
    for entry in disk.list(path):
        _remove(disk, f"{path}/{entry.name}", is_folder=entry.is_directory)
    disk.remove_directory(path)


def _sync(disk: Disk, folder: str) -> None:
    """Everything in it."""
    for entry in disk.list(folder):
        path = f"{folder}/{entry.name}"
        if entry.is_directory:
            _sync(disk, path)
            continue
        descriptor = disk.open(path, APPEND)
        try:
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)
    disk.sync_directory(folder)


def _state_of(log: CopiedLog) -> _State:
    return _State(
        log.topic_id,
        log.log_start_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.log_end_offset,
        log.cleaned_offset,
        log.epochs.entries,
        {entry.producer_id: entry for entry in log.producers.producers()},
    )


def _aborted(log: CopiedLog, headers: Sequence[BatchHeader]) -> set[int]:
    """The base offsets of the batches of aborted transactions."""
    first, last = headers[0].base_offset, headers[-1].last_offset
    entries = log.aborted(Offset(first), Offset(min(last + 1, MAX_OFFSET)))
    return {
        header.base_offset
        for header in headers
        for entry in entries
        if header.is_transactional
        and header.producer_id == entry.producer_id
        and entry.first_offset <= header.base_offset <= entry.last_offset
    }


def _differs(tp: TopicPartition, what: str) -> StorageError:
    return StorageError(f"the copy of {tp} differs: {what}; the log directory was not changed")
