"""Group commit: one flusher per log directory syncs many logs in one round, off the owner thread.

Requests that arrive during a round are served by the next, so that a slow disk makes rounds larger
instead of queues longer. A log is queued at most once, however many callers wait for it.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import NamedTuple, Protocol, TypeVar

from penstock.io.disk import APPEND, Disk, replace_file
from penstock.model.ids import Offset
from penstock.model.slices import Releasable
from penstock.storage.errors import LogFenced, OffsetOutOfRange, StorageError
from penstock.storage.flush_times import FlushTimes
from penstock.storage.handles import Handles
from penstock.storage.leader_epoch_cache import EPOCH_FILE, encode_epochs
from penstock.storage.local_log import LocalLog

Item = TypeVar("Item")
Done = Callable[[StorageError | None], None]
Callers = list[tuple[Offset, Done]]
MAX_LOGS_A_ROUND = 256  # bounds the descriptors that a round holds


class Background(Protocol):
    """Runs work that may block on the disk."""

    def run(self, work: Callable[[], None]) -> None:
        """Run it soon, off the owner thread; an error stops the broker, not just the work."""

    def run_all(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        """Run all items, in parallel where possible; raise the first error after all have ended."""


class Inline:
    """No threads: runs the work in the caller. For tools, tests and simulation."""

    def run(self, work: Callable[[], None]) -> None:
        work()

    def run_all(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        for item in items:
            function(item)


class _Share(NamedTuple):
    """One log's part of a round, collected on the owner so that the background touches no log."""

    log: LocalLog
    upto: Offset
    generation: int
    descriptors: tuple[int, ...]
    paths: tuple[str, ...]
    lease: Releasable
    epochs: bytes | None
    folders: tuple[str, ...]  # whose names changed
    appended_bytes: int  # since the log's last round


