"""One log directory of a commit log engine: lock, abort marker, commit log, its partitions.

Invariant: a directory that fails takes only its own logs offline.
"""

import os
from collections.abc import Callable

from penstock.io.disk import CREATE, Buffer, Disk
from penstock.logs.event_logger import EventLogger
from penstock.model.ids import Offset, TopicPartition
from penstock.storage.commit_log.commit_log import COMMIT_LOG_FOLDER, CommitLog, CommitLogFile
from penstock.storage.commit_log.consume_queue import QueueLimits, name_queue
from penstock.storage.commit_log.flush_rounds import CommitLogFlusher
from penstock.storage.commit_log.frames import (
    LAST_OFFSET,
    NO_POSITION,
    PARTITION_OFFSET,
    FrameEnding,
    FrameKind,
)
from penstock.storage.commit_log.partition_entries import PartitionEntries
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.commit_log.partition_state import encode_state
from penstock.storage.commit_log.state_checkpoint import QUEUE_FOLDER
from penstock.storage.directories import mark_failed
from penstock.storage.errors import DirectoryLocked
from penstock.storage.flush_times import FlushTimes
from penstock.storage.group_commit import Background
from penstock.storage.handles import Handles
from penstock.storage.log_directory import LOCK_FILE

ABORT_FILE = "abort"
# As many high watermarks as one frame takes.
_WATERMARKS_A_FRAME = 10_000


