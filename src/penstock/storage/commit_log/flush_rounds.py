"""Group commit of a commit log: a round syncs one file for all partitions, off the owner thread.

Requests that arrive during a round are served by the next one, as in `group_commit`.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import NamedTuple

from penstock.model.ids import Offset
from penstock.model.slices import Releasable
from penstock.storage.commit_log.commit_log import CommitLog
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.errors import LogFenced, OffsetOutOfRange
from penstock.storage.flush_times import FlushTimes
from penstock.storage.group_commit import Background, Callers, Done
from penstock.storage.handles import Handles


class FlushShare(NamedTuple):
    """What one round makes durable, collected on the owner thread."""

    end: int
    descriptors: tuple[int, ...]
    folder: str | None  # which has names that may not be durable
    files_made: int
    lease: Releasable
    logs: dict[CommitLogPartition, tuple[Offset, int]]  # end offset and generation
    size_bytes: int


class CommitLogFlusher:
    """Owned by the engine's owner thread; only `sync` runs elsewhere."""

    def __init__(
        self,
        commit_log: CommitLog,
        handles: Handles,
        background: Background,
        post: Callable[[Callable[[], None]], None],
        on_failed: Callable[[OSError], None],
        times: FlushTimes,
    ) -> None:
        self.dirty: dict[CommitLogPartition, None] = {}  # appended to since the last round
        self._commit_log = commit_log
        self._handles = handles
        self._background = background
        self._post = post
        self._on_failed = on_failed
        self._times = times
        self._waiting: dict[CommitLogPartition, Callers] = {}
        self._is_running = False
        # Rounds and jobs overlap: what one has taken, the next takes too, so that no caller waits
        # for a round that has nothing for it.
        self._unsettled: list[FlushShare] = []

    def request(self, log: CommitLogPartition, upto: Offset, done: Done) -> None:
        self._waiting.setdefault(log, []).append((upto, done))
        self._start_round()

    def cut(self, log: CommitLogPartition, end_offset: Offset) -> None:
        """The log is about to end here: callers that wait for later offsets get an error now."""
        callers = self._waiting.get(log, [])
        cut_off = [caller for caller in callers if caller[0] > end_offset]
        callers[:] = [caller for caller in callers if caller[0] <= end_offset]
        for upto, done in cut_off:
            done(OffsetOutOfRange(upto, log.log_start_offset, end_offset))

    def _start_round(self) -> None:
        while self._waiting and not self._is_running:
            try:
                share = self.share()
            except OSError as error:
                self._on_failed(error)
                self._settle_all()
                return
            self._is_running = True
            self._background.run(partial(self._sync, share))

    def share(self) -> FlushShare:
        """Everything that is not durable yet."""
        commit_log = self._commit_log
        files = list(commit_log.files_from(commit_log.durable_end))
        lease = self._handles.lease(*(file.handle for file in files))
        unsettled = (log for share in self._unsettled for log in share.logs)
        logs = {log: (log.log_end_offset, log.generation) for log in (*unsettled, *self.dirty)}
        self.dirty = {}
        for log in logs:
            log.dirty_since_ms = None
        # Also while another round is about to sync them: this one may end before it.
        is_named = commit_log.files_named == commit_log.files_made
        folder = None if is_named else commit_log.folder
        size_bytes = commit_log.written_end - commit_log.durable_end
        share = FlushShare(
            commit_log.written_end,
            tuple(self._handles.descriptor(file.handle) for file in files),
            folder,
            commit_log.files_made,
            lease,
            logs,
            size_bytes,
        )
        self._unsettled.append(share)
        return share

    def sync(self, share: FlushShare) -> None:
        self._commit_log.sync(share.descriptors, share.folder)

    def _sync(self, share: FlushShare) -> None:
        error: OSError | None = None
        began_s = perf_counter()
        try:
            self.sync(share)
        except OSError as problem:
            error = problem
        elapsed_s = perf_counter() - began_s
        self._post(partial(self._finish, share, error, elapsed_s))

    def _finish(self, share: FlushShare, error: OSError | None, elapsed_s: float) -> None:
        self._is_running = False
        self._times.observe_round(elapsed_s, [elapsed_s], share.size_bytes)
        self.settle(share, error)
        self._start_round()

    def settle(self, share: FlushShare, error: OSError | None) -> None:
        """The share is durable, or the directory has failed: the kernel may have dropped data."""
        share.lease.release()
        self._unsettled = [other for other in self._unsettled if other is not share]
        if error is not None:
            self._on_failed(error)
        else:
            commit_log = self._commit_log
            commit_log.durable_end = max(commit_log.durable_end, share.end)
            commit_log.files_named = max(commit_log.files_named, share.files_made)
            for log, (end_offset, generation) in share.logs.items():
                if log.generation == generation and log.failure is None:
                    log.durable_offset = max(log.durable_offset, end_offset)
        self._settle_all()

    def _settle_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for log, callers in waiting.items():
            self._settle_log(log, callers)

    def _settle_log(self, log: CommitLogPartition, callers: Callers) -> None:
        for upto, done in callers:
            if log.failure is not None:
                done(LogFenced(log.tp, log.failure))
            elif log.durable_offset >= upto:
                done(None)
            elif upto > log.log_end_offset:
                done(OffsetOutOfRange(upto, log.log_start_offset, log.log_end_offset))
            else:
                self._waiting.setdefault(log, []).append((upto, done))
