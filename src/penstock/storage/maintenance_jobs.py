"""Background jobs of a log directory: checkpoints, retention, removal of deleted folders.

A job visits the owner thread to read and change logs in memory, and touches files off it.
"""

from collections.abc import Callable, Iterable
from functools import partial

from penstock.io.disk import Disk
from penstock.model.ids import Offset, TopicPartition
from penstock.storage.checkpoints import CLEANER_FILE, RECOVERY_POINT_FILE
from penstock.storage.engine import OnOwner
from penstock.storage.errors import LogFenced
from penstock.storage.log import SegmentedLog
from penstock.storage.log_directory import LocalLogDirectory
from penstock.storage.retention import SegmentAge, count_expired
from penstock.storage.segment import Segment
from penstock.storage.segment_removal import remove_files
from penstock.storage.swap import DELETED

OnFailed = Callable[[LocalLogDirectory, OSError], None]


class CheckpointJob:
    """Writes the offset checkpoints that have changed."""

    name = "checkpoint"

    def __init__(
        self, directories: Iterable[LocalLogDirectory], names: frozenset[str], on_failed: OnFailed
    ) -> None:
        self._directories = [item for item in directories if item.failure is None]
        self._names = names
        self._on_failed = on_failed

    def run(self, on_owner: OnOwner) -> None:
        for directory in self._directories:
            checkpoints = on_owner(directory.gather)
            try:
                directory.sync_names()
                directory.write(checkpoints, self._names)
            except OSError as error:
                on_owner(partial(self._on_failed, directory, error))


def write_recovery_point(
    directory: LocalLogDirectory, tp: TopicPartition, on_owner: OnOwner
) -> Offset:
    """Checkpoint what is durable now; returns the recovery point that is on disk then.

    It may be lower, if another job or a cut has made this one's offsets stale.
    """
    checkpoints = on_owner(directory.gather)
    directory.sync_names()
    directory.write(checkpoints, (RECOVERY_POINT_FILE, CLEANER_FILE))
    return directory.recovery_point(tp)


class RetentionJob:
    """Deletes segments by retention.ms and retention.bytes, log by log."""

    name = "retention"

    def __init__(
        self, disk: Disk, directories: Iterable[LocalLogDirectory], now_ms: int, on_failed: OnFailed
    ) -> None:
        self._disk = disk
        self._directories = [item for item in directories if item.failure is None]
        self._now_ms = now_ms
        self._on_failed = on_failed

    def run(self, on_owner: OnOwner) -> None:
        for directory in self._directories:
            logs = on_owner(directory.list_logs)
            try:
                for log in logs:
                    self._clean(log, on_owner)
            except OSError as error:
                on_owner(partial(self._on_failed, directory, error))

    def _clean(self, log: SegmentedLog, on_owner: OnOwner) -> None:
        try:
            detached = on_owner(partial(detach_expired, log, self._now_ms))
        except LogFenced:
            return  # its directory is offline already
        for segment in detached:
            remove_files(self._disk, segment, DELETED)
        if detached:
            on_owner(log.drop_old_snapshots)


def detach_expired(log: SegmentedLog, now_ms: int) -> list[Segment]:
    """Decide, and take the segments out of the log, in one visit to the owner."""
    if log.failure is not None or log.is_compacting:
        return []
    count = count_expired(
        [_age(log, index) for index in range(len(log.segments))],
        log.config,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
    )
    return log.detach_first(count, now_ms) if count else []


def _age(log: SegmentedLog, index: int) -> SegmentAge:
    segment = log.segments[index]
    end_offset = log.segments.end_offset_of(index, log.log_end_offset)
    return SegmentAge(end_offset, segment.size, segment.newest_ms)


class RemovalJob:
    """Removes the folder of a deleted partition, which is renamed already."""

    name = "removal"

    def __init__(self, directory: LocalLogDirectory, folder: str, on_failed: OnFailed) -> None:
        self._directory = directory
        self._folder = folder
        self._on_failed = on_failed

    def run(self, on_owner: OnOwner) -> None:
        try:
            self._directory.remove_deleted(self._folder)
        except OSError as error:
            on_owner(partial(self._on_failed, self._directory, error))
