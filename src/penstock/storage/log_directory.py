"""One log directory of a broker: its lock, clean shutdown marker, checkpoints and partitions.

The content of a partition's folder belongs to its log. Invariant: a directory that fails takes only
its own logs offline.
"""

import os
import re
from collections.abc import Iterable
from threading import Lock
from typing import NamedTuple
from uuid import uuid4

from penstock.io.disk import CREATE, Disk
from penstock.logs.event_logger import EventLogger
from penstock.model.ids import (
    MAX_PARTITION,
    InvalidTopicName,
    Offset,
    TopicPartition,
    check_partition,
    check_topic_name,
)
from penstock.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offsets_or_report,
    write_offsets,
)
from penstock.storage.errors import DirectoryLocked
from penstock.storage.log import SegmentedLog
from penstock.storage.partition_metadata import take_clean_shutdown, write_clean_shutdown
from penstock.storage.recovery import CheckpointedOffsets

LOCK_FILE = ".lock"
# In the order of the fields of Checkpoints.
CHECKPOINT_FILES = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE)
DELETED_SUFFIX = "-delete"
# As `set_aside` and Kafka name them. Other names may be a user's own.
_DELETED_NAME = re.compile(rf".+\.[0-9a-f]{{32}}{DELETED_SUFFIX}")
# The metadata log of Kafka's controllers, which may share a directory with partitions.
METADATA_TOPIC = "__cluster_metadata"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
OTHER_SUFFIXES = ("-future", "-stray")  # Kafka's: replicas being moved, or left over


class Checkpoints(NamedTuple):
    """Offsets per partition, as in the four checkpoint files of a directory."""

    recovery_points: dict[TopicPartition, Offset]
    log_starts: dict[TopicPartition, Offset]
    high_watermarks: dict[TopicPartition, Offset]
    cleaned: dict[TopicPartition, Offset]


