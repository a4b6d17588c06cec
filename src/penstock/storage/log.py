"""The log of one partition: segments in offset order, the last one active.

Appends, reads and cuts; when to flush, delete or compact is decided elsewhere. One owner thread.
Invariant: log_start_offset <= high_watermark <= log_end_offset, and the segments cover the log
from its start to its end, each beginning where the one before it ends, or later.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct
from threading import Lock
from zlib import crc32

from penstock.config.log_config import LogConfig
from penstock.io.disk import Disk, write_fully
from penstock.model.ids import (
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicId,
    TopicPartition,
)
from penstock.model.slices import FileSlice
from penstock.model.values import new_tuple
from penstock.protocol.batch import (
    BatchHeader,
)
from penstock.storage.engine import (
    AppendOrigin,
    LogAppendInfo,
    LogStatistics,
    Read,
    TimestampAndOffset,
)
from penstock.storage.errors import (
    LogFenced,
    OffsetOutOfRange,
    UnknownPartition,
)
from penstock.storage.handles import Handles
from penstock.storage.leader_epoch_cache import (
    EPOCH_FILE,
    EpochEndOffset,
    LeaderEpochCache,
    write_epochs,
)
from penstock.storage.log_segments import LogSegments
from penstock.storage.log_validator import (
    check_times,
    is_plain,
    prepare,
    read_continuation,
    read_incoming,
)
from penstock.storage.producer_replay import apply_batch, check_batch, replay
from penstock.storage.producer_snapshots import ProducerSnapshots
from penstock.storage.producer_state_manager import ProducerStateManager
from penstock.storage.segment import MAX_RELATIVE_OFFSET, Segment
from penstock.storage.segment_removal import remove_files, set_files_aside
from penstock.storage.timestamp_lookup import find_by_time, find_max_timestamp
from penstock.storage.transaction_index import AbortedTxn, collect_aborted

_NEVER = 2**63 - 1
# The first fields of a batch, outside its CRC: base offset and leader epoch are the leader's to
# give, and writing the length between them again makes it one call.
_PLACE = Struct(">qii")


class SegmentedLog:
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
        on_rolled: Callable[["SegmentedLog"], None],
        on_failed: Callable[["SegmentedLog", OSError], None],
        before_cut: Callable[["SegmentedLog", Offset, Offset], None],
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
        self.names_changed = False  # files were made or removed since the folder was last synced
        self.is_folder_new = False  # its name in the log directory may not have reached the disk
        self.unsynced_paths: set[str] = set()  # small files that the next flush takes along
        self.writing_epochs = Lock()  # a flush does so off the owner, a cut on it
        self.generation = 0  # counts cuts: a flush begun before one promises nothing after it
        self.cleaned_offset = Offset(0)  # compaction has seen everything below
        self.is_compacting = False  # segments are being replaced: retention waits
        self.uncleanable: str | None = None  # why compaction gave this log up until a restart
        self.delete_horizon_ms: int | None = None  # when a tombstone may go; None: not known
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
        self._write = disk.write
        self._on_rolled = on_rolled
        self._on_failed = on_failed
        # Told where the log will end, and below which offset its records stay: no checkpoint and
        # no flush may promise more.
        self._before_cut = before_cut
        self._latest_epoch = -1  # of `epochs`, for the append path
        self._roll_above_ms = _NEVER  # a batch later than this starts a new segment
        # Offset, segment, position and generation of where the last read ended.
        self._read_end: tuple[int, Segment | None, int, int] = (-1, None, 0, 0)
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config
        self._is_plain = is_plain(config)
        self.flush_messages = config.flush_messages
        self._max_append_bytes = min(config.max_message_bytes, config.segment_bytes)
        if len(self.segments):
            self.segments.active.index_interval_bytes = config.index_interval_bytes
            self._plan_roll()

    @property
    def name(self) -> str:
        return str(self.tp)

    # -- appending -------------------------------------------------------------------------

    def append_as_leader(
        self, batches: memoryview, leader_epoch: int, origin: AppendOrigin, now_ms: int
    ) -> LogAppendInfo:
        """Store one batch at the end, stamped with its offset and epoch in place."""
        if self.failure is not None:
            raise LogFenced(self.tp, self.failure)
        header = read_incoming(batches, origin, self.tp)
        config = self.config
        append_time_ms = NO_TIMESTAMP
        if not self._is_plain or header[9] >= 0 or len(batches) > self._max_append_bytes:
            known = BatchHeader._make(header)
            batches, known = prepare(
                batches, known, config, now_ms=now_ms, origin=origin, tp=self.tp
            )
            stored = self._find_stored(known, batches) if known.producer_id >= 0 else None
            if stored is not None:
                return stored
            if config.message_timestamp_type == "LogAppendTime":
                append_time_ms = TimestampMs(now_ms)
            header = known
        elif header[8] > now_ms + config.message_timestamp_after_max_ms:
            check_times(BatchHeader._make(header), config, now_ms, self.tp)
        size = len(batches)
        base_offset = self.log_end_offset
        last_offset = base_offset + header[6]
        _PLACE.pack_into(batches, 0, base_offset, header[1], leader_epoch)
        if leader_epoch != self._latest_epoch:
            self.begin_epoch(LeaderEpoch(leader_epoch))
        segment = self.segments.active
        if (
            size > config.segment_bytes - segment.size
            or header[8] > self._roll_above_ms
            or segment.is_index_full
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            segment = self._roll(base_offset, now_ms)
        self._store(segment, batches, size, last_offset, header[8], now_ms)
        if header[9] >= 0:
            known = BatchHeader._make(header)._replace(base_offset=base_offset)
            self._follow(segment, known, batches, now_ms)
        return new_tuple(LogAppendInfo, (base_offset, self.log_end_offset, append_time_ms, False))

    def append_as_follower(self, batches: memoryview, now_ms: int) -> LogAppendInfo:
        """Store the leader's batches unchanged; a partial one at the end is left out."""
        if self.failure is not None:
            raise LogFenced(self.tp, self.failure)
        found = read_continuation(batches, self.log_end_offset, self.tp)
        first = Offset(found[0][1].base_offset)
        for position, header in found:
            content = batches[position : position + header.size]
            segment = self._segment_for(header, now_ms)
            last_offset, max_timestamp = header.last_offset, header.max_timestamp
            self._store(segment, content, header.size, last_offset, max_timestamp, now_ms)
            self.follow_epoch(header)
            if header.producer_id >= 0:
                self._follow(segment, header, content, now_ms)
        return LogAppendInfo(first, self.log_end_offset, NO_TIMESTAMP, False)

    def _segment_for(self, header: BatchHeader, now_ms: int) -> Segment:
        segment = self.segments.active
        if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            # At the log's end if possible: recovery takes a hole between segments for a loss.
            if header.last_offset - self.log_end_offset <= MAX_RELATIVE_OFFSET:
                return self._roll(self.log_end_offset, now_ms)
            self._sync_files(segment)  # so that this hole is never one that a power cut left
            return self._roll(header.base_offset, now_ms)
        if (
            header.size > self.config.segment_bytes - segment.size
            or header.max_timestamp > self._roll_above_ms
            or segment.is_index_full
        ):
            return self._roll(self.log_end_offset, now_ms)
        return segment

    def _sync_files(self, active: Segment) -> None:
        try:
            for segment in self.segments.starting_from(self.durable_offset):
                self._disk.sync(self._handles.descriptor(segment.file))
        except OSError as error:
            raise self._fence(error, active) from error

    def _store(
        self,
        segment: Segment,
        content: memoryview,
        size: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
    ) -> None:
        """Write at the end of the file, or fence the log: after a failed write nothing is sure."""
        file, position = segment.file, segment.size
        file.touched = True
        try:
            descriptor = file.descriptor
            if descriptor < 0:
                descriptor = self._handles.descriptor(file)
            written = self._write(descriptor, content)
            if written != size:
                write_fully(self._disk, descriptor, content[written:])
        except OSError as error:
            raise self._fence(error, segment) from error
        if self.dirty_since_ms is None:
            self.dirty_since_ms = now_ms
        segment.note_batch(position, size, last_offset, max_timestamp)
        self.log_end_offset = Offset(last_offset + 1)
        if position == 0:
            self._plan_roll()

    def _fence(self, error: OSError, segment: Segment) -> LogFenced:
        self.failure = error
        # A torn batch behind the end is harmless, as recovery cuts it; taking it back is neater.
        with suppress(OSError):
            if segment.file.descriptor >= 0:
                self._disk.truncate(segment.file.descriptor, segment.size)
        self._on_failed(self, error)
        return LogFenced(self.tp, error)

    # -- producers and epochs --------------------------------------------------------------

    def _find_stored(self, header: BatchHeader, batches: memoryview) -> LogAppendInfo | None:
        """Where the batch is stored already, or None if it may be appended; raises otherwise."""
        stored = check_batch(self.producers, header, batches, self.tp)
        if stored is None:
            return None
        is_stamped = self.config.message_timestamp_type == "LogAppendTime"
        append_time_ms = stored.timestamp_ms if is_stamped else NO_TIMESTAMP
        return LogAppendInfo(
            stored.base_offset, Offset(stored.last_offset + 1), append_time_ms, True
        )

    def _follow(
        self, segment: Segment, header: BatchHeader, content: memoryview, now_ms: int
    ) -> None:
        """Producer state learns of a stored batch; an abort enters the transaction index."""
        aborted = apply_batch(self.producers, header, content, now_ms)
        if aborted is None:
            return
        if not segment.transaction_index.entries:
            self.names_changed = True  # the index is made with its first entry
        try:
            segment.transaction_index.append(aborted)
        except OSError as error:
            raise self.fail(error) from error

    def follow_epoch(self, header: BatchHeader) -> None:
        if header.leader_epoch > self._latest_epoch:
            self.epochs.assign(header.leader_epoch, header.base_offset)
            self._latest_epoch = header.leader_epoch

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """From here on batches carry `epoch`, known even before the first of them (KAFKA-7415)."""
        assert epoch >= self._latest_epoch, f"{self.tp}: epoch {epoch} is a former leader's"
        self.epochs.assign(epoch, self.log_end_offset)
        self._latest_epoch = epoch

    def adopt_epochs(self, epochs: LeaderEpochCache) -> None:
        self.epochs = epochs
        self._latest_epoch = epochs.latest

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self._latest_epoch)

    def find_epoch_end(self, epoch: LeaderEpoch) -> EpochEndOffset | None:
        return self.epochs.find_end_offset(epoch, self.log_end_offset)

    # -- reading ---------------------------------------------------------------------------

    def read(self, start: Offset, *, below: Offset, max_bytes: int, at_least_one: bool) -> Read:
        """Whole batches from the one that holds `start`, all of whose offsets are below `below`."""
        if self.is_retired:
            raise UnknownPartition(self.tp)
        if not self.log_start_offset <= start <= self.log_end_offset:
            raise OffsetOutOfRange(start, self.log_start_offset, self.log_end_offset)
        read = None
        # Of a fetch over many logs, what there are no descriptors for comes with the next one.
        if start < below and (at_least_one or self._handles.has_room):
            if self._read_end[0] == start:
                read = self._go_on_reading(start, below, max_bytes)
            if read is None:
                read = self._find_and_read(
                    start, min(below, self.log_end_offset), max_bytes, at_least_one
                )
        return Read((), start, self._handles.lease()) if read is None else read

    def _find_and_read(
        self, start: int, below: int, max_bytes: int, at_least_one: bool
    ) -> Read | None:
        segments = self.segments
        for place in range(segments.index_of(start), len(segments)):
            segment = segments[place]
            placed = segment.find_batch(start)
            if placed is None:
                continue
            if placed.header.last_offset >= below:
                return None
            limit = placed.position + max_bytes
            if placed.end_position > limit:
                if not at_least_one:
                    return None
                limit = placed.end_position
            if below < segments.end_offset_of(place, self.log_end_offset):
                limit = min(limit, self._position_of(segment, below))
            end, end_offset = segment.find_whole_end(placed.position, limit)
            if end_offset is None:
                end_offset = segments.end_offset_of(place, self.log_end_offset)
            return self._slice(segment, placed.position, end, end_offset)
        return None

    def _go_on_reading(self, start: int, below: int, max_bytes: int) -> Read | None:
        """From where the last read ended, as a consumer does: without a look-up, and at the log's
        end without a look into the file. None where that is not known to be right any more."""
        _, segment, position, generation = self._read_end
        place = self.segments.index_of(start)
        if segment is not self.segments[place] or generation != self.generation:
            return None  # rolled, replaced, removed or cut since
        segment_end_offset = self.segments.end_offset_of(place, self.log_end_offset)
        if below < segment_end_offset or position >= segment.size:
            return None
        end, end_offset = segment.find_whole_end(position, position + max_bytes)
        if end == position:
            return None
        if end_offset is None:
            end_offset = segment_end_offset
        return self._slice(segment, position, end, end_offset)

    def _position_of(self, segment: Segment, offset: int) -> int:
        placed = segment.find_batch(offset)
        return segment.size if placed is None else placed.position

    def _slice(self, segment: Segment, start: int, end: int, end_offset: int) -> Read:
        descriptor = self._handles.descriptor(segment.file)
        lease = self._handles.lease(segment.file)
        self._read_end = end_offset, segment, end, self.generation
        return Read((FileSlice(descriptor, start, end - start),), Offset(end_offset), lease)

    def find_by_time(self, timestamp_ms: TimestampMs) -> TimestampAndOffset | None:
        return find_by_time(
            self.segments, timestamp_ms, start=self.log_start_offset, end=self.log_end_offset
        )

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        return find_max_timestamp(
            self.segments, start=self.log_start_offset, end=self.log_end_offset
        )

    def aborted(self, start: Offset, below: Offset) -> Sequence[AbortedTxn]:
        """Aborted transactions that touch [start, below): a read_committed reader skips them."""
        found: list[AbortedTxn] = []
        for segment in self.segments.starting_from(start):
            part, complete = collect_aborted(segment.transaction_index.entries, start, below)
            found += part
            if complete:
                break
        return found

    # -- watermarks ------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> Offset:
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def advance_high_watermark(self, offset: Offset) -> None:
        """Never back, never past the end: a follower may hear of more than it has."""
        end_offset = self.log_end_offset
        reached = min(end_offset, offset)
        if reached > self.high_watermark:
            self.high_watermark = reached
            self.producers.on_high_watermark(reached)

    def delete_before(self, offset: Offset) -> None:
        """Records below are gone for readers; their segments go with the next retention."""
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    # -- shape -----------------------------------------------------------------------------

    def start_at(self, offset: Offset, now_ms: int) -> None:
        """Make the first segment of an empty log."""
        self.segments.add(self._create_segment(offset, now_ms))
        self.log_start_offset = self.high_watermark = offset
        self.log_end_offset = self.durable_offset = self.cleaned_offset = offset
        self._plan_roll()

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

    def take_snapshot(self) -> None:
        self.snapshots.take(self.log_end_offset, self.producers.producers())

    def prepare_close(self) -> None:
        """Write what only memory knows, so that the next clean start need not read the log."""
        active = self.segments.active
        active.write_indexes()
        self.unsynced_paths.add(active.time_index.path)
        self.unsynced_paths.add(active.offset_index.path)
        if self.log_end_offset not in self.snapshots:
            self.take_snapshot()

    @property
    def needs_flush(self) -> bool:
        return bool(
            self.durable_offset < self.log_end_offset
            or self.names_changed
            or self.unsynced_paths
            or self.epochs.dirty
        )

    def drop_old_snapshots(self) -> None:
        """Those that no segment is left to need."""
        if self.is_retired:
            return
        self.snapshots.drop_below(self.segments[0].base_offset)

    def _create_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = self.segment_at(base_offset, now_ms)
        segment.create()
        self.names_changed = True
        return segment

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

    def _plan_roll(self) -> None:
        """A segment spans at most segment.ms of record time, less a jitter of its own."""
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
            # By name and offset, so that partitions made together do not roll together.
            jitter = crc32(f"{self.tp}:{active.base_offset}".encode()) % jitter
        self._roll_above_ms = active.first_timestamp_ms + span_ms - jitter

    def truncate_to(self, offset: Offset, now_ms: int) -> None:
        """Drop everything from `offset` on, and the batch that holds it."""
        if offset >= self.log_end_offset:
            self._changing(self._forget_empty_epochs)
        elif offset < self.log_start_offset:
            self.restart_at(offset, now_ms)
        else:
            self._changing(lambda: self._truncate(offset, now_ms))

    def _forget_empty_epochs(self) -> None:
        """An epoch that this log began as leader, without a batch of it, must not stand against
        the epochs of the leader that it follows now."""
        if self.epochs.entries and self.epochs.entries[-1].start_offset >= self.log_end_offset:
            self.generation += 1
            self.epochs.truncate_from_end(self.log_end_offset)
            self._latest_epoch = self.epochs.latest
            self.write_epochs()

    def _truncate(self, offset: Offset, now_ms: int) -> None:
        place = self.segments.index_of(offset)
        segment = self.segments[place]
        placed = segment.find_batch(offset)
        position = segment.size if placed is None else placed.position
        end_offset = segment.find_end_offset(position)
        if not self.log_start_offset <= end_offset <= offset:
            # Nothing is left but what was deleted, or an empty segment that begins too late.
            self._restart(self.log_start_offset, now_ms)
            return
        self.prepare_cut(end_offset)
        self._remove_from(place + 1)
        if position < segment.size:
            segment.cut(position, end_offset)
        elif not segment.is_active:
            segment.resume(segment.size)
        # With the batches that come next: recovery compares the two.
        self.unsynced_paths.update(segment.index_paths)
        self.settle_end(end_offset)
        self.write_epochs()
        self.replay_producers(now_ms)

    def _remove_from(self, place: int) -> None:
        """Newest first: a crash on the way leaves a shorter log, not one with a hole. Durably, or
        a power cut could put them behind what is appended next."""
        if place < len(self.segments):
            while len(self.segments) > place:
                self._remove(self.segments.pop_last())
            self._disk.sync_directory(self.directory)

    def prepare_cut(self, offset: Offset) -> None:
        """The log is about to end here, or earlier in the segment."""
        self._before_cut(self, offset, offset)

    def write_epochs(self) -> None:
        """At once after a cut: recovery takes the checkpoint's word against a batch's, so it may
        not be older than the batches that come next."""
        if self.epochs.dirty:
            with self.writing_epochs:
                write_epochs(self._disk, f"{self.directory}/{EPOCH_FILE}", self.epochs.entries)
            self.epochs.dirty = False

    def settle_end(self, end_offset: Offset) -> None:
        """The log ends here now: nothing may point past it, nor may an epoch begin there whose
        batches are gone."""
        self._move_end(end_offset)
        self.epochs.truncate_from_end(end_offset)
        self._latest_epoch = self.epochs.latest

    def resume_end(self, end_offset: Offset) -> None:
        """The log ended here when it was closed. An epoch that had begun without a batch stays:
        writing a file anew for each empty log made a start with 10,000 of them take 18 s."""
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

    def restart_at(self, offset: Offset, now_ms: int) -> None:
        """Give up everything and go on, empty, at `offset`."""
        if offset < 0:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        self._changing(lambda: self._restart(offset, now_ms))

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

    def retire(self, reason: OSError) -> None:
        """The log is no longer served: take nothing, and let no flush under way write for it."""
        self.failure = self.failure or reason
        self.is_retired = True
        with self.writing_epochs:
            self.generation += 1
        for segment in self.segments:
            segment.release()

    def detach_first(self, count: int, now_ms: int) -> list[Segment]:
        """Take the oldest segments out of the log; whoever takes them removes their files, which
        have names by now that no later segment of the log can get."""
        if count == len(self.segments):
            self.roll(now_ms)
        gone = self.segments.pop_first(min(count, len(self.segments) - 1))
        for segment in gone:
            segment.release()
            set_files_aside(self._disk, segment)
        first = Offset(self.segments[0].base_offset)
        if first > self.log_start_offset:
            self.log_start_offset = first
            self.epochs.truncate_from_start(first)
        self.names_changed = self.names_changed or bool(gone)
        return gone

    def _remove(self, segment: Segment) -> None:
        segment.release()
        remove_files(self._disk, segment)
        self.names_changed = True

    def replace_run(self, run: list[Segment], new: Segment) -> None:
        """Compaction rewrote these segments and has renamed the files already."""
        self.segments.replace(run, new)
        for segment in run:
            segment.release()
        self.snapshots.drop(segment.base_offset for segment in run[1:])

    def fail(self, error: OSError) -> LogFenced:
        """Nothing is sure about this log's files any more: take no writes."""
        self.failure = error
        self._on_failed(self, error)
        return LogFenced(self.tp, error)

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

    def replay_producers(self, now_ms: int) -> None:
        """Producer state as of the log's end: from the newest snapshot, then batch by batch.

        Idleness counts from now: a record's own time may be long past and its producer alive.
        """
        replay(self.producers, self.snapshots, self.segments, self.log_end_offset, now_ms)
        self.producers.map_end_offset = self.log_end_offset
        self.producers.on_high_watermark(self.high_watermark)

    # -- what operators see ----------------------------------------------------------------

    def statistics(self) -> LogStatistics:
        return LogStatistics(
            tp=self.tp,
            directory=self.directory,
            log_start_offset=self.log_start_offset,
            last_stable_offset=self.last_stable_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            durable_offset=self.durable_offset,
            size_bytes=self.segments.size_bytes,
            segments=len(self.segments),
            producers=len(self.producers),
            fenced=None if self.failure is None else str(self.failure),
        )
