"""Compaction: keeps only the latest record of every key (cleanup.policy=compact).

A job makes one pass over one log, off the owner thread, and visits the owner only to plan and to
install each new segment. Invariant: new segments replace old ones in offset order, so that a
tombstone or marker gets its delete horizon only after all that it deletes is gone. A segment may
end before the next one begins, or hold no batch at all; the recovery point on disk is beyond it, so
that recovery does not take the hole for a loss.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from functools import partial

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.io.disk import READ, Disk, read_file
from penstock.model.ids import NO_TIMESTAMP, Offset
from penstock.protocol.batch import BatchHeader, Buffer, CorruptBatch, read_header
from penstock.storage.compaction_filter import BatchFilter, LastBatch
from penstock.storage.compaction_output import CleanedSegment
from penstock.storage.compaction_plan import (
    NO_HORIZON_MS,
    CleanableSegment,
    IndexBytes,
    find_filthiest,
    group_segments,
    measure,
    sealed_segments,
)
from penstock.storage.compaction_throttle import CleanerThrottler
from penstock.storage.compaction_transactions import CleanedTransactionMetadata
from penstock.storage.engine import OnOwner
from penstock.storage.errors import CorruptRecords, MalformedTransactionIndex
from penstock.storage.log import SegmentedLog
from penstock.storage.offset_map import OffsetMap
from penstock.storage.scan import Scan
from penstock.storage.segment import Segment
from penstock.storage.sparse_index import OFFSET_INDEX, TIME_INDEX
from penstock.storage.swap import Swap
from penstock.storage.transaction_index import (
    AbortedTxn,
    collect_aborted,
    decode_entries,
)

__all__ = ["CleanerThrottler", "CompactionJob", "CompactionResult", "find_filthiest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The effect of one pass. `problem` says why it ended early, if it did."""

    first_dirty_offset: Offset
    cleaned_offset: Offset  # where the next pass begins
    bytes_before: int
    bytes_after: int
    problem: str | None = None


class _Overtaken(Exception):
    """The log was cut, deleted or fenced, so the plan of this pass is stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The log as it was when the pass began; the pass opens files by these names."""

    directory: str
    config: LogConfig
    generation: int
    first_dirty_offset: int
    end_offset: int
    sources: list[CleanableSegment]
    later_index_paths: list[str]  # transaction indexes of sealed segments after the sources
    active_aborted: list[AbortedTxn]
    producers: dict[int, LastBatch]
    held_offset: int  # the batch that ends here must stay, even without records; -1: none


@dataclass(slots=True)
class _Tally:
    cleaned_offset: int
    bytes_before: int = 0
    bytes_after: int = 0
    next_horizon_ms: int = NO_HORIZON_MS
    problem: str | None = None
    is_secured: bool = False  # recovery takes no hole that the pass leaves for a loss


