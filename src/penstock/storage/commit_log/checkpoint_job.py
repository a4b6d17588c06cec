"""Background jobs that every commit log needs: high watermarks, and the checkpoint of its states.

A job visits the owner thread to read logs in memory, and touches files off it. Invariant: a
checkpoint is written only after all that its states tell of is durable.
"""

from collections.abc import Set
from functools import partial
from typing import NamedTuple

from penstock.io.disk import APPEND, CREATE, Disk, write_fully
from penstock.storage.commit_log.commit_log_directory import CommitLogDirectory
from penstock.storage.commit_log.consume_queue import QueueSave
from penstock.storage.commit_log.flush_rounds import FlushShare
from penstock.storage.commit_log.frames import FrameEnding
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.commit_log.state_checkpoint import (
    encode_checkpoint,
    encode_partition,
    write_checkpoint,
)
from penstock.storage.engine import OnOwner

_LOGS_A_VISIT = 100


class _Begun(NamedTuple):
    replay_from: int
    next_number: int
    endings: list[tuple[int, FrameEnding]]
    logs: list[CommitLogPartition]


class StateCheckpointJob:
    """Writes one directory's checkpoint. Also run, on the owner thread, by a clean close."""

    name = "checkpoint"

    def __init__(self, directory: CommitLogDirectory, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk

    def run(self, on_owner: OnOwner) -> None:
        directory = self._directory
        if directory.failure is not None:
            return
        try:
            self.write(on_owner)
        except OSError as error:
            on_owner(partial(directory.fail, error))

    def write(self, on_owner: OnOwner) -> None:
        directory = self._directory
        begun = on_owner(self._begin)
        # Not for each queue: the checkpoint that names the new files comes last.
        if sum([self._save_queue(log, on_owner) for log in begun.logs]):
            self._disk.sync_directory(directory.queue_folder)
        parts: list[tuple[str, bytes]] = []
        for start in range(0, len(begun.logs), _LOGS_A_VISIT):
            logs = begun.logs[start : start + _LOGS_A_VISIT]
            parts += on_owner(partial(self._encode, logs))
        share = on_owner(directory.flusher.share)
        self._sync(share, on_owner)
        content = encode_checkpoint(
            begun.replay_from,
            share.end,
            begun.next_number,
            begun.endings,
            [content for _, content in parts],
        )
        write_checkpoint(self._disk, directory.path, content)
        on_owner(partial(self._end, begun.replay_from))
        remove_queues(self._disk, directory.queue_folder, {name for name, _ in parts})

    def _begin(self) -> _Begun:
        directory = self._directory
        endings = [item for items in directory.endings.values() for item in items]
        return _Begun(
            directory.commit_log.written_end,
            directory.next_number,
            endings,
            list(directory.logs.values()),
        )

    def _end(self, replay_from: int) -> None:
        self._directory.checkpointed_end = max(self._directory.checkpointed_end, replay_from)

    def _sync(self, share: FlushShare, on_owner: OnOwner) -> None:
        flusher = self._directory.flusher
        try:
            flusher.sync(share)
        except OSError as error:
            on_owner(partial(flusher.settle, share, error))
            raise
        on_owner(partial(flusher.settle, share, None))

    # -- queues ----------------------------------------------------------------------------

    def _save_queue(self, log: CommitLogPartition, on_owner: OnOwner) -> bool:
        """True if it has a new file now, whose name may not be durable."""
        if log.queue.unsaved_count < self._directory.queue_limits.least_saved:
            return False  # read off the owner thread: a stale count only delays the save
        save = on_owner(partial(self._plan, log))
        if save is None:
            return False
        descriptor = self._disk.open(save.path, CREATE if save.is_new else APPEND)
        try:
            write_fully(self._disk, descriptor, save.content)
            self._disk.sync(descriptor)
        finally:
            self._disk.close(descriptor)
        on_owner(partial(self._finish, log, save, save.crc))
        return save.is_new

    def _plan(self, log: CommitLogPartition) -> QueueSave | None:
        if log.is_retired:
            return None
        directory = self._directory
        return log.queue.plan_save(directory.new_queue_path(log), directory.queue_limits)

    def _finish(self, log: CommitLogPartition, save: QueueSave, crc: int) -> None:
        if not log.is_retired:
            log.is_changed = True
            log.queue.end_save(save, crc)

    def _encode(self, logs: list[CommitLogPartition]) -> list[tuple[str, bytes]]:
        applied = self._directory.commit_log.written_end
        encoded: list[tuple[str, bytes]] = []
        for log in logs:
            if log.is_retired:
                continue
            if log.is_changed or not log.encoded_state[1]:
                log.take_snapshot()
                log.encoded_state = encode_partition(log, applied)
                log.is_changed = False
            encoded.append(log.encoded_state)
        return encoded


def remove_queues(disk: Disk, folder: str, named: Set[str]) -> None:
    """Remove the queue files that the checkpoint on disk does not name, so that no later one
    does."""
    for entry in disk.list(folder):
        if entry.name not in named:
            disk.unlink(f"{folder}/{entry.name}")


class HighWatermarkJob:
    """Writes a frame with the high watermarks that have moved, and makes it durable.

    So the commit log is synced at least this often, and never ends below a high watermark in it.
    """

    name = "high watermarks"

    def __init__(self, directory: CommitLogDirectory) -> None:
        self._directory = directory

    def run(self, on_owner: OnOwner) -> None:
        directory = self._directory
        if directory.failure is not None:
            return
        try:
            if on_owner(directory.write_high_watermarks):
                share = on_owner(directory.flusher.share)
                self._sync(share, on_owner)
        except OSError as error:
            on_owner(partial(directory.fail, error))

    def _sync(self, share: FlushShare, on_owner: OnOwner) -> None:
        flusher = self._directory.flusher
        error: OSError | None = None
        try:
            flusher.sync(share)
        except OSError as problem:
            error = problem
        on_owner(partial(flusher.settle, share, error))
