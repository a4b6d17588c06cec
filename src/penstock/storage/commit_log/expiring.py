"""Retention in a commit log: moves the log start by retention.ms and retention.bytes.

Decides batch by batch, because there are no segments: finer than Kafka, never sooner. The files go
when nothing live points into them, which is `cleaning`'s part.
"""

from functools import partial

from penstock.model.ids import Offset
from penstock.storage.commit_log.commit_log_directory import CommitLogDirectory
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.engine import OnOwner
from penstock.storage.errors import LogFenced

# Dropping an entry takes about a microsecond of the owner thread.
_ENTRIES_A_VISIT = 10_000


class ExpiryJob:
    """One pass over the logs of a directory."""

    name = "retention"

    def __init__(self, directory: CommitLogDirectory, now_ms: int) -> None:
        self._directory = directory
        self._now_ms = now_ms

    def run(self, on_owner: OnOwner) -> None:
        for log in on_owner(lambda: list(self._directory.logs.values())):
            while on_owner(partial(_expire, log, self._now_ms)):
                pass


def _expire(log: CommitLogPartition, now_ms: int) -> bool:
    """Delete some expired batches; True if there may be more."""
    if log.failure is not None or log.is_compacting:
        return False
    end = find_expired_end(log, now_ms)
    queue = log.queue
    if end <= queue.first:
        return False
    is_part = end - queue.first > _ENTRIES_A_VISIT
    end = min(end, queue.first + _ENTRIES_A_VISIT)
    try:
        log.delete_before(Offset(queue.entry(end - 1).next_offset))
    except LogFenced:
        return False  # its directory is offline already
    return is_part


def find_expired_end(log: CommitLogPartition, now_ms: int) -> int:
    """The index of the first entry that stays. Nothing above the high watermark goes."""
    queue, config = log.queue, log.config
    if not config.delete:
        return queue.first
    limit = queue.find(log.high_watermark)
    return min(limit, max(_find_too_old(log, now_ms), _find_too_much(log)))


def _find_too_old(log: CommitLogPartition, now_ms: int) -> int:
    queue, retention_ms = log.queue, log.config.retention_ms
    if retention_ms < 0:
        return queue.first
    timed = queue.find_time(0)
    if timed > queue.first and now_ms - log.opened_ms <= retention_ms:
        return queue.first  # no timestamps: their age counts from the start of the broker
    return queue.find_time(now_ms - retention_ms)


def _find_too_much(log: CommitLogPartition) -> int:
    """A batch goes if the rest is still at least retention.bytes."""
    queue, index = log.queue, log.queue.first
    if log.config.retention_bytes < 0:
        return index
    excess = log.size_bytes - log.config.retention_bytes
    while index < queue.end and index - queue.first <= _ENTRIES_A_VISIT:
        excess -= queue.entry(index).size
        if excess < 0:
            break
        index += 1
    return index