class CommitLogDirectory:
    """Owned by the engine. `failure` is set once and stops all writes in the directory."""

    def __init__(
        self,
        disk: Disk,
        handles: Handles,
        path: str,
        file_bytes: int,
        *,
        background: Background,
        post: Callable[[Callable[[], None]], None],
        times: FlushTimes,
        logger: EventLogger,
    ) -> None:
        self.path = os.path.abspath(path)
        self.failure: OSError | None = None
        self.logs: dict[TopicPartition, CommitLogPartition] = {}
        self.next_number = 0
        # Per partition number, each with the position of its frame.
        self.endings: dict[int, list[tuple[int, FrameEnding]]] = {}
        self.checkpointed_end = 0  # a replay begins here, by the checkpoint on disk
        self.next_generation = 0  # of queue files
        self.queue_limits = QueueLimits()
        self.was_aborted = False  # the last stop was no clean one
        self.commit_log = CommitLog(disk, handles, f"{self.path}/{COMMIT_LOG_FOLDER}", file_bytes)
        self.flusher = CommitLogFlusher(
            self.commit_log, handles, background, post, self.fail, times
        )
        self.queue_folder = f"{self.path}/{QUEUE_FOLDER}"
        self._disk = disk
        self._logger = logger
        self._lock = -1
        self.is_staging = False  # between `begin_request` and `end_request`
        # Per log, what a failed write of that request takes back.
        self._undo: dict[CommitLogPartition, tuple[Offset, int]] = {}

    # -- lock and marker -------------------------------------------------------------------

    def lock(self) -> None:
        """Create the directory if needed, and lock it until `close`. Idempotent."""
        if self._lock >= 0:
            return
        self._make(self.path)
        self._lock = self._disk.open(f"{self.path}/{LOCK_FILE}", CREATE)
        if not self._disk.try_lock(self._lock):
            self._disk.close(self._lock)
            self._lock = -1
            raise DirectoryLocked(self.path)

    def open(self) -> None:
        """Set the abort marker before anything else."""
        self._make(self.commit_log.folder)
        self._make(self.queue_folder)
        marker = f"{self.path}/{ABORT_FILE}"
        self.was_aborted = self._disk.exists(marker)
        if not self.was_aborted:
            self._disk.close(self._disk.open(marker, CREATE))
            self._disk.sync_directory(self.path)

    def _make(self, path: str) -> None:
        missing: list[str] = []
        while not self._disk.exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        for path in reversed(missing):
            self._disk.make_directory(path)
            self._disk.sync_directory(os.path.dirname(path))

    def close(self, *, clean: bool) -> None:
        """Unlock; `clean` means that the checkpoint covers the whole commit log."""
        if clean and self._lock >= 0:
            self._disk.unlink(f"{self.path}/{ABORT_FILE}")
            self._disk.sync_directory(self.path)
        if self._lock >= 0:
            self._disk.close(self._lock)
            self._lock = -1

    def fail(self, error: OSError) -> None:
        mark_failed(self, error, self._logger)

    # -- frames ----------------------------------------------------------------------------

    def stage(self, log: PartitionEntries, kind: FrameKind, payload: Buffer) -> int:
        assert isinstance(log, CommitLogPartition)
        if self.is_staging and log not in self._undo:
            self._undo[log] = log.log_end_offset, log.queue.end
        position = self.commit_log.stage(kind, log.number, payload, log.last_frame)
        log.last_frame = position
        self.flusher.dirty[log] = None
        return position

    def note_dirty(self, log: PartitionEntries) -> None:
        assert isinstance(log, CommitLogPartition)
        self.flusher.dirty[log] = None

    def write(self) -> None:
        self.commit_log.write_staged()

    def begin_request(self) -> None:
        """Remember what the appends of one request change, until `end_request` writes them."""
        self.is_staging = True

    def end_request(self) -> set[CommitLogPartition]:
        """Write everything staged; returns the logs whose appends failed, fenced and undone."""
        self.is_staging = False
        try:
            self.commit_log.write_staged()
        except OSError as error:
            return self._take_back(error)
        self._undo.clear()
        return set()

    def abort_request(self, error: OSError) -> set[CommitLogPartition]:
        """A write within the request has failed: nothing of it counts as stored."""
        self.is_staging = False
        self.commit_log.forget_staged()
        return self._take_back(error)

    def _take_back(self, error: OSError) -> set[CommitLogPartition]:
        self.fail(error)
        undo, self._undo = self._undo, {}
        for log, (end_offset, end_index) in undo.items():
            log.undo_append(end_offset, end_index)
        return set(undo)

    def cut(self, log: PartitionEntries, end_offset: Offset) -> None:
        assert isinstance(log, CommitLogPartition)
        self.flusher.cut(log, end_offset)

    def note_ending(self, ending: FrameEnding, position: int) -> None:
        """Remember it while an older file may hold what it ends. A wider one stands for others."""
        others = self.endings.get(ending.number, ())
        kept = [item for item in others if not _is_covered(item[1], ending)]
        self.endings[ending.number] = [*kept, (position, ending)]

    # -- partitions ------------------------------------------------------------------------

    def take_number(self) -> int:
        number, self.next_number = self.next_number, self.next_number + 1
        return number

    def write_state(self, log: CommitLogPartition) -> None:
        """Write the frame from which a replay of everything creates this log."""
        log.take_snapshot()
        position = self.stage(log, FrameKind.STATE, encode_state(log.state(self.commit_log.end)))
        self.write()
        log.state_frame = position
        log.is_changed = True

    def delete(self, log: CommitLogPartition) -> None:
        ending = FrameEnding(FrameKind.DELETED, log.number, 0, LAST_OFFSET, self.commit_log.end)
        position = self.stage(log, FrameKind.DELETED, ending.encode())
        self.write()
        self.note_ending(ending, position)
        self.flusher.dirty.pop(log, None)

    def write_high_watermarks(self) -> bool:
        """A frame with those that have moved; True if there were any."""
        moved = [
            log for log in self.logs.values() if log.high_watermark != log.saved_high_watermark
        ]
        for start in range(0, len(moved), _WATERMARKS_A_FRAME):
            part = moved[start : start + _WATERMARKS_A_FRAME]
            payload = b"".join(
                PARTITION_OFFSET.pack(log.number, log.high_watermark) for log in part
            )
            self.commit_log.stage(FrameKind.HIGH_WATERMARKS, 0, payload, NO_POSITION)
            for log in part:
                log.saved_high_watermark = log.high_watermark
        self.write()
        return bool(moved)

    def carry_states(self, file: CommitLogFile, at_most: int) -> bool:
        """Write again the states of logs that a replay of everything would create by this file;
        True if there may be more."""
        begun = [
            log
            for log in self.logs.values()
            if log.failure is None and file.base <= log.state_frame < file.end
        ]
        for log in begun[:at_most]:
            self.write_state(log)
        return len(begun) > at_most

    def carry_endings(self, file: CommitLogFile) -> None:
        """Write again what ends batches of older files, as long as there are any."""
        has_older = any(other.base < file.base for other in self.commit_log.files)
        taken = self._take_endings(file)
        for _, ending in taken if has_older else ():
            position = self.commit_log.stage(
                ending.kind, ending.number, ending.encode(), NO_POSITION
            )
            self.endings.setdefault(ending.number, []).append((position, ending))
        self.write()

    def _take_endings(self, file: CommitLogFile) -> list[tuple[int, FrameEnding]]:
        """Those whose frames are in the file, which are forgotten."""
        taken: list[tuple[int, FrameEnding]] = []
        for number, endings in list(self.endings.items()):
            within = [item for item in endings if file.base <= item[0] < file.end]
            if within:
                taken += within
                kept = [item for item in endings if item not in within]
                if kept:
                    self.endings[number] = kept
                else:
                    del self.endings[number]
        return taken

    def new_queue_path(self, log: CommitLogPartition) -> str:
        self.next_generation += 1
        return f"{self.queue_folder}/{name_queue(log.number, self.next_generation)}"


def _is_covered(older: FrameEnding, newer: FrameEnding) -> bool:
    """Whether everything that the older one ends is ended by the newer one too."""
    if older.number != newer.number or older.before > newer.before:
        return False
    if newer.kind in (FrameKind.DELETED, FrameKind.RESTARTED):
        return True
    return (
        older.kind is newer.kind
        and older.kind in (FrameKind.LOG_START, FrameKind.TRUNCATED, FrameKind.COMPACTED)
        and newer.first <= older.first
        and older.last <= newer.last
    )
