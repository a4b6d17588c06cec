"""Group commit: one flusher per log directory makes many logs durable in one round, off the owner.

While a round runs, requests gather for the next, so that a slow disk makes rounds larger instead of
queues longer. A log waits at most once, whatever the number of its callers.
"""

import os
from collections.abc import Callable, Iterable
from errno import ENOENT
from typing import NamedTuple, Protocol, TypeVar

from penstock.model.ids import Offset
from penstock.storage.disk import APPEND, Disk, replace_file
from penstock.storage.engine import Releasable
from penstock.storage.epochs import EPOCH_FILE, encode_epochs
from penstock.storage.errors import LogFenced, StorageError
from penstock.storage.handles import Handles
from penstock.storage.log import SegmentedLog

Item = TypeVar("Item")
Done = Callable[[StorageError | None], None]
MAX_LOGS_A_ROUND = 256  # bounds the descriptors that a round holds


class Background(Protocol):
    """Where work goes that may wait for the disk."""

    def run(self, work: Callable[[], None]) -> None:
        """Soon, off the owner thread; errors stop the process's owner, not just the work."""

    def each(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        """All items, in parallel where possible; raises the first error after all have ended."""


class Inline:
    """No threads: the caller waits. For tools, tests and simulation."""

    def run(self, work: Callable[[], None]) -> None:
        work()

    def each(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        for item in items:
            function(item)


class _Share(NamedTuple):
    """One log's part of a round, taken on the owner so that the background touches no log."""

    log: SegmentedLog
    upto: Offset
    generation: int
    descriptors: tuple[int, ...]
    paths: tuple[str, ...]
    lease: Releasable
    epochs: bytes | None
    folders: tuple[str, ...]  # in which names changed


class GroupCommit:
    """Owned by the engine's owner thread; only `_sync` runs elsewhere."""

    def __init__(
        self,
        disk: Disk,
        handles: Handles,
        background: Background,
        post: Callable[[Callable[[], None]], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        self._disk = disk
        self._handles = handles
        self._background = background
        self._post = post
        self._on_failed = on_failed
        self._waiting: dict[SegmentedLog, list[tuple[Offset, Done]]] = {}
        self._is_running = False
        self._gone: set[SegmentedLog] = set()  # whose folders a round did not find

    def request(self, log: SegmentedLog, upto: Offset, done: Done) -> None:
        self._waiting.setdefault(log, []).append((upto, done))
        if not self._is_running:
            self._start_round()

    def flush_all(self, logs: Iterable[SegmentedLog]) -> None:
        """For closing: everything in as few rounds as the descriptors allow."""
        for log in logs:
            self._waiting.setdefault(log, [])
        if self._waiting and not self._is_running:
            self._start_round()

    def _start_round(self) -> None:
        logs = list(self._waiting)[:MAX_LOGS_A_ROUND]
        callers = [self._waiting.pop(log) for log in logs]
        try:
            shares = [self._share(log) for log in logs]
        except OSError as error:
            self._fail(logs, callers, error)
            return
        self._is_running = True
        self._background.run(lambda: self._sync(shares, callers))

    def _share(self, log: SegmentedLog) -> _Share:
        dirty = log.segments.starting_from(log.durable_offset)
        epochs = encode_epochs(log.epochs.entries) if log.epochs.dirty else None
        log.epochs.dirty = False
        folders = _folders_to_sync(log)
        log.names_changed = log.is_folder_new = False
        paths = [path for segment in dirty if not segment.is_active for path in segment.index_paths]
        paths += [log.segments.active.transaction_index_path, *log.unsynced_paths]
        log.unsynced_paths.clear()
        log.dirty_since_ms = None
        # Before the files are opened: to open one may close another that nobody holds.
        lease = self._handles.lease(*(segment.file for segment in dirty))
        return _Share(
            log,
            log.log_end_offset,
            log.generation,
            tuple(self._handles.descriptor(segment.file) for segment in dirty),
            tuple(paths),
            lease,
            epochs,
            folders,
        )

    def _sync(self, shares: list[_Share], callers: list[list[tuple[Offset, Done]]]) -> None:
        error: OSError | None = None
        try:
            self._background.each(self._sync_share, shares)
        except OSError as problem:
            error = problem
        self._post(lambda: self._finish(shares, callers, error))

    def _sync_share(self, share: _Share) -> None:
        for descriptor in share.descriptors:
            self._disk.sync(descriptor)
        for path in share.paths:
            sync_path(self._disk, path)
        try:
            self._sync_names(share)
        except FileNotFoundError:
            # Deleted meanwhile; the owner knows. What else is missing is a failure.
            if self._disk.exists(share.log.directory):
                raise
            self._gone.add(share.log)

    def _sync_names(self, share: _Share) -> None:
        if share.epochs is not None:
            with share.log.writing_epochs:
                self._write_epochs(share, share.epochs)
        for folder in share.folders:
            self._disk.sync_directory(folder)

    def _write_epochs(self, share: _Share, content: bytes) -> None:
        """Not those from before a cut: recovery would take them against the batches after it. A
        cut counts up the generation before it waits for its turn to write."""
        if share.log.generation == share.generation:
            replace_file(self._disk, f"{share.log.directory}/{EPOCH_FILE}", content)

    def _finish(
        self,
        shares: list[_Share],
        callers: list[list[tuple[Offset, Done]]],
        error: OSError | None,
    ) -> None:
        self._is_running = False
        for share in shares:
            share.lease.release()
        if error is not None:
            self._fail([share.log for share in shares], callers, error)
        else:
            for share, waiting in zip(shares, callers, strict=True):
                self._settle(share, waiting)
        self._gone.clear()
        if self._waiting and not self._is_running:
            self._start_round()

    def _settle(self, share: _Share, waiting: list[tuple[Offset, Done]]) -> None:
        log = share.log
        if log in self._gone and log.failure is None:
            error = FileNotFoundError(ENOENT, "the folder of a log has vanished", log.directory)
            self._fail([log], [waiting], error)
            return
        if log.generation == share.generation:
            log.durable_offset = max(log.durable_offset, share.upto)
        elif share.epochs is not None:
            log.epochs.dirty = True  # the round left them to the cut, which may not have
        for upto, done in waiting:
            if log.failure is not None:
                done(LogFenced(log.partition, log.failure))
            elif log.durable_offset >= min(upto, log.log_end_offset):
                done(None)
            else:
                # The log was cut meanwhile, or more was appended than this round saw.
                self._waiting.setdefault(log, []).append((upto, done))

    def _fail(
        self, logs: list[SegmentedLog], callers: list[list[tuple[Offset, Done]]], error: OSError
    ) -> None:
        """After a failed sync the kernel may have dropped the data: nothing here is sure now."""
        self._on_failed(error)
        for log, waiting in zip(logs, callers, strict=True):
            for _, done in waiting:
                done(LogFenced(log.partition, error))


def _folders_to_sync(log: SegmentedLog) -> tuple[str, ...]:
    """Its own, and the one above it while its own name there may be in memory only."""
    folders = (log.directory,) if log.names_changed else ()
    return (*folders, os.path.dirname(log.directory)) if log.is_folder_new else folders


def sync_path(disk: Disk, path: str) -> None:
    """Sync a file that may have gone with its segment meanwhile."""
    try:
        descriptor = disk.open(path, APPEND)
    except FileNotFoundError:
        return
    try:
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