class GroupCommit:
    """Owned by the engine's owner thread; only `_sync` runs elsewhere."""

    def __init__(
        self,
        disk: Disk,
        handles: Handles,
        background: Background,
        post: Callable[[Callable[[], None]], None],
        on_failed: Callable[[OSError], None],
        times: FlushTimes,
    ) -> None:
        self._disk = disk
        self._handles = handles
        self._background = background
        self._post = post
        self._on_failed = on_failed
        self._times = times
        # A round holds a file of each log open; leave half of the descriptors to readers.
        self._logs_a_round = max(1, min(MAX_LOGS_A_ROUND, handles.descriptor_capacity // 2))
        self._waiting: dict[LocalLog, Callers] = {}
        self._served: dict[LocalLog, Callers] = {}  # by the round that is running

    def request(self, log: LocalLog, upto: Offset, done: Done) -> None:
        self._waiting.setdefault(log, []).append((upto, done))
        self._start_round()

    def flush_all(self, logs: Iterable[LocalLog]) -> None:
        """Sync everything before closing, in as few rounds as the descriptors allow."""
        for log in logs:
            self._waiting.setdefault(log, [])
        self._start_round()

    def cut(self, log: LocalLog, end_offset: Offset) -> None:
        """The log is about to end here: callers that wait for later offsets get an error now."""
        for callers in (self._waiting.get(log, []), self._served.get(log, [])):
            cut_off = [caller for caller in callers if caller[0] > end_offset]
            callers[:] = [caller for caller in callers if caller[0] <= end_offset]
            for upto, done in cut_off:
                done(OffsetOutOfRange(upto, log.log_start_offset, end_offset))

    def _start_round(self) -> None:
        """Start a round unless one is running; that one starts the next when it ends."""
        while self._waiting and not self._served:
            shares: list[_Share] = []
            try:
                for log in list(self._waiting)[: self._logs_a_round]:
                    callers = self._waiting.pop(log)
                    self._served[log] = callers
                    if log.failure is None:
                        shares.append(self._share(log))
            except OSError as error:
                self._on_failed(error)
            self._refuse_failed(shares)
            if self._served:
                self._background.run(partial(self._sync, shares))

    def _refuse_failed(self, shares: list[_Share]) -> None:
        """Drop the logs that were deleted or fenced while they waited."""
        for share in [share for share in shares if share.log.failure is not None]:
            share.lease.release()
            shares.remove(share)
        for log in [log for log in self._served if log.failure is not None]:
            _refuse(log, self._served.pop(log))

    def _share(self, log: LocalLog) -> _Share:
        dirty = log.segments.starting_from(log.durable_offset)
        epochs = encode_epochs(log.epochs.entries) if log.epochs.dirty else None
        log.epochs.dirty = False
        folders = _folders_to_sync(log)
        log.names_changed = log.is_folder_new = False
        paths = [path for segment in dirty if not segment.is_active for path in segment.index_paths]
        paths += [log.segments.active.transaction_index.path, *log.unsynced_paths]
        log.unsynced_paths.clear()
        appended_bytes = _count_dirty(log)
        log.dirty_since_ms = None
        # Lease before opening the files: opening one may close another that is not leased.
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
            appended_bytes,
        )

    def _sync(self, shares: list[_Share]) -> None:
        error: OSError | None = None
        logs_s: list[float] = []  # threads only append
        began_s = perf_counter()
        try:
            self._background.run_all(partial(self._sync_share, logs_s), shares)
        except OSError as problem:
            error = problem
        elapsed_s = perf_counter() - began_s
        self._post(partial(self._finish, shares, error, elapsed_s, logs_s))

    def _sync_share(self, logs_s: list[float], share: _Share) -> None:
        began_s = perf_counter()
        self._sync_files(share)
        logs_s.append(perf_counter() - began_s)

    def _sync_files(self, share: _Share) -> None:
        for descriptor in share.descriptors:
            self._disk.sync(descriptor)
        for path in share.paths:
            sync_path(self._disk, path)
        try:
            self._sync_names(share)
        except FileNotFoundError:
            if share.log.failure is None:
                raise  # not deleted: its folder has disappeared

    def _sync_names(self, share: _Share) -> None:
        if share.epochs is not None:
            with share.log.writing_epochs:
                self._write_epochs(share, share.epochs)
        for folder in share.folders:
            self._disk.sync_directory(folder)

    def _write_epochs(self, share: _Share, content: bytes) -> None:
        """Skip epochs from before a cut: recovery would believe them over the batches after it.

        A cut increments the generation before it waits for the lock to write.
        """
        if share.log.generation == share.generation:
            replace_file(self._disk, f"{share.log.directory}/{EPOCH_FILE}", content)

    def _finish(
        self, shares: list[_Share], error: OSError | None, elapsed_s: float, logs_s: list[float]
    ) -> None:
        served, self._served = self._served, {}
        self._times.observe_round(elapsed_s, logs_s, sum(share.appended_bytes for share in shares))
        for share in shares:
            share.lease.release()
        if error is not None:
            # After a failed sync the kernel may have dropped the data: fail the whole directory.
            self._on_failed(error)
        for share in shares:
            self._settle(share, served[share.log])
        self._start_round()

    def _settle(self, share: _Share, callers: Callers) -> None:
        log = share.log
        if log.failure is not None:
            _refuse(log, callers)
            return
        if log.generation == share.generation:
            log.durable_offset = max(log.durable_offset, share.upto)
        elif share.epochs is not None:
            log.epochs.dirty = True  # the round left them to the cut, which may not have written
        for upto, done in callers:
            if log.durable_offset >= upto:
                done(None)
            elif upto > log.log_end_offset:
                # Requested while the log was being cut: no round would ever reach it.
                done(OffsetOutOfRange(upto, log.log_start_offset, log.log_end_offset))
            else:
                # The log was cut meanwhile, or the request is newer than this round.
                self._waiting.setdefault(log, []).append((upto, done))


def _refuse(log: LocalLog, callers: Callers) -> None:
    assert log.failure is not None
    for _, done in callers:
        done(LogFenced(log.tp, log.failure))


def _count_dirty(log: LocalLog) -> int:
    """Bytes since the first append that is not durable; a truncation may have removed them."""
    if log.dirty_since_ms is None:
        return 0
    return max(0, log.appended_bytes - log.dirty_from_bytes)


def _folders_to_sync(log: LocalLog) -> tuple[str, ...]:
    """The log's folder, and its parent while the folder's name may not be on disk."""
    folders = (log.directory,) if log.names_changed else ()
    return (*folders, os.path.dirname(log.directory)) if log.is_folder_new else folders


def sync_path(disk: Disk, path: str) -> None:
    """Sync a file that may have been removed with its segment meanwhile."""
    try:
        descriptor = disk.open(path, APPEND)
    except FileNotFoundError:
        return
    try:
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
