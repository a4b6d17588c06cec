"""The commit log engine: all partitions of a log directory share one log, and so one sync.

Combines directories, logs, group commit and jobs; decides nothing about a log's content. All
methods belong to the owner thread. Invariant: a directory that fails takes only its own logs
offline.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from errno import ECANCELED, ENOENT
from functools import cache

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.io.disk import Disk, RealDisk
from penstock.logs.event_logger import NO_LOGGER, EventLogger
from penstock.model.ids import (
    InvalidTopicName,
    Offset,
    TopicId,
    TopicPartition,
    check_partition,
    check_topic_name,
)
from penstock.storage.commit_log.checkpoint_job import HighWatermarkJob, StateCheckpointJob
from penstock.storage.commit_log.cleaning import CleaningJob
from penstock.storage.commit_log.commit_log_directory import CommitLogDirectory
from penstock.storage.commit_log.compacting import QueueCompactionJob, find_due
from penstock.storage.commit_log.expiring import ExpiryJob
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.commit_log.replay import CommitLogReplay
from penstock.storage.compaction_throttle import CleanerThrottler
from penstock.storage.directories import (
    JobSchedule,
    check_any_works,
    choose_directory,
    describe_failures,
    list_working,
    lock_all,
)
from penstock.storage.engine import (
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
    PartitionExists,
    StorageError,
    UnknownPartition,
    without_frames,
)
from penstock.storage.flush_times import FlushTimes
from penstock.storage.group_commit import Background, Inline
from penstock.storage.handles import Handles
from penstock.storage.log_directory import METADATA_TOPIC

_REPLICA = AppendOrigin.REPLICATION


class CommitLogEngine:
    """Every log of one broker. Without `close` the next start replays more."""

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
        self._logger = logger
        self._handles = Handles(self._disk, descriptors=descriptors, maps=descriptors // 2)
        self._flush_times = FlushTimes()
        self._directories = [
            CommitLogDirectory(
                self._disk,
                self._handles,
                path,
                config.commit_log_file_bytes,
                background=self._background,
                post=post,
                times=self._flush_times,
                logger=logger,
            )
            for path in config.log_dirs
        ]
        self._logs: dict[TopicPartition, CommitLogPartition] = {}
        self._missing: set[TopicPartition] = set()
        self._short: dict[TopicPartition, Offset] = {}
        # One for all passes, because the limit is the broker's.
        self._throttle = CleanerThrottler(config.cleaner_io_max_bytes_per_second)
        self._schedule = JobSchedule()

    # -- opening ---------------------------------------------------------------------------

    def lock(self) -> None:
        """Lock all directories that work, or none: a refused start leaves no lock behind."""
        lock_all(self._directories, CommitLogDirectory.fail)

    def recover(
        self, progress: RecoveryProgress, now_ms: int
    ) -> Mapping[TopicPartition, PartitionLog]:
        """Replay the commit log of every directory that works; DirectoryFailed if none does."""
        self.lock()
        config_of = cache(self._config_of)  # resolving one is dear with many partitions
        working = self._working()
        for done, directory in enumerate(working):
            progress(done=done, total=len(working))
            self._replay(directory, config_of, now_ms)
        self._missing.difference_update(self._logs)
        progress(done=len(working), total=len(working))
        try:
            self.check_any_works()
        except DirectoryFailed:
            self.abandon()
            raise
        return dict(self._logs)

    def _replay(
        self, directory: CommitLogDirectory, config_of: Callable[[str], LogConfig], now_ms: int
    ) -> None:
        replay = CommitLogReplay(
            directory,
            disk=self._disk,
            handles=self._handles,
            config_of=config_of,
            now_ms=now_ms,
            logger=self._logger,
        )
        try:
            directory.open()
            replay.run()
            if directory.was_aborted or replay.missing or not directory.checkpointed_end:
                StateCheckpointJob(directory, self._disk).write(lambda function: function())
        except OSError as error:
            directory.fail(error)
            directory.logs.clear()
            return
        except LogFenced:
            directory.logs.clear()  # it is offline already
            return
        self._missing |= replay.missing
        self._short.update(replay.short)
        for tp, log in list(directory.logs.items()):
            if tp in self._logs:
                self._logger.warning(
                    "second_copy_ignored",
                    f"{log.directory} is a second copy of {tp}; "
                    f"serving {self._logs[tp].directory} and ignoring this one",
                )
                continue
            self._logs[tp] = log

    def missing(self) -> Set[TopicPartition]:
        return frozenset(self._missing)

    def short(self) -> Mapping[TopicPartition, Offset]:
        return dict(self._short)

    def without_segments(self) -> Set[TopicPartition]:
        """None: a frame creates a partition, so that its creation is never cut short."""
        return frozenset()

    def _working(self) -> list[CommitLogDirectory]:
        return list_working(self._directories)

    def check_any_works(self) -> None:
        """DirectoryFailed if no directory works any more."""
        check_any_works(self._directories)

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
        _check_name(tp)
        directory = choose_directory(self._directories, is_new=is_new)
        return self._register(self._make(directory, tp, topic_id, config, now_ms))

    def restore(
        self, beginning: LogBeginning, config: LogConfig, now_ms: int
    ) -> CommitLogPartition:
        """Create a log for the copy of one of another engine."""
        directory = choose_directory(self._directories, is_new=True)
        log = self._make(directory, beginning.tp, beginning.topic_id, config, now_ms)
        log.apply_restart(beginning.start_offset)
        for epoch, start_offset in beginning.epochs:
            log.replay_epoch(epoch, start_offset)
        log.producers.load(beginning.producers, beginning.start_offset)
        return self._register(log)

    def _make(
        self,
        directory: CommitLogDirectory,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        now_ms: int,
    ) -> CommitLogPartition:
        return CommitLogPartition(
            disk=self._disk,
            handles=self._handles,
            home=directory,
            number=directory.take_number(),
            tp=tp,
            topic_id=topic_id,
            config=config,
            now_ms=now_ms,
        )

    def _register(self, log: CommitLogPartition) -> CommitLogPartition:
        """Write the frame that creates it."""
        directory = self._directory_of(log)
        try:
            directory.write_state(log)
        except OSError as error:
            directory.fail(error)
            raise DirectoryFailed(directory.path, error) from error
        directory.logs[log.tp] = self._logs[log.tp] = log
        self._missing.discard(log.tp)
        return log

    def delete(self, tp: TopicPartition) -> None:
        """Readers with a lease finish; files go once nothing in them is live."""
        log = self._logs.pop(tp, None)
        if log is None:
            raise UnknownPartition(tp)
        directory = self._directory_of(log)
        del directory.logs[tp]
        failure = directory.failure
        log.retire(FileNotFoundError(ENOENT, "the partition was deleted", log.directory))
        try:
            if failure is not None:
                raise failure
            directory.delete(log)
        except OSError as error:
            directory.fail(error)
            raise DirectoryFailed(directory.path, error) from error
        log.forget_all()

    def _directory_of(self, log: CommitLogPartition) -> CommitLogDirectory:
        home: CommitLogDirectory = log.home  # type: ignore[assignment]  # every home here is
        return home

    # -- serving ---------------------------------------------------------------------------

    def append(
        self, items: Sequence[AppendItem], now_ms: int
    ) -> list[LogAppendInfo | StorageError]:
        """One write per log directory. One result per item; a failed item affects no other."""
        if len(items) == 1:  # as most requests
            return [self._append_one(items[0], now_ms)]
        results: list[LogAppendInfo | StorageError] = []
        directories = {id(item[0].home): item[0].home for item in items}  # type: ignore[attr-defined]
        failed: set[CommitLogPartition] = set()
        for directory in directories.values():
            directory.begin_request()
        try:
            for item in items:
                log: CommitLogPartition = item[0]  # type: ignore[assignment]  # every log here is ours
                try:
                    if item[3] is _REPLICA:
                        results.append(log.append_as_follower(item[1], now_ms))
                    else:
                        results.append(log.append_as_leader(item[1], item[2], item[3], now_ms))
                except StorageError as error:
                    results.append(without_frames(error))
                except OSError as error:  # of a write before the file was full
                    failed |= self._directory_of(log).abort_request(error)
                    self._directory_of(log).begin_request()
                    results.append(LogFenced(log.tp, error))
        finally:  # also after an unexpected error: the next append must not wait in memory
            for directory in directories.values():
                failed |= directory.end_request()
        if failed:
            self._refuse(items, results, failed)
        for item in items:
            log = item[0]  # type: ignore[assignment]
            if log.log_end_offset - log.durable_offset >= log.flush_messages:
                self.flush(log, log.log_end_offset, _ignore)
        return results

    def _append_one(self, item: AppendItem, now_ms: int) -> LogAppendInfo | StorageError:
        """The frame is written at once, and nothing is noted if that fails."""
        log: CommitLogPartition = item[0]  # type: ignore[assignment]  # every log here is ours
        try:
            if item[3] is _REPLICA:
                appended = log.append_as_follower(item[1], now_ms)
            else:
                appended = log.append_as_leader(item[1], item[2], item[3], now_ms)
        except StorageError as error:
            return without_frames(error)
        except OSError as error:
            home = self._directory_of(log)
            home.commit_log.forget_staged()
            home.fail(error)
            return LogFenced(log.tp, error)
        if log.log_end_offset - log.durable_offset >= log.flush_messages:
            self.flush(log, log.log_end_offset, _ignore)
        return appended

    def _refuse(
        self,
        items: Sequence[AppendItem],
        results: list[LogAppendInfo | StorageError],
        failed: set[CommitLogPartition],
    ) -> None:
        """Replace the results of appends that were staged but not written."""
        for index, item in enumerate(items):
            log = item[0]
            if log in failed and isinstance(results[index], LogAppendInfo):
                assert log.failure is not None
                results[index] = LogFenced(log.tp, log.failure)

    def flush(
        self, log: PartitionLog, upto: Offset, done: Callable[[StorageError | None], None]
    ) -> None:
        assert isinstance(log, CommitLogPartition)
        if log.failure is not None:
            done(LogFenced(log.tp, log.failure))
        elif log.durable_offset >= upto:
            done(None)
        else:
            self._directory_of(log).flusher.request(log, upto, done)

    # -- jobs ------------------------------------------------------------------------------

    def due_jobs(self, now_ms: int) -> Sequence[Job]:
        """The caller runs the jobs one after the other."""
        config, is_due = self._config, self._schedule.is_due
        jobs: list[Job] = []
        self._flush_overdue(now_ms)
        working = self._working()
        if is_due("marks", config.high_watermark_checkpoint_interval_ms, now_ms):
            jobs += [HighWatermarkJob(directory) for directory in working]
        if is_due("state", config.recovery_checkpoint_interval_ms, now_ms):
            jobs += [StateCheckpointJob(directory, self._disk) for directory in working]
            jobs += [
                CleaningJob(directory, self._disk, config, self._throttle, self._logger)
                for directory in working
            ]
        if is_due("retention", config.retention_check_interval_ms, now_ms):
            for log in self._logs.values():
                log.producers.expire(now_ms, config.producer_id_expiration_ms)
            jobs += [ExpiryJob(directory, now_ms) for directory in working]
        if config.cleaner_enable and is_due("cleaner", config.cleaner_backoff_ms, now_ms):
            log_due = find_due(self._logs.values(), now_ms)
            if log_due is not None:
                jobs.append(self.make_compaction_job(log_due, now_ms))
        return jobs

    def make_compaction_job(self, log: CommitLogPartition, now_ms: int) -> Job:
        return QueueCompactionJob(
            log, disk=self._disk, storage=self._config, now_ms=now_ms, throttle=self._throttle
        )

    def _flush_overdue(self, now_ms: int) -> None:
        for directory in self._working():
            for log in list(directory.flusher.dirty):
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
        """Write the checkpoint of everything, and take the abort marker away; flushes and jobs must
        have ended."""
        for directory in self._directories:
            is_open = bool(directory.commit_log.files)
            clean = directory.failure is None and is_open and self._close_directory(directory)
            try:
                directory.close(clean=clean)
            except OSError as error:
                directory.fail(error)
        self._release_logs()

    def _close_directory(self, directory: CommitLogDirectory) -> bool:
        for job in (HighWatermarkJob(directory), StateCheckpointJob(directory, self._disk)):
            job.run(lambda function: function())
        return directory.failure is None

    def _release_logs(self) -> None:
        for log in self._logs.values():
            log.retire(OSError(ECANCELED, "the engine is closed", log.directory))
        self._handles.close_all()
        self._logs.clear()

    def abandon(self) -> None:
        """Close files and locks as a crash would: the next start replays."""
        self._release_logs()
        for directory in self._directories:
            directory.close(clean=False)


def _check_name(tp: TopicPartition) -> None:
    check_topic_name(tp.topic)
    if tp.topic == METADATA_TOPIC:
        raise InvalidTopicName(
            f"topic name {METADATA_TOPIC!r} is reserved for Kafka's metadata; choose another"
        )
    check_partition(tp.partition)


def _ignore(error: StorageError | None) -> None:
    """A failed flush has fenced its log already."""
