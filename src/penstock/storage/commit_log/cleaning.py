"""Removes the files of a commit log that nothing live points into, and empties those with little.

The cleaner writes live batches of a mostly dead file again at the log's end; the rate is bounded.
Invariant: a file goes only once the checkpoint on disk begins after it, and what a replay of
everything needs of it has been written again and is durable.
"""

from collections import Counter
from functools import partial

from penstock.config.log_config import StorageConfig
from penstock.io.disk import Disk, read_fully
from penstock.logs.event_logger import EventLogger
from penstock.protocol.batch import CorruptBatch, is_crc_valid, read_header
from penstock.storage.commit_log.commit_log import CommitLogFile
from penstock.storage.commit_log.commit_log_directory import CommitLogDirectory
from penstock.storage.commit_log.consume_queue import QueueEntry
from penstock.storage.commit_log.flush_rounds import FlushShare
from penstock.storage.commit_log.frames import FRAME_BYTES, FrameKind
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.compaction_throttle import CleanerThrottler
from penstock.storage.engine import OnOwner
from penstock.storage.errors import LogFenced
from penstock.storage.handles import Lease

_ENTRIES_A_VISIT = 5_000
_STATES_A_VISIT = 100
_LOGS_A_VISIT = 500
_MOVED_BYTES = 1 << 18  # of one frame and so of one visit