class CompactionJob:
    """One pass over one log. Run it once."""

    def __init__(
        self,
        log: SegmentedLog,
        *,
        disk: Disk,
        storage: StorageConfig,
        now_ms: int,
        checkpoint: Callable[[OnOwner], Offset],
        throttle: CleanerThrottler | None = None,
        on_done: Callable[[CompactionResult], None] = lambda result: None,
    ) -> None:
        self.name = f"compaction of {log.tp}"
        self._log = log
        self._disk = disk
        self._storage = storage
        self._now_ms = now_ms
        self._checkpoint = checkpoint  # writes the log's recovery point; returns the one on disk
        self._throttle = throttle or CleanerThrottler(storage.cleaner_io_max_bytes_per_second)
        self._on_done = on_done

    def run(self, on_owner: OnOwner) -> None:
        plan = on_owner(self._begin)
        if plan is None:
            return
        tally = _Tally(plan.first_dirty_offset)
        try:
            self._clean(plan, tally, on_owner)
        except _Overtaken:
            tally.problem = "the log changed meanwhile; a later pass starts over"
        except (CorruptRecords, CorruptBatch, MalformedTransactionIndex) as error:
            tally.problem = f"{error}; no further pass before a restart"
            on_owner(partial(self._give_up, str(error)))
        except OSError as error:
            tally.problem = str(error)
            on_owner(partial(self._take_error, plan, error))
        finally:
            on_owner(partial(self._end, plan, tally))

    # -- on the owner thread ---------------------------------------------------------------

    def _begin(self) -> _Plan | None:
        log = self._log
        if log.failure is not None or log.is_compacting:
            return None
        cleanable = measure(log, self._now_ms)
        if not cleanable.segment_count:
            return None
        log.is_compacting = True
        sealed = sealed_segments(log)
        return _Plan(
            directory=log.directory,
            config=log.config,
            generation=log.generation,
            first_dirty_offset=cleanable.first_dirty_offset,
            end_offset=cleanable.end_offset,
            sources=sealed[: cleanable.segment_count],
            later_index_paths=[s.transaction_index_path for s in sealed[cleanable.segment_count :]],
            active_aborted=list(log.segments.active.transaction_index.entries),
            producers={
                entry.producer_id: LastBatch(entry.last_offset, entry.producer_epoch)
                for entry in log.producers.producers()
            },
            held_offset=_find_held_offset(log, cleanable.end_offset),
        )

    def _commit(self, plan: _Plan, run: list[Segment], swap: Swap) -> bool:
        log = self._log
        if not self._is_current(plan) or not log.segments.holds(run):
            return False
        try:
            swap.commit()
        except OSError as error:
            log.fail(error)
            raise _Overtaken from error
        log.undo_swap = swap.undo
        return True

    def _complete(self, run: list[Segment], swap: Swap, size: int) -> bool:
        """Install the new segment. False if a cut has undone the commit."""
        log = self._log
        if log.failure is not None:
            raise _Overtaken  # not undone: a restart finishes the swap
        if log.undo_swap is None:
            return False
        log.undo_swap = None
        try:
            swap.complete()
        except OSError as error:
            log.fail(error)
            raise _Overtaken from error
        new = log.segment_at(run[0].base_offset, run[-1].created_ms)
        new.size = size
        log.replace_run(run, new)
        return True

    def _is_current(self, plan: _Plan) -> bool:
        """Also called off the owner thread, to stop early: True may be stale there, False is
        final."""
        return self._log.failure is None and self._log.generation == plan.generation

    def _give_up(self, problem: str) -> None:
        self._log.uncleanable = problem

    def _take_error(self, plan: _Plan, error: OSError) -> None:
        """Fail the log, because the disk cannot be trusted any more.

        A full disk only ends the pass, and so does an error on files of a log that was cut or
        deleted meanwhile.
        """
        if self._is_current(plan) and error.errno not in (ENOSPC, EDQUOT):
            self._log.fail(error)

    def _end(self, plan: _Plan, tally: _Tally) -> None:
        log = self._log
        log.is_compacting = False
        if tally.problem is None and self._is_current(plan):
            log.cleaned_offset = Offset(tally.cleaned_offset)
            log.delete_horizon_ms = tally.next_horizon_ms
        self._on_done(
            CompactionResult(
                first_dirty_offset=Offset(plan.first_dirty_offset),
                cleaned_offset=log.cleaned_offset,
                bytes_before=tally.bytes_before,
                bytes_after=tally.bytes_after,
                problem=tally.problem,
            )
        )

    # -- off the owner thread --------------------------------------------------------------

    def _clean(self, plan: _Plan, tally: _Tally, on_owner: OnOwner) -> None:
        aborted = self._read_aborted(plan)
        keys = self._map_keys(plan, aborted)
        batch_filter = BatchFilter(
            latest=keys.latest,
            end_offset=keys.end_offset,
            transactions=CleanedTransactionMetadata(aborted),
            producers=plan.producers,
            held_offset=plan.held_offset,
            now_ms=self._now_ms,
            delete_retention_ms=plan.config.delete_retention_ms,
        )
        sources = [source for source in plan.sources if source.base_offset < keys.end_offset]
        index_bytes = [self._index_bytes(source) for source in sources]
        for group in group_segments(sources, index_bytes, plan.config):
            self._rewrite(plan, group, batch_filter, tally, on_owner)
        tally.cleaned_offset = keys.end_offset
        tally.next_horizon_ms = batch_filter.next_horizon_ms

    def _read_aborted(self, plan: _Plan) -> list[AbortedTxn]:
        """All that touch the sources, including those whose markers lie in later segments."""
        start, below = plan.sources[0].base_offset, plan.end_offset
        aborted: list[AbortedTxn] = []
        paths = [source.transaction_index_path for source in plan.sources]
        for path in (*paths, *plan.later_index_paths):
            content = read_file(self._disk, path)
            if content:
                part, is_complete = collect_aborted(decode_entries(content, path), start, below)
                aborted += part
                if is_complete:
                    return aborted
        return aborted + collect_aborted(plan.active_aborted, start, below)[0]

    def _map_keys(self, plan: _Plan, aborted: list[AbortedTxn]) -> OffsetMap:
        """A full map ends the pass at a batch boundary; the rest stays dirty for the next pass."""
        keys = OffsetMap(
            first_offset=plan.first_dirty_offset,
            transactions=CleanedTransactionMetadata(aborted),
            capacity_bytes=self._storage.cleaner_dedupe_buffer_bytes,
        )
        for source in plan.sources:
            if source.end_offset <= plan.first_dirty_offset:
                continue
            for _, header, content in self._scan(plan, source):
                if keys.is_full and header.last_offset >= plan.first_dirty_offset:
                    return keys
                keys.add(header, content)
            keys.end_offset = source.end_offset
        return keys

    def _scan(
        self, plan: _Plan, source: CleanableSegment
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        descriptor = self._disk.open(source.path, READ)
        try:
            yield from self._scan_open(plan, source, descriptor)
        finally:
            self._disk.close(descriptor)

    def _scan_open(
        self, plan: _Plan, source: CleanableSegment, descriptor: int
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Checks CRCs, because damage must neither count as a key nor get a new, valid CRC."""
        scan = Scan(self._disk, descriptor, end=source.size, check_crc=True)
        for scanned in scan:
            if not self._is_current(plan):
                raise _Overtaken
            self._throttle.spend(len(scanned[2]))
            yield scanned
        if scan.problem is not None:
            if not self._is_current(plan):
                raise _Overtaken
            raise CorruptRecords(
                f"{source.path}: {scan.problem} at position {scan.position}; "
                f"run `penstock log verify {plan.directory}`"
            )

    def _index_bytes(self, source: CleanableSegment) -> IndexBytes:
        stem = source.path.removesuffix(".log")
        sizes = [0, 0]
        for index, suffix in enumerate((OFFSET_INDEX.suffix, TIME_INDEX.suffix)):
            with suppress(FileNotFoundError):  # an index is a cache
                sizes[index] = self._disk.size_of(stem + suffix)
        return IndexBytes(*sizes)

    def _rewrite(
        self,
        plan: _Plan,
        group: list[CleanableSegment],
        batch_filter: BatchFilter,
        tally: _Tally,
        on_owner: OnOwner,
    ) -> None:
        """Rewrite one group into one new segment, and install it if anything changed."""
        swap = Swap(
            self._disk,
            plan.directory,
            base_offset=group[0].base_offset,
            old_base_offsets=[source.base_offset for source in group],
        )
        output = CleanedSegment(
            self._disk,
            swap,
            base_offset=group[0].base_offset,
            index_interval_bytes=plan.config.index_interval_bytes,
            buffer_bytes=max(1, self._storage.cleaner_io_buffer_bytes),
        )
        before = sum(source.size for source in group)
        try:
            has_changed = self._write(plan, group, batch_filter, output)
            aborted = batch_filter.take_aborted()
            if has_changed:
                self._secure(plan, tally, on_owner)
                output.finish(aborted)
        except BaseException:
            self._discard(swap)
            raise
        finally:
            output.close()
        tally.bytes_before += before
        tally.bytes_after += output.size
        if has_changed:
            self._swap(plan, [source.segment for source in group], swap, output.size, on_owner)

    def _write(
        self,
        plan: _Plan,
        group: Sequence[CleanableSegment],
        batch_filter: BatchFilter,
        output: CleanedSegment,
    ) -> bool:
        """False if the group is one segment that stays unchanged; then nothing was written."""
        has_changed = len(group) > 1
        for source in group:
            descriptor = self._disk.open(source.path, READ)
            try:
                for position, header, content in self._scan_open(plan, source, descriptor):
                    kept = batch_filter.apply(header, content)
                    if kept is not content and not has_changed:
                        has_changed = True
                        output.copy(descriptor, position)
                    if kept is not None:
                        self._put(output, header, content, kept, has_changed)
            finally:
                self._disk.close(descriptor)
        return has_changed

    def _secure(self, plan: _Plan, tally: _Tally, on_owner: OnOwner) -> None:
        """Prepare for holes between segments, before the first one appears.

        The recovery point on disk must cover the sources, and the folder must have the name of the
        active segment, because it may be all that tells where the log ends.
        """
        if tally.is_secured:
            return
        self._disk.sync_directory(plan.directory)
        if self._checkpoint(on_owner) < plan.end_offset:
            raise _Overtaken
        tally.is_secured = True

    def _put(
        self,
        output: CleanedSegment,
        header: BatchHeader,
        content: memoryview,
        kept: Buffer,
        is_written: bool,
    ) -> None:
        kept_header = header if kept is content else read_header(kept)
        # Kafka leaves a timestamp in batches that it empties; a look-up would find no record there.
        time = kept_header.max_timestamp if kept_header.record_count else NO_TIMESTAMP
        output.note(len(kept), header.last_offset, time)
        if is_written:
            output.write(kept)
            self._throttle.spend(len(kept))

    def _swap(
        self, plan: _Plan, run: list[Segment], swap: Swap, size: int, on_owner: OnOwner
    ) -> None:
        """Rename on the owner, so that no reader sees a new file with an old segment's size, and
        sync the folder off it. A cut between the two visits undoes the commit."""
        if not on_owner(lambda: self._commit(plan, run, swap)):
            self._discard(swap)
            raise _Overtaken
        self._sync_names(plan, on_owner)
        if not on_owner(lambda: self._complete(run, swap, size)):
            self._discard(swap)
            raise _Overtaken
        self._sync_names(plan, on_owner)
        swap.sweep()

    def _sync_names(self, plan: _Plan, on_owner: OnOwner) -> None:
        """After the commit a failed sync leaves both outcomes possible, so it fails the log."""
        try:
            self._disk.sync_directory(plan.directory)
        except OSError as failed:
            error = failed
            on_owner(lambda: self._log.failure or self._log.fail(error))
            raise _Overtaken from failed

    def _discard(self, swap: Swap) -> None:
        with suppress(OSError):  # the next start removes the rest
            swap.discard()


def _find_held_offset(log: SegmentedLog, end_offset: int) -> int:
    """The last offset of the part to clean, if nothing durable and stable follows it; else -1.

    A replica or consumer that reads the log from its start could otherwise never get to its end,
    which is the last stable offset for a consumer with isolation.level=read_committed, and may be
    right here on a topic with a delay.
    """
    if log.config.penstock_delay_ms:
        return end_offset - 1
    settled = min(log.high_watermark, log.durable_offset, log.last_stable_offset)
    return end_offset - 1 if settled <= end_offset else -1
