"""Compaction in a commit log: keeps only the latest record of every key (cleanup.policy=compact).

The rules of what stays are `compaction_filter`'s. A pass reads off the owner thread and visits it
to plan and to install each rewritten run of batches, in offset order, as one frame.
"""

from collections.abc import Generator, Iterable
from contextlib import closing
from functools import partial
from typing import NamedTuple

from penstock.config.log_config import StorageConfig
from penstock.config.setting import LONG_MAX
from penstock.io.disk import Buffer, Disk, read_fully
from penstock.model.ids import Offset
from penstock.protocol.batch import BatchHeader, CorruptBatch, is_crc_valid, read_header
from penstock.storage.commit_log.commit_log_directory import CommitLogDirectory
from penstock.storage.commit_log.consume_queue import QueueEntry
from penstock.storage.commit_log.frames import ENDED, FRAME_BYTES, FrameEnding, FrameKind
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.compaction_filter import BatchFilter, LastBatch
from penstock.storage.compaction_plan import Cleanable, is_due
from penstock.storage.compaction_throttle import CleanerThrottler
from penstock.storage.compaction_transactions import CleanedTransactionMetadata
from penstock.storage.engine import OnOwner
from penstock.storage.errors import CorruptRecords, LogFenced
from penstock.storage.handles import Lease
from penstock.storage.offset_map import OffsetMap
from penstock.storage.transaction_index import AbortedTxn

_ENTRIES_A_VISIT = 5_000
_RUN_BYTES = 1 << 18  # rewritten as one frame


_Files = dict[int, int]  # base -> descriptor


class _CleanedRun(NamedTuple):
    first: int  # offset after the previous run, so that the runs of passes cover one another
    entries: list[QueueEntry]
    kept: list[Buffer]


class _QueuePlan(NamedTuple):
    generation: int
    start_offset: int
    first_dirty_offset: int
    end_offset: int
    aborted: list[AbortedTxn]
    producers: dict[int, LastBatch]
    held_offset: int


class _Overtaken(Exception):
    """The log was cut, deleted or fenced, so the plan of this pass is stale."""


def find_due(logs: Iterable[CommitLogPartition], now_ms: int) -> CommitLogPartition | None:
    """The log with the largest share of dirty bytes among those that are due."""
    due: list[tuple[float, CommitLogPartition]] = []
    for log in logs:
        if not log.config.compact or log.failure is not None or log.uncleanable is not None:
            continue
        if log.is_compacting:
            continue
        if log.delete_horizon_ms is None:
            log.delete_horizon_ms = now_ms + log.config.delete_retention_ms
        cleanable = measure_queue(log, now_ms)
        if is_due(cleanable, log.config):
            due.append((cleanable.dirty_ratio, log))
    return max(due, key=lambda item: item[0])[1] if due else None


def measure_queue(log: CommitLogPartition, now_ms: int) -> Cleanable:
    """The part of the log that a pass would process, as if the log rolled like a segmented one."""
    queue = log.queue
    first_dirty = _first_dirty_offset(log)
    bound = min(log.last_stable_offset, log.high_watermark, log.durable_offset, log.segment_base)
    stop = queue.find(bound)
    uncompacted_ms = log.config.uncompacted_ms
    if uncompacted_ms:
        stop = max(queue.find(first_dirty), min(stop, queue.find_time(now_ms - uncompacted_ms + 1)))
    dirty = queue.find(first_dirty)
    end_offset = queue.entry(stop - 1).next_offset if stop > queue.first else first_dirty
    dirty_bytes = queue.measure(dirty, stop)
    total_bytes = log.size_bytes - queue.measure_anew(stop, queue.end)
    horizon_ms = log.delete_horizon_ms
    # A truncation may have cut the end of a transaction: what was clean is undecided again.
    is_decided = end_offset >= first_dirty
    return Cleanable(
        int(stop > queue.first and is_decided),
        first_dirty,
        max(end_offset, first_dirty),
        max(0, total_bytes - dirty_bytes),
        dirty_bytes,
        _is_overdue(log, dirty, stop, now_ms),
        horizon_ms is not None and horizon_ms <= now_ms,
    )


