"""Group commit: one flusher per log directory makes many logs durable in one round, off the owner.

While a round runs, requests gather for the next, so that a slow disk makes rounds larger instead of
queues longer. A log waits at most once, whatever the number of its callers.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from penstock.io.disk import APPEND, Disk, replace_file
from penstock.model.ids import Offset
from penstock.model.slices import Releasable
from penstock.storage.errors import LogFenced, OffsetOutOfRange, StorageError
from penstock.storage.handles import Handles
from penstock.storage.leader_epoch_cache import EPOCH_FILE, encode_epochs
from penstock.storage.log import SegmentedLog

Item = TypeVar("Item")
Done = Callable[[StorageError | None], None]
Callers = list[tuple[Offset, Done]]
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
        # A round holds a file of each: some of those that may be open are left to readers.
        self._logs_a_round = max(1, min(MAX_LOGS_A_ROUND, handles.descriptor_capacity // 2))
        self._waiting: dict[SegmentedLog, Callers] = {}
        self._served: dict[SegmentedLog, Callers] = {}  # by the round that is running

    def request(self, log: SegmentedLog, upto: Offset, done: Done) -> None:
        self._waiting.setdefault(log, []).append((upto, done))
        self._start_round()

    def flush_all(self, logs: Iterable[SegmentedLog]) -> None:
        """For closing: everything in as few rounds as the descriptors allow."""
        for log in logs:
            self._waiting.setdefault(log, [])
        self._start_round()

    def cut(self, log: SegmentedLog, end_offset: Offset) -> None:
        """The log is about to end here: who waits for more than that waits in vain."""
        for callers in (self._waiting.get(log, []), self._served.get(log, [])):
            lost = [caller for caller in callers if caller[0] > end_offset]
            callers[:] = [caller for caller in callers if caller[0] <= end_offset]
            for upto, done in lost:
                done(OffsetOutOfRange(upto, log.log_start_offset, end_offset))

    def _start_round(self) -> None:
        """Unless one is running, which starts the next when it ends."""
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
        """Logs that were deleted or fenced while they waited take no part."""
        for share in [share for share in shares if share.log.failure is not None]:
            share.lease.release()
            shares.remove(share)
        for log in [log for log in self._served if log.failure is not None]:
            _refuse(log, self._served.pop(log))

    def _share(self, log: SegmentedLog) -> _Share:
        dirty = log.segments.starting_from(log.durable_offset)
        epochs = encode_epochs(log.epochs.entries) if log.epochs.dirty else None
        log.epochs.dirty = False
        folders = _folders_to_sync(log)
        log.names_changed = log.is_folder_new = False
        paths = [path for segment in dirty if not segment.is_active for path in segment.index_paths]
        paths += [log.segments.active.transaction_index.path, *log.unsynced_paths]
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

    def _sync(self, shares: list[_Share]) -> None:
        error: OSError | None = None
        try:
            self._background.each(self._sync_share, shares)
        except OSError as problem:
            error = problem
        self._post(partial(self._finish, shares, error))

    def _sync_share(self, share: _Share) -> None:
        for descriptor in share.descriptors:
            self._disk.sync(descriptor)
        for path in share.paths:
            sync_path(self._disk, path)
        try:
            self._sync_names(share)
        except FileNotFoundError:
            if share.log.failure is None:
                raise  # not deleted: its folder has vanished

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

    def _finish(self, shares: list[_Share], error: OSError | None) -> None:
        served, self._served = self._served, {}
        for share in shares:
            share.lease.release()
        if error is not None:
            # After a failed sync the kernel may have dropped the data: nothing here is sure now.
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
            log.epochs.dirty = True  # the round left them to the cut, which may not have
        for upto, done in callers:
            if log.durable_offset >= upto:
                done(None)
            elif upto > log.log_end_offset:
                # Asked for while the log was being cut: no round would ever come to it.
                done(OffsetOutOfRange(upto, log.log_start_offset, log.log_end_offset))
            else:
                # The log was cut meanwhile, or more was appended than this round saw.
                self._waiting.setdefault(log, []).append((upto, done))


def _refuse(log: SegmentedLog, callers: Callers) -> None:
    assert log.failure is not None
    for _, done in callers:
        done(LogFenced(log.tp, log.failure))


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