class CleaningJob:
    """One pass over the files of a directory."""

    name = "commit log cleaning"

    def __init__(
        self,
        directory: CommitLogDirectory,
        disk: Disk,
        config: StorageConfig,
        throttle: CleanerThrottler,
        logger: EventLogger,
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._live_share = config.commit_log_min_live_ratio
        self._throttle = throttle
        self._logger = logger

    def run(self, on_owner: OnOwner) -> None:
        directory = self._directory
        if directory.failure is not None:
            return
        try:
            file = self._find_sparse(on_owner)
            if file is not None:
                self._empty(file, on_owner)
            self._remove_dead(on_owner)
        except OSError as error:
            on_owner(partial(directory.fail, error))
        except LogFenced:
            return  # the directory is offline already

    # -- removing --------------------------------------------------------------------------

    def _remove_dead(self, on_owner: OnOwner) -> None:
        live = self._count_live(on_owner)
        dead = [file for file, size in live if not size]
        for file in dead:
            while on_owner(partial(self._directory.carry_states, file, _STATES_A_VISIT)):
                pass
            on_owner(partial(self._directory.carry_endings, file))
        if not dead:
            return
        share = on_owner(self._directory.flusher.share)
        self._sync(share, on_owner)
        for file in dead:
            on_owner(partial(self._directory.commit_log.drop, file))
            self._disk.unlink(file.handle.path)
        self._disk.sync_directory(self._directory.commit_log.folder)

    def _count_live(self, on_owner: OnOwner) -> list[tuple[CommitLogFile, int]]:
        """The files that no replay from the checkpoint reads, with the bytes that some consume
        queue points to. These only fall, so that the owner may count a few logs at a time."""
        sealed, logs = on_owner(self._find_sealed)
        live: Counter[int] = Counter()
        for start in range(0, len(logs) if sealed else 0, _LOGS_A_VISIT):
            on_owner(partial(_add_live, live, logs[start : start + _LOGS_A_VISIT]))
        return [(file, live[file.base]) for file in sealed]

    def _find_sealed(self) -> tuple[list[CommitLogFile], list[CommitLogPartition]]:
        directory = self._directory
        files = directory.commit_log.files[:-1]
        sealed = [file for file in files if file.end <= directory.checkpointed_end]
        return sealed, list(directory.logs.values())

    def _sync(self, share: FlushShare, on_owner: OnOwner) -> None:
        flusher = self._directory.flusher
        try:
            flusher.sync(share)
        except OSError as error:
            on_owner(partial(flusher.settle, share, error))
            raise
        on_owner(partial(flusher.settle, share, None))

    # -- moving ----------------------------------------------------------------------------

    def _find_sparse(self, on_owner: OnOwner) -> CommitLogFile | None:
        """The file with the least live share, if that is small enough to move."""
        sparse = [
            (size / file.size, file.base, file)
            for file, size in self._count_live(on_owner)
            if 0 < size <= self._live_share * file.size and not file.is_damaged
        ]
        return min(sparse)[2] if sparse else None

    def _empty(self, file: CommitLogFile, on_owner: OnOwner) -> None:
        for log in on_owner(lambda: self._logs_in(file)):
            index = 0
            while index >= 0:
                index, entries = on_owner(partial(_find_entries, log, file, index))
                self._move(log, file, entries, on_owner)

    def _logs_in(self, file: CommitLogFile) -> list[CommitLogPartition]:
        return [log for log in self._directory.logs.values() if log.live.get(file.base)]

    def _move(
        self,
        log: CommitLogPartition,
        file: CommitLogFile,
        entries: list[QueueEntry],
        on_owner: OnOwner,
    ) -> None:
        part: list[QueueEntry] = []
        for entry in entries:
            if part and sum(item.size for item in part) + entry.size > _MOVED_BYTES:
                self._move_part(log, file, part, on_owner)
                part = []
            part.append(entry)
        if part:
            self._move_part(log, file, part, on_owner)

    def _move_part(
        self,
        log: CommitLogPartition,
        file: CommitLogFile,
        entries: list[QueueEntry],
        on_owner: OnOwner,
    ) -> None:
        descriptor, lease = on_owner(partial(self._lease, log, file))
        try:
            batches = [
                read_fully(self._disk, descriptor, entry.size, entry.position - file.base)
                for entry in entries
            ]
        finally:
            on_owner(lease.release)
        for entry, batch in zip(entries, batches, strict=True):
            if not _is_whole(entry, batch):
                on_owner(partial(self._give_up, file, log, entry))
                return
        self._throttle.spend(2 * sum(map(len, batches)))
        on_owner(partial(_rewrite, log, entries, batches))

    def _lease(self, log: CommitLogPartition, file: CommitLogFile) -> tuple[int, Lease]:
        return log.lease_file(file)

    def _give_up(self, file: CommitLogFile, log: CommitLogPartition, entry: QueueEntry) -> None:
        file.is_damaged = True
        self._logger.warning(
            "commit_log_not_cleaned",
            f"{file.handle.path} is not cleaned before a restart: the batch of {log.tp} at "
            f"offset {entry.base_offset} is damaged; delete it, or restore it from a replica",
        )


def _add_live(live: Counter[int], logs: list[CommitLogPartition]) -> None:
    for log in logs:
        for base, size in log.live.items():
            live[base] += size


def _find_entries(
    log: CommitLogPartition, file: CommitLogFile, start: int
) -> tuple[int, list[QueueEntry]]:
    """Some entries in the file, and the base offset from which to go on; -1: that is all."""
    if log.failure is not None or log.is_compacting:
        return -1, []
    queue = log.queue
    index = queue.find(start)
    stop = min(queue.end, index + _ENTRIES_A_VISIT)
    entries = [
        entry for entry in queue.entries(index, stop) if file.base <= entry.position < file.end
    ]
    return (-1 if stop >= queue.end else queue.entry(stop).base_offset), entries


def _is_whole(entry: QueueEntry, batch: bytes) -> bool:
    try:
        header = read_header(batch)
    except CorruptBatch:
        return False
    return (
        header.base_offset == entry.base_offset
        and header.size == entry.size == len(batch)
        and is_crc_valid(batch, 0, len(batch))
    )


def _rewrite(log: CommitLogPartition, entries: list[QueueEntry], batches: list[bytes]) -> None:
    """Write those that are still live, and where they were, in one frame."""
    if log.failure is not None or log.is_compacting:
        return
    queue = log.queue
    live: list[tuple[QueueEntry, bytes]] = []
    for entry, batch in zip(entries, batches, strict=True):
        index = queue.find(entry.base_offset)
        if index < queue.end and queue.entry(index).position == entry.position:
            live.append((entry, batch))
    if not live:
        return
    payload = b"".join(batch for _, batch in live)
    position = log.write_frame(FrameKind.MOVED, payload) + FRAME_BYTES
    for entry, batch in live:
        log.move_entry(queue.find(entry.base_offset), position)
        position += len(batch)