def _first_dirty_offset(log: CommitLogPartition) -> int:
    if log.log_start_offset <= log.cleaned_offset <= log.log_end_offset:
        return log.cleaned_offset
    return log.log_start_offset


def _is_overdue(log: CommitLogPartition, dirty: int, stop: int, now_ms: int) -> bool:
    """Whether a dirty record has waited longer than max.compaction.lag.ms (KIP-354)."""
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms == LONG_MAX or dirty >= stop:
        return False
    return 0 < log.queue.entry(dirty).time_ms < now_ms - lag_ms


class QueueCompactionJob:
    """One pass over one log. Run it once."""

    def __init__(
        self,
        log: CommitLogPartition,
        *,
        disk: Disk,
        storage: StorageConfig,
        now_ms: int,
        throttle: CleanerThrottler,
    ) -> None:
        self.name = f"compaction of {log.tp}"
        self._log = log
        self._disk = disk
        self._storage = storage
        self._now_ms = now_ms
        self._throttle = throttle
        self._has_installed = False
        directory = log.home
        assert isinstance(directory, CommitLogDirectory)
        self._directory = directory

    def run(self, on_owner: OnOwner) -> None:
        plan = on_owner(self._begin)
        if plan is None:
            return
        try:
            self._clean(plan, on_owner)
        except (_Overtaken, LogFenced):
            pass  # a later pass starts over
        except (CorruptRecords, CorruptBatch) as error:
            on_owner(partial(self._give_up, str(error)))
        except OSError as error:
            on_owner(partial(self._directory.fail, error))
        finally:
            if self._has_installed:
                self._sync(on_owner)
            on_owner(self._end)

    # -- on the owner thread ---------------------------------------------------------------

    def _begin(self) -> _QueuePlan | None:
        log = self._log
        if log.failure is not None or log.is_compacting:
            return None
        cleanable = measure_queue(log, self._now_ms)
        if not cleanable.segment_count:
            return None
        log.is_compacting = True
        last = log.queue.last()
        is_all = last is not None and last.next_offset <= cleanable.end_offset
        return _QueuePlan(
            log.generation,
            log.log_start_offset,
            cleanable.first_dirty_offset,
            cleanable.end_offset,
            list(log.aborted_txns),
            {
                entry.producer_id: LastBatch(entry.last_offset, entry.producer_epoch)
                for entry in log.producers.producers()
            },
            last.last_offset if is_all and last is not None else -1,
        )

    def _end(self) -> None:
        self._log.is_compacting = False

    def _give_up(self, problem: str) -> None:
        self._log.uncleanable = problem

    def _is_current(self, plan: _QueuePlan) -> bool:
        return self._log.failure is None and self._log.generation == plan.generation

    def _entries(self, plan: _QueuePlan, start: int, below: int) -> list[QueueEntry]:
        if not self._is_current(plan):
            raise _Overtaken
        queue = self._log.queue
        first = queue.find(max(start, self._log.log_start_offset))
        stop = min(queue.find(below), first + _ENTRIES_A_VISIT)
        return list(queue.entries(first, stop))

    def _install(self, plan: _QueuePlan, run: _CleanedRun) -> None:
        if not self._is_current(plan):
            raise _Overtaken
        log = self._log
        first, last = run.first, run.entries[-1].last_offset
        if run.entries[0].base_offset < log.log_start_offset:
            raise _Overtaken
        ending = FrameEnding(FrameKind.COMPACTED, log.number, first, last, log.home.commit_log.end)
        position = log.write_frame(FrameKind.COMPACTED, ending.encode() + b"".join(run.kept))
        log.home.note_ending(ending, position)
        located: list[tuple[int, BatchHeader]] = []
        at = 0
        for batch in run.kept:
            located.append((at, read_header(batch)))
            at += len(batch)
        self._has_installed = True
        log.replace_compacted(first, last, located, position + FRAME_BYTES + ENDED.size)

    def _finish(self, plan: _QueuePlan, cleaned_offset: int, next_horizon_ms: int) -> None:
        log = self._log
        if self._is_current(plan):
            log.cleaned_offset = Offset(cleaned_offset)
            log.delete_horizon_ms = next_horizon_ms
            log.is_changed = True

    # -- off the owner thread --------------------------------------------------------------

    def _clean(self, plan: _QueuePlan, on_owner: OnOwner) -> None:
        keys = self._map_keys(plan, on_owner)
        batch_filter = BatchFilter(
            latest=keys.latest,
            end_offset=keys.end_offset,
            transactions=CleanedTransactionMetadata(plan.aborted),
            producers=plan.producers,
            held_offset=plan.held_offset,
            now_ms=self._now_ms,
            delete_retention_ms=self._log.config.delete_retention_ms,
        )
        run = _CleanedRun(0, [], [])
        has_changed, size = False, 0
        # Closed at once after an error, because the end of a scan visits the owner.
        scan = self._scan(plan, plan.start_offset, keys.end_offset, on_owner)
        with closing(scan) as batches:
            for entry, header, content in batches:
                kept = batch_filter.apply(header, content)
                has_changed = has_changed or kept is not content
                run.entries.append(entry)
                if kept is not None:
                    run.kept.append(kept)
                size += entry.size
                if size >= _RUN_BYTES:
                    if has_changed:
                        on_owner(partial(self._install, plan, run))
                    run, has_changed, size = _CleanedRun(entry.next_offset, [], []), False, 0
        if has_changed:
            on_owner(partial(self._install, plan, run))
        on_owner(partial(self._finish, plan, keys.end_offset, batch_filter.next_horizon_ms))

    def _sync(self, on_owner: OnOwner) -> None:
        """What the pass has removed must not come back after tombstones that deleted it go."""
        flusher = self._directory.flusher
        share = on_owner(flusher.share)
        error: OSError | None = None
        try:
            flusher.sync(share)
        except OSError as problem:
            error = problem
        on_owner(partial(flusher.settle, share, error))

    def _map_keys(self, plan: _QueuePlan, on_owner: OnOwner) -> OffsetMap:
        """A full map ends the pass at a batch boundary; the rest stays dirty for the next pass."""
        keys = OffsetMap(
            first_offset=plan.first_dirty_offset,
            transactions=CleanedTransactionMetadata(plan.aborted),
            capacity_bytes=self._storage.cleaner_dedupe_buffer_bytes,
        )
        scan = self._scan(plan, plan.first_dirty_offset, plan.end_offset, on_owner)
        with closing(scan) as batches:
            for _, header, content in batches:
                if keys.is_full and header.last_offset >= plan.first_dirty_offset:
                    return keys
                keys.add(header, content)
        keys.end_offset = max(keys.end_offset, plan.end_offset)
        return keys

    def _scan(
        self, plan: _QueuePlan, start: int, below: int, on_owner: OnOwner
    ) -> Generator[tuple[QueueEntry, BatchHeader, memoryview], None, None]:
        """Checks CRCs, because damage must neither count as a key nor get a new, valid CRC."""
        while True:
            entries = on_owner(partial(self._entries, plan, start, below))
            if not entries:
                return
            # Not once per batch: a visit to a busy owner takes longer than reading one.
            descriptors, lease = on_owner(partial(self._lease, entries))
            try:
                for entry in entries:
                    if not self._is_current(plan):
                        raise _Overtaken
                    content = self._read(entry, descriptors)
                    self._throttle.spend(len(content))
                    yield entry, read_header(content), memoryview(content)
            finally:
                on_owner(lease.release)
            start = entries[-1].next_offset

    def _lease(self, entries: list[QueueEntry]) -> tuple[_Files, Lease]:
        """The files with these batches, by base."""
        find_file = self._log.home.commit_log.get_file
        files = {file.base: file for file in (find_file(entry.position) for entry in entries)}
        lease, descriptors = self._log.lease_files(list(files.values()))
        return dict(zip(files, descriptors, strict=True)), lease

    def _read(self, entry: QueueEntry, files: _Files) -> bytes:
        base = max(base for base in files if base <= entry.position)
        content = read_fully(self._disk, files[base], entry.size, entry.position - base)
        if len(content) < entry.size or not is_crc_valid(content, 0, len(content)):
            raise CorruptRecords(
                f"commit log file {base:020d}, position {entry.position - base}: the batch at "
                f"offset {entry.base_offset} of {self._log.tp} is damaged; run `penstock log "
                f"verify`"
            )
        return content