class LocalLogDirectory:
    """Owned by the engine. `failure` is set once and stops all writes in the directory."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = os.path.abspath(path)
        self.failure: OSError | None = None
        self.logs: dict[TopicPartition, SegmentedLog] = {}
        self.names_changed = False
        self._set_aside: set[str] = set()  # folders whose new name may not be durable yet
        self._disk = disk
        self._lock = -1
        self._is_clean = False
        self._checkpoints = Checkpoints({}, {}, {}, {})
        self._gathered: Checkpoints | None = None  # the latest, unless a log was cut since
        self._writing = Lock()  # a job writes off the owner thread, and a cut on it

    def lock(self) -> None:
        """Create the directory if needed, and lock it until `close`. Idempotent."""
        if self._lock >= 0:
            return
        self._make()
        self._lock = self._disk.open(self._at(LOCK_FILE), CREATE)
        if not self._disk.try_lock(self._lock):
            self._disk.close(self._lock)
            self._lock = -1
            raise DirectoryLocked(self.path)

    def open(self, logger: EventLogger) -> None:
        """Remove the clean shutdown marker before anything else (KAFKA-10471), then read."""
        self._is_clean = take_clean_shutdown(self._disk, self.path) is not None
        if not self._is_clean:
            # After a kill, folder names may be in memory only, but logs in them promise durability.
            self._disk.sync_directory(self.path)
        self._checkpoints = Checkpoints(
            *(
                read_offsets_or_report(self._disk, self._at(name), logger)
                for name in CHECKPOINT_FILES
            )
        )

    def _make(self) -> None:
        missing: list[str] = []
        path = self.path
        while not self._disk.exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        for path in reversed(missing):
            self._disk.make_directory(path)
            self._disk.sync_directory(os.path.dirname(path))

    def partitions(self, logger: EventLogger) -> list[tuple[TopicPartition, str]]:
        """The partitions with a folder here. Removes the folders of deleted ones."""
        partitions: list[tuple[TopicPartition, str]] = []
        for entry in self._disk.list(self.path):
            if not entry.is_directory:
                continue
            if is_deleted_folder(entry.name):
                self._try_remove(self._at(entry.name), logger)
                continue
            tp = parse_folder_name(entry.name)
            if tp is not None:
                if tp.topic != METADATA_TOPIC:
                    partitions.append((tp, self._at(entry.name)))
            elif not (entry.name.startswith(".") or entry.name.endswith(OTHER_SUFFIXES)):
                logger.warning(
                    "stray_file_ignored",
                    f"{self._at(entry.name)} is not a partition's folder; ignoring it",
                )
        return partitions

    def _try_remove(self, folder: str, logger: EventLogger) -> None:
        """A failure only wastes space, because nothing depends on the folder."""
        try:
            self.remove_folder(folder)
        except OSError as error:
            logger.warning(
                "directory_not_removed",
                f"{folder} of a deleted partition cannot be removed ({error}); remove it",
            )

    def checkpointed(self) -> set[TopicPartition]:
        """The partitions that the checkpoints name, with a folder or without."""
        named = set().union(*self._checkpoints)
        return {tp for tp in named if tp.topic != METADATA_TOPIC}

    def remembered(self, tp: TopicPartition) -> CheckpointedOffsets:
        checkpoints, zero = self._checkpoints, Offset(0)
        return CheckpointedOffsets(
            clean=self._is_clean,
            recovery_point=checkpoints.recovery_points.get(tp, zero),
            log_start_offset=checkpoints.log_starts.get(tp, zero),
            high_watermark=checkpoints.high_watermarks.get(tp, zero),
            cleaned_offset=checkpoints.cleaned.get(tp, zero),
        )

    def recovery_point(self, tp: TopicPartition) -> Offset:
        """As it is on disk."""
        return self._checkpoints.recovery_points.get(tp, Offset(0))

    def make_folder(self, tp: TopicPartition) -> str:
        check_topic_name(tp.topic)
        if tp.topic == METADATA_TOPIC:
            raise InvalidTopicName(
                f"topic name {METADATA_TOPIC!r} is reserved for Kafka's metadata; choose another"
            )
        check_partition(tp.partition)
        folder = self._at(str(tp))
        self._disk.make_directory(folder)
        self.names_changed = True
        return folder

    def set_aside(self, folder: str) -> str:
        """Rename a deleted partition's folder atomically to a name that no partition has."""
        # The name must stay below the file system's 255 bytes: keep the end of long topic names.
        name = f"{os.path.basename(folder)[-200:]}.{uuid4().hex}{DELETED_SUFFIX}"
        self._disk.rename(folder, self._at(name))
        self.names_changed = True
        self._set_aside.add(self._at(name))
        return self._at(name)

    def remove_folder(self, folder: str) -> None:
        for entry in self._disk.list(folder):
            self._disk.unlink(f"{folder}/{entry.name}")
        self._disk.remove_directory(folder)

    def list_logs(self) -> list[SegmentedLog]:
        return list(self.logs.values())

    def gather(self) -> Checkpoints:
        """The current content of the checkpoints: every log here, leader or not (KAFKA-1647)."""
        logs = self.logs.items()
        self._gathered = Checkpoints(
            {tp: log.durable_offset for tp, log in logs},
            {tp: log.log_start_offset for tp, log in logs},
            {tp: log.high_watermark for tp, log in logs},
            # A pass that is running may leave gaps, of which `log verify` must know.
            {tp: log.cleaned_offset for tp, log in logs if log.cleaned_offset or log.is_compacting},
        )
        return self._gathered

    def forget(self, tp: TopicPartition) -> None:
        """Drop the entries of an earlier partition of this name, before a new one is created."""
        with self._writing:
            self._gathered = None
            kept = (
                {other: offsets[other] for other in offsets if other != tp}
                for offsets in self._checkpoints
            )
            self._write(Checkpoints(*kept), CHECKPOINT_FILES)

    def lower(self, tp: TopicPartition, offset: Offset, *, is_recovery: bool) -> None:
        """Lower the entries of a log that is about to be cut at `offset`, on the owner thread.

        They do not describe what is appended after the cut. A low checkpoint is always safe, so it
        is written before the cut. Recovery leaves the high watermark: after another crash only that
        shows that the log has lost records.
        """
        with self._writing:
            self._gathered = None
            stored = self._checkpoints
            lowered = Checkpoints(*(_lowered(offsets, tp, offset) for offsets in stored))
            if is_recovery:
                lowered = lowered._replace(high_watermarks=stored.high_watermarks)
            self._write(lowered, CHECKPOINT_FILES)

    def write(self, checkpoints: Checkpoints, names: Iterable[str]) -> None:
        """Write the files in `names` whose content has changed."""
        with self._writing:
            # Checkpoints gathered before a cut are stale; the next job writes new ones.
            if checkpoints is self._gathered:
                self._write(checkpoints, names)

    def _write(self, checkpoints: Checkpoints, names: Iterable[str]) -> None:
        for index, name in enumerate(CHECKPOINT_FILES):
            if name in names and checkpoints[index] != self._checkpoints[index]:
                write_offsets(self._disk, self._at(name), checkpoints[index])
                self._checkpoints = self._checkpoints._replace(
                    **{Checkpoints._fields[index]: checkpoints[index]}
                )

    def sync_names(self) -> None:
        if self.names_changed:
            self.names_changed = False
            self._disk.sync_directory(self.path)

    def remove_deleted(self, folder: str) -> None:
        """Remove the folder once its new name is durable.

        Otherwise a power cut could bring back half a partition. One sync covers all folders renamed
        before it.
        """
        if folder in self._set_aside:
            renamed = self._set_aside.copy()
            self._disk.sync_directory(self.path)
            self._set_aside -= renamed
        self.remove_folder(folder)

    def close(self, *, clean: bool) -> None:
        """Unlock; `clean` means that everything is on disk, so the next start checks nothing."""
        if clean:
            write_clean_shutdown(self._disk, self.path)
        if self._lock >= 0:
            self._disk.close(self._lock)
            self._lock = -1

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"


def _lowered(
    offsets: dict[TopicPartition, Offset], tp: TopicPartition, offset: Offset
) -> dict[TopicPartition, Offset]:
    return {**offsets, tp: offset} if offsets.get(tp, 0) > offset else offsets


def parse_folder_name(name: str) -> TopicPartition | None:
    topic, dash, number = name.rpartition("-")
    if not dash or _NUMBER.fullmatch(number) is None or int(number) > MAX_PARTITION:
        return None
    try:
        return TopicPartition(check_topic_name(topic), int(number))
    except InvalidTopicName:
        return None


def is_deleted_folder(name: str) -> bool:
    """Whether the next start removes a folder with this name."""
    return _DELETED_NAME.fullmatch(name) is not None
