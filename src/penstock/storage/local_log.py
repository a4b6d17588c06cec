"""The segments, offsets and files of one partition's log, and how they change as a whole.

Rolls, truncates, restarts and removes segments; `SegmentedLog` adds appends and reads. When to
flush, delete or compact is decided elsewhere. One owner thread. Invariant: log_start_offset <=
high_watermark <= log_end_offset, and the segments cover the log from its start to its end, each
starting where the one before it ends, or later.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final
from zlib import crc32

from penstock.config.log_config import LogConfig
from penstock.io.disk import Disk
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.storage.errors import LogFenced, OffsetOutOfRange
from penstock.storage.handles import Handles
from penstock.storage.leader_epoch_cache import EPOCH_FILE, LeaderEpochCache, write_epochs
from penstock.storage.log_segments import LogSegments
from penstock.storage.producer_replay import replay
from penstock.storage.producer_snapshots import ProducerSnapshots
from penstock.storage.producer_state_manager import ProducerStateManager
from penstock.storage.segment import Segment
from penstock.storage.segment_removal import remove_files, set_files_aside

_NEVER: Final = 2**63 - 1


class LocalLog:
    """Owned by its engine's owner thread. Made empty; `recovery` or `start_at` fills it."""

    def __init__(
        self,
        *,
        disk: Disk,
        handles: Handles,
        directory: str,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        on_rolled: Callable[["LocalLog"], None],
        on_failed: Callable[[OSError], None],
        before_cut: Callable[["LocalLog", Offset, Offset], None],
        snapshot_names: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.tp = tp
        self.topic_id = topic_id
        self.log_start_offset = Offset(0)
        self.log_end_offset = Offset(0)
        self.high_watermark = Offset(0)  # moves back only with a truncation
        self.durable_offset = Offset(0)  # everything below survives a power cut
        self.dirty_since_ms: int | None = None  # the first append that is not durable yet
        self.dirty_from_bytes = 0  # `appended_bytes` before it; means nothing without one
        self.names_changed = False  # files were made or removed since the folder was last synced
        self.is_folder_new = False  # its name in the log directory may not have reached the disk
        self.unsynced_paths: set[str] = set()  # small files that the next flush syncs too
        self.writing_epochs = Lock()  # a flush writes them off the owner thread, a cut on it
        self.generation = 0  # counts cuts: a flush begun before one promises nothing after it
        self.cleaned_offset = Offset(0)  # compaction has processed everything below
        self.is_compacting = False  # segments are being replaced: retention waits
        self.uncleanable: str | None = None  # why compaction gave this log up until a restart
        self.delete_horizon_ms: int | None = None  # when a tombstone may be dropped; None: unknown
        # Takes back a swap of segments that is committed but not carried out: before every cut.
        self.undo_swap: Callable[[], None] | None = None
        self.failure: OSError | None = None  # the first write error; no append after it
        self.is_retired = False  # deleted or closed: its files are no longer its own
        self.segments = LogSegments()
        self.epochs = LeaderEpochCache()
        self.producers = ProducerStateManager(str(tp))
        self.snapshots = ProducerSnapshots(disk, directory, snapshot_names)
        self._disk = disk
        self._handles = handles
        self._write = disk.write  # bound once, as every append calls it
        self._on_rolled = on_rolled
        self._on_failed = on_failed
        # Called with the future end offset, and the offset below which records stay: no checkpoint
        # and no flush may promise more.
        self._before_cut = before_cut
        self._latest_epoch = -1  # of `epochs`, for the append path
        self._rolled_bytes = 0  # of segments that were sealed since the start
        self._roll_above_ms = _NEVER  # a batch later than this starts a new segment
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config
        if len(self.segments):
            self.segments.active.index_interval_bytes = config.index_interval_bytes
            self._plan_roll()

    # -- lifecycle -------------------------------------------------------------------------

    def start_at(self, offset: Offset, now_ms: int) -> None:
        """Create the first segment of an empty log."""
        self.segments.add(self._create_segment(offset, now_ms))
        self.log_start_offset = self.high_watermark = offset
        self.log_end_offset = self.durable_offset = self.cleaned_offset = offset
        self._plan_roll()

    def prepare_close(self) -> None:
        """Write what is only in memory, so that the next clean start need not read the log."""
        active = self.segments.active
        active.write_indexes()
        self.unsynced_paths.add(active.time_index.path)
        self.unsynced_paths.add(active.offset_index.path)
        if self.log_end_offset not in self.snapshots:
            self.take_snapshot()

    @property
    def appended_bytes(self) -> int:
        return self._rolled_bytes + self.segments.active.size

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self.segments)

    @property
    def needs_flush(self) -> bool:
        return bool(
            self.durable_offset < self.log_end_offset
            or self.names_changed
            or self.unsynced_paths
            or self.epochs.dirty
        )

    def retire(self, reason: OSError) -> None:
        """Stop serving the log: it takes nothing more, and no running flush writes for it."""
        self.failure = self.failure or reason
        self.is_retired = True
        with self.writing_epochs:
            self.generation += 1
        for segment in self.segments:
            segment.release()

    def fail(self, error: OSError) -> LogFenced:
        """Fence the log, because the state of its files is unknown after a failed write."""
        self.failure = error
        self._on_failed(error)
        return LogFenced(self.tp, error)

    def _fence(self, error: OSError, segment: Segment) -> LogFenced:
        self.failure = error
        # A torn batch after the end is harmless, as recovery cuts it; removing it is neater.
        with suppress(OSError):
            if segment.file.descriptor >= 0:
                self._disk.truncate(segment.file.descriptor, segment.size)
        self._on_failed(error)
        return LogFenced(self.tp, error)

    # -- segments --------------------------------------------------------------------------

    def segment_at(self, base_offset: int, now_ms: int) -> Segment:
        return Segment(
            self._disk,
            self._handles,
            self.directory,
            base_offset,
            created_ms=now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
            index_bytes=self.config.segment_index_bytes,
        )

    def _create_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = self.segment_at(base_offset, now_ms)
        segment.create()
        self.names_changed = True
        return segment

    def roll(self, now_ms: int) -> None:
        """Seal the active segment unless it is empty."""
        if self.failure is not None:
            raise LogFenced(self.tp, self.failure)
        if self.segments.active.size:
            self._roll(self.log_end_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        old = self.segments.active
        try:
            if old.size:
                old.seal()
                self._rolled_bytes += old.size
                self.unsynced_paths.update(old.index_paths)
                self.take_snapshot()
                self.segments.add(self._create_segment(base_offset, now_ms))
            else:
                self._remove(old)
                created = self._create_segment(base_offset, now_ms)
                self.segments.pop_last()
                self.segments.add(created)
        except OSError as error:
            raise self._fence(error, old) from error
        self._plan_roll()
        self._on_rolled(self)
        return self.segments.active

    def _plan_roll(self) -> None:
        """A segment spans at most segment.ms of record time, less its jitter."""
        active = self.segments.active
        if active.first_timestamp_ms is None:
            self._roll_above_ms = _NEVER
            return
        span_ms = self.config.segment_ms
        if self.config.compact:
            # Only sealed segments are compacted, so sealing may not take longer than allowed.
            span_ms = min(span_ms, self.config.max_compaction_lag_ms)
        jitter = min(self.config.segment_jitter_ms, span_ms)
        if jitter:
            # By name and offset, so that partitions created together do not roll together.
            jitter = crc32(f"{self.tp}:{active.base_offset}".encode()) % jitter
        self._roll_above_ms = active.first_timestamp_ms + span_ms - jitter

    def detach_first(self, count: int, now_ms: int) -> list[Segment]:
        """Take the oldest segments out of the log.

        The caller removes their files, which are renamed so that no later segment can reuse them.
        """
        if count == len(self.segments):
            self.roll(now_ms)
        detached = self.segments.pop_first(min(count, len(self.segments) - 1))
        for segment in detached:
            segment.release()
            set_files_aside(self._disk, segment)
        first = Offset(self.segments[0].base_offset)
        if first > self.log_start_offset:
            self.log_start_offset = first
            self.epochs.truncate_from_start(first)
        self.names_changed = self.names_changed or bool(detached)
        return detached

    def replace_run(self, run: list[Segment], new: Segment) -> None:
        """Compaction has rewritten these segments and renamed the files already."""
        self.segments.replace(run, new)
        for segment in run:
            segment.release()
        self.snapshots.drop(segment.base_offset for segment in run[1:])

    def _remove(self, segment: Segment) -> None:
        segment.release()
        remove_files(self._disk, segment)
        self.names_changed = True

    # -- producer snapshots ----------------------------------------------------------------

    def take_snapshot(self) -> None:
        self.snapshots.take(self.log_end_offset, self.producers.producers())

    def drop_old_snapshots(self) -> None:
        """Drop the snapshots below the first segment."""
        if not self.is_retired:
            self.snapshots.drop_below(self.segments[0].base_offset)

    def replay_producers(self, now_ms: int) -> None:
        """Rebuild producer state at the log's end: from the newest snapshot, then batch by batch.

        Expiration counts from now, because a live producer's last record may be old.
        """
        replay(self.producers, self.snapshots, self.segments, self.log_end_offset, now_ms)
        self.producers.map_end_offset = self.log_end_offset
        self.producers.on_high_watermark(self.high_watermark)

    # -- leader epochs ---------------------------------------------------------------------

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self._latest_epoch)

    def adopt_epochs(self, epochs: LeaderEpochCache) -> None:
        self.epochs = epochs
        self._latest_epoch = epochs.latest

    def write_epochs(self) -> None:
        """Write the checkpoint if it has changed, and right after every cut.

        Recovery believes the checkpoint over a batch, so it may not be older than the next batches.
        """
        if self.epochs.dirty:
            with self.writing_epochs:
                write_epochs(self._disk, f"{self.directory}/{EPOCH_FILE}", self.epochs.entries)
            self.epochs.dirty = False

    # -- cuts ------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset, now_ms: int) -> None:
        """Drop everything from `offset` on, and the batch that holds it."""
        if offset >= self.log_end_offset:
            self._changing(self._drop_empty_epochs)
        elif offset < self.log_start_offset:
            self.restart_at(offset, now_ms)
        else:
            self._changing(lambda: self._truncate(offset, now_ms))

    def restart_at(self, offset: Offset, now_ms: int) -> None:
        """Delete everything and continue, empty, at `offset`."""
        if offset < 0:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        self._changing(lambda: self._restart(offset, now_ms))

    def _changing(self, change: Callable[[], None]) -> None:
        if self.failure is not None:
            raise LogFenced(self.tp, self.failure)
        undo, self.undo_swap = self.undo_swap, None
        try:
            if undo is not None:
                undo()
            change()
        except OSError as error:
            raise self.fail(error) from error

    def _drop_empty_epochs(self) -> None:
        """Drop an epoch that this log began as leader without appending a batch.

        It must not contradict the epochs of the leader that it follows now.
        """
        if self.epochs.entries and self.epochs.entries[-1].start_offset >= self.log_end_offset:
            self.generation += 1
            self.epochs.truncate_from_end(self.log_end_offset)
            self._latest_epoch = self.epochs.latest
            self.write_epochs()

    def _truncate(self, offset: Offset, now_ms: int) -> None:
        index = self.segments.index_of(offset)
        segment = self.segments[index]
        batch = segment.find_batch(offset)
        position = segment.size if batch is None else batch.position
        end_offset = segment.find_end_offset(position)
        if not self.log_start_offset <= end_offset <= offset:
            # Only deleted records are left, or an empty segment that begins too late.
            self._restart(self.log_start_offset, now_ms)
            return
        self.prepare_cut(end_offset)
        self._remove_from(index + 1)
        if position < segment.size:
            segment.cut(position, end_offset)
        elif not segment.is_active:
            segment.resume(segment.size)
        # Synced with the next batches, because recovery compares the two.
        self.unsynced_paths.update(segment.index_paths)
        self.settle_end(end_offset)
        self.write_epochs()
        self.replay_producers(now_ms)

    def _remove_from(self, index: int) -> None:
        """Remove the segments from `index` on, newest first and durably.

        A crash in between leaves a shorter log, not one with a hole; without the sync a power cut
        could put them after what is appended next.
        """
        if index < len(self.segments):
            while len(self.segments) > index:
                self._remove(self.segments.pop_last())
            self._disk.sync_directory(self.directory)

    def prepare_cut(self, offset: Offset) -> None:
        """Announce that the log is about to end here, or earlier in the segment."""
        self._before_cut(self, offset, offset)

    def settle_end(self, end_offset: Offset) -> None:
        """End the log here: nothing may point past it, and no epoch may begin there whose batches
        are gone."""
        self._move_end(end_offset)
        self.epochs.truncate_from_end(end_offset)
        self._latest_epoch = self.epochs.latest

    def resume_end(self, end_offset: Offset) -> None:
        """End the log where it was closed. An epoch that began without a batch stays, because
        rewriting a file for each empty log made a start with 10,000 of them take 18 s."""
        self._move_end(end_offset)
        self.epochs.truncate_from_end(end_offset + 1)
        self._latest_epoch = self.epochs.latest

    def _move_end(self, end_offset: Offset) -> None:
        self.generation += 1
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.durable_offset = min(self.durable_offset, end_offset)
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        self.snapshots.drop_above(end_offset)
        self._plan_roll()

    def _restart(self, offset: Offset, now_ms: int) -> None:
        self._before_cut(self, offset, min(offset, self.log_start_offset))
        self._remove_from(0)
        self.generation += 1
        self.snapshots.drop_above(-1)
        self.epochs.clear()
        self.write_epochs()
        self._latest_epoch = -1
        self.producers.clear()
        self.start_at(offset, now_ms)
        self.dirty_since_ms = None
