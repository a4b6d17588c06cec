"""The segmented engine: a folder per partition, segments and indexes in Kafka's formats.

Combines directories, logs, group commit and jobs; decides nothing about a log's content. All
methods belong to the owner thread. Invariant: a directory that fails takes only its own logs
offline.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from errno import ECANCELED, ENOENT
from functools import cache, partial
from typing import Final

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.io.disk import REPLACE, Disk, RealDisk, write_fully
from penstock.logs.event_logger import NO_LOGGER, EventLogger
from penstock.model.ids import Offset, TopicId, TopicPartition
from penstock.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from penstock.storage.compaction_throttle import CleanerThrottler
from penstock.storage.directories import (
    JobSchedule,
    check_any_works,
    choose_directory,
    describe_failures,
    list_working,
    lock_all,
    mark_failed,
)
from penstock.storage.engine import (
    NO_TOPIC_ID,
    AppendItem,
    AppendOrigin,
    DirectoryStatistics,
    EngineStatistics,
    Job,
    LogAppendInfo,
    LogBeginning,
    PartitionLog,
    RecoveryProgress,
)
from penstock.storage.errors import (
    DirectoryFailed,
    LogFenced,
    MalformedCheckpoint,
    PartitionExists,
    StorageError,
    UnknownPartition,
    without_frames,
)
from penstock.storage.flush_times import FlushTimes
from penstock.storage.group_commit import Background, GroupCommit, Inline
from penstock.storage.handles import Handles
from penstock.storage.local_log import LocalLog
from penstock.storage.log import SegmentedLog
from penstock.storage.log_directory import LocalLogDirectory
from penstock.storage.maintenance_jobs import (
    CheckpointJob,
    RemovalJob,
    RetentionJob,
    write_recovery_point,
)
from penstock.storage.partition_metadata import (
    PARTITION_METADATA_FILE,
    encode_topic_id,
    read_topic_id,
)
from penstock.storage.recovery import open_log
from penstock.storage.segment_file import LOG_SUFFIX
from penstock.storage.swap import find_last_replaced, finish_swaps

_REPLICA: Final = AppendOrigin.REPLICATION
_ALL_CHECKPOINTS: Final = frozenset(
    (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE)
)


class SegmentedEngine:
    """Every log of one broker. Without `close` the next start checks the logs."""

    def __init__(
        self,
        config: StorageConfig,
        *,
        config_of: Callable[[str], LogConfig],
        disk: Disk | None = None,
        background: Background | None = None,
        post: Callable[[Callable[[], None]], None] = lambda work: work(),
        logger: EventLogger = NO_LOGGER,
        descriptors: int = 1200,
    ) -> None:
        self._config = config
        self._config_of = config_of  # a topic's config, read when its logs are opened
        self._disk: Disk = RealDisk() if disk is None else disk
        self._background: Background = Inline() if background is None else background
        self._post = post
        self._logger = logger
        self._handles = Handles(self._disk, descriptors=descriptors, maps=descriptors // 2)
        self._directories = [LocalLogDirectory(self._disk, path) for path in config.log_dirs]
        self._flush_times = FlushTimes()
        self._committers = {
            directory.path: self._make_committer(directory) for directory in self._directories
        }
        self._logs: dict[TopicPartition, SegmentedLog] = {}
        self._homes: dict[TopicPartition, LocalLogDirectory] = {}
        self._missing: set[TopicPartition] = set()  # named by checkpoints, without a folder
        self._short: dict[TopicPartition, Offset] = {}  # opened below that high watermark
        self._without_segments: set[TopicPartition] = set()  # opened from a folder that has none
        self._removals: list[RemovalJob] = []
        # One for all passes, because the limit is the broker's.
        self._throttle = CleanerThrottler(config.cleaner_io_max_bytes_per_second)
        self._schedule = JobSchedule()

    def _make_committer(self, directory: LocalLogDirectory) -> GroupCommit:
        return GroupCommit(
            self._disk,
            self._handles,
            self._background,
            self._post,
            partial(self._fail_directory, directory),
            self._flush_times,
        )

    # -- opening ---------------------------------------------------------------------------

    def recover(
        self, progress: RecoveryProgress, now_ms: int
    ) -> Mapping[TopicPartition, PartitionLog]:
        """Open every log of every directory that works; DirectoryFailed if none does."""
        self.lock()
        folders = self._list_folders()
        config_of = cache(self._config_of)  # resolving one is a quarter of opening a log
        for done, (directory, tp, folder) in enumerate(folders):
            progress(done=done, total=len(folders))
            if directory.failure is None:
                self._open(directory, tp, folder, config_of(tp.topic), now_ms)
        progress(done=len(folders), total=len(folders))
        try:
            self.check_any_works()
        except DirectoryFailed:
            self.abandon()
            raise
        return dict(self._logs)

    def _list_folders(self) -> list[tuple[LocalLogDirectory, TopicPartition, str]]:
        """Also notes the partitions that checkpoints name and that have no folder anywhere."""
        folders: list[tuple[LocalLogDirectory, TopicPartition, str]] = []
        for directory in self._working():
            try:
                directory.open(self._logger)
                partitions = directory.partitions(self._logger)
            except OSError as error:
                self._fail_directory(directory, error)
                continue
            folders += [(directory, tp, folder) for tp, folder in partitions]
            self._missing |= directory.checkpointed()
        self._missing.difference_update(tp for _, tp, _ in folders)
        return folders

    def missing(self) -> Set[TopicPartition]:
        return frozenset(self._missing)

    def short(self) -> Mapping[TopicPartition, Offset]:
        return dict(self._short)

    def without_segments(self) -> Set[TopicPartition]:
        return frozenset(self._without_segments)

    def lock(self) -> None:
        """Lock all directories that work, or none: a refused start leaves no lock behind."""
        lock_all(self._directories, self._fail_directory)

    def _working(self) -> list[LocalLogDirectory]:
        return list_working(self._directories)

    def check_any_works(self) -> None:
        """DirectoryFailed if no directory works any more."""
        check_any_works(self._directories)

    def _open(
        self,
        directory: LocalLogDirectory,
        tp: TopicPartition,
        folder: str,
        config: LogConfig,
        now_ms: int,
    ) -> None:
        if tp in self._logs:
            self._logger.warning(
                "second_copy_ignored",
                f"{folder} is a second copy of {tp}; "
                f"serving {self._logs[tp].directory} and ignoring this one",
            )
            return
        try:
            names = self._names(folder)
            last_replaced = find_last_replaced(names)
            if finish_swaps(self._disk, folder, names):
                names = self._names(folder)
            topic_id = self._read_topic_id(folder)
            log = self._make_log(directory, tp, folder, topic_id, names, config)
            remembered = directory.remembered(tp)
            open_log(
                log,
                self._disk,
                names,
                remembered,
                now_ms,
                self._logger,
                last_replaced=last_replaced,
            )
        except OSError as error:
            self._fail_directory(directory, error)
            return
        except LogFenced:
            return  # its directory is offline already
        if log.log_end_offset < remembered.high_watermark:
            self._short[tp] = remembered.high_watermark
        if not any(name.endswith(LOG_SUFFIX) for name in names):
            self._without_segments.add(tp)
            if tp in directory.checkpointed():
                self._missing.add(tp)
        self._register(directory, log)

    def _names(self, folder: str) -> set[str]:
        return {entry.name for entry in self._disk.list(folder) if not entry.is_directory}

    def _read_topic_id(self, folder: str) -> TopicId:
        try:
            return read_topic_id(self._disk, folder) or NO_TOPIC_ID
        except MalformedCheckpoint as error:
            self._logger.warning(
                "topic_id_damaged", f"{error}; waiting for the controller to send the topic id"
            )
            return NO_TOPIC_ID

    def _make_log(
        self,
        directory: LocalLogDirectory,
        tp: TopicPartition,
        folder: str,
        topic_id: TopicId,
        names: set[str],
        config: LogConfig,
    ) -> SegmentedLog:
        return SegmentedLog(
            disk=self._disk,
            handles=self._handles,
            directory=folder,
            tp=tp,
            topic_id=topic_id,
            config=config,
            on_rolled=self._flush_sealed,
            on_failed=partial(self._fail_directory, directory),
            before_cut=partial(self._before_cut, directory),
            snapshot_names=sorted(names),
        )

    def _before_cut(
        self,
        directory: LocalLogDirectory,
        log: LocalLog,
        end_offset: Offset,
        kept_below: Offset,
    ) -> None:
        directory.lower(log.tp, end_offset, is_recovery=log.tp not in self._logs)
        self._committers[directory.path].cut(log, kept_below)

    def _register(self, directory: LocalLogDirectory, log: SegmentedLog) -> None:
        self._logs[log.tp] = directory.logs[log.tp] = log
        self._homes[log.tp] = directory

    def create(
        self,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        now_ms: int,
        *,
        is_new: bool = True,
    ) -> PartitionLog:
        """Create the log in the directory with the fewest logs."""
        if tp in self._logs:
            raise PartitionExists(tp)
        directory = choose_directory(self._directories, is_new=is_new)
        try:
            directory.forget(tp)
            folder = directory.make_folder(tp)
            log = self._make_log(directory, tp, folder, topic_id, set(), config)
            log.is_folder_new = True
            self._put_topic_id(log)
            log.start_at(Offset(0), now_ms)
        except FileExistsError as error:
            raise PartitionExists(tp) from error
        except OSError as error:
            self._fail_directory(directory, error)
            raise DirectoryFailed(directory.path, error) from error
        self._register(directory, log)
        self._missing.discard(tp)
        return log

    def _put_topic_id(self, log: SegmentedLog) -> None:
        """Not synced here: a thousand new partitions must not wait for a thousand syncs."""
        path = f"{log.directory}/{PARTITION_METADATA_FILE}"
        descriptor = self._disk.open(path, REPLACE)
        try:
            write_fully(self._disk, descriptor, encode_topic_id(log.topic_id))
        finally:
            self._disk.close(descriptor)
        log.unsynced_paths.add(path)

    def restore(self, beginning: LogBeginning, config: LogConfig, now_ms: int) -> SegmentedLog:
        """Create a log for the copy of one of another engine."""
        log = self.create(beginning.tp, beginning.topic_id, config, now_ms)
        assert isinstance(log, SegmentedLog)
        log.restart_at(beginning.start_offset, now_ms)
        for epoch, start_offset in beginning.epochs:
            log.begin_epoch_at(epoch, start_offset)
        log.producers.load(beginning.producers, beginning.start_offset)
        log.take_snapshot()
        return log

    def delete(self, tp: TopicPartition) -> None:
        """Rename the folder; readers with a lease finish, and the next job removes the files."""
        log = self._logs.pop(tp, None)
        if log is None:
            raise UnknownPartition(tp)
        directory = self._homes.pop(tp)
        del directory.logs[tp]
        log.retire(FileNotFoundError(ENOENT, "the partition was deleted", log.directory))
        try:
            folder = directory.set_aside(log.directory)
        except OSError as error:
            self._fail_directory(directory, error)
            raise DirectoryFailed(directory.path, error) from error
        self._removals.append(RemovalJob(directory, folder, self._fail_directory))

    # -- serving ---------------------------------------------------------------------------

    def append(
        self, items: Sequence[AppendItem], now_ms: int
    ) -> list[LogAppendInfo | StorageError]:
        """One result per item; a failed item does not affect the others."""
        results: list[LogAppendInfo | StorageError] = []
        for item in items:
            log: SegmentedLog = item[0]  # type: ignore[assignment]  # every log here is ours
            try:
                if item[3] is _REPLICA:
                    appended = log.append_as_follower(item[1], now_ms)
                else:
                    appended = log.append_as_leader(item[1], item[2], item[3], now_ms)
            except StorageError as error:
                results.append(without_frames(error))
                continue
            results.append(appended)
            if log.log_end_offset - log.durable_offset >= log.flush_messages:
                self.flush(log, log.log_end_offset, _ignore)
        return results

    def flush(
        self, log: PartitionLog, upto: Offset, done: Callable[[StorageError | None], None]
    ) -> None:
        assert isinstance(log, SegmentedLog)
        if log.failure is not None:
            done(LogFenced(log.tp, log.failure))
        elif log.durable_offset >= upto:
            done(None)
        else:
            self._committers[self._homes[log.tp].path].request(log, upto, done)

    def _flush_sealed(self, log: LocalLog) -> None:
        """Sync a sealed segment in the background, regardless of the flush settings."""
        home = self._homes.get(log.tp)
        if home is not None and log.failure is None and log.durable_offset < log.log_end_offset:
            self._committers[home.path].request(log, log.log_end_offset, _ignore)

    def _fail_directory(self, directory: LocalLogDirectory, error: OSError) -> None:
        mark_failed(directory, error, self._logger)

    # -- jobs ------------------------------------------------------------------------------

    def due_jobs(self, now_ms: int) -> Sequence[Job]:
        """The caller may run the jobs one after the other or in parallel."""
        config, is_due = self._config, self._schedule.is_due
        jobs: list[Job] = list(self._removals)
        self._removals.clear()
        self._flush_overdue(now_ms)
        names = self._due_checkpoints(now_ms)
        if names:
            jobs.append(CheckpointJob(self._directories, names, self._fail_directory))
        if is_due("retention", config.retention_check_interval_ms, now_ms):
            for log in self._logs.values():
                log.producers.expire(now_ms, config.producer_id_expiration_ms)
            jobs.append(RetentionJob(self._disk, self._directories, now_ms, self._fail_directory))
        if config.cleaner_enable and is_due("cleaner", config.cleaner_backoff_ms, now_ms):
            jobs += self._due_compaction(now_ms)
        return jobs

    def _due_compaction(self, now_ms: int) -> list[Job]:
        if not any(log.config.compact for log in self._logs.values()):
            return []
        # Imported here, and preloaded by the broker, because it would add 8 ms to every start.
        from penstock.storage.compaction import find_filthiest

        log = find_filthiest(self._logs.values(), now_ms)
        return [] if log is None else [self.make_compaction_job(log, now_ms)]

    def make_compaction_job(self, log: SegmentedLog, now_ms: int) -> Job:
        from penstock.storage.compaction import CompactionJob

        return CompactionJob(
            log,
            disk=self._disk,
            storage=self._config,
            now_ms=now_ms,
            checkpoint=partial(write_recovery_point, self._homes[log.tp], log.tp),
            throttle=self._throttle,
        )

    def _due_checkpoints(self, now_ms: int) -> frozenset[str]:
        config, is_due = self._config, self._schedule.is_due
        intervals = {
            RECOVERY_POINT_FILE: config.recovery_checkpoint_interval_ms,
            LOG_START_FILE: config.start_offset_checkpoint_interval_ms,
            HIGH_WATERMARK_FILE: config.high_watermark_checkpoint_interval_ms,
            CLEANER_FILE: config.recovery_checkpoint_interval_ms,
        }
        return frozenset(
            name for name, interval in intervals.items() if is_due(name, interval, now_ms)
        )

    def _flush_overdue(self, now_ms: int) -> None:
        for log in self._logs.values():
            since = log.dirty_since_ms
            if since is not None and now_ms - since >= log.config.flush_ms:
                self.flush(log, log.log_end_offset, _ignore)

    def directory_statistics(self) -> DirectoryStatistics:
        return DirectoryStatistics(
            directories=len(self._directories),
            failed=describe_failures(self._directories),
            open_files=self._handles.open_count,
            flushes=self._flush_times.statistics(),
        )

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(
            logs=tuple(log.statistics() for log in self._logs.values()),
            failed_directories=describe_failures(self._directories),
            open_files=self._handles.open_count,
        )

    # -- closing ---------------------------------------------------------------------------

    def close(self) -> None:
        """Flush everything and write the clean shutdown marker; flushes and jobs must have
        ended."""
        for directory in self._directories:
            clean = directory.failure is None and self._close_directory(directory)
            try:
                directory.close(clean=clean)
            except OSError as error:
                self._fail_directory(directory, error)
        self._release_logs()

    def _release_logs(self) -> None:
        for log in self._logs.values():
            log.retire(OSError(ECANCELED, "the engine is closed", log.directory))
        self._handles.close_all()
        self._logs.clear()
        self._homes.clear()

    def abandon(self) -> None:
        """Close files and locks as a crash would: the next start recovers."""
        self._release_logs()
        for directory in self._directories:
            directory.close(clean=False)

    def _close_directory(self, directory: LocalLogDirectory) -> bool:
        try:
            for log in directory.logs.values():
                log.prepare_close()
            commit = GroupCommit(
                self._disk,
                self._handles,
                _InlineRounds(self._background),
                lambda work: work(),
                partial(self._fail_directory, directory),
                self._flush_times,
            )
            commit.flush_all(log for log in directory.logs.values() if log.needs_flush)
            directory.sync_names()
            directory.write(directory.gather(), _ALL_CHECKPOINTS)
        except OSError as error:
            self._fail_directory(directory, error)
        return directory.failure is None


class _InlineRounds:
    """Runs rounds in the caller's thread and their files in parallel: closing waits for the
    disk."""

    def __init__(self, background: Background) -> None:
        self.run_all = background.run_all

    def run(self, work: Callable[[], None]) -> None:
        work()


def _ignore(error: StorageError | None) -> None:
    """A failed flush has fenced its log already."""
