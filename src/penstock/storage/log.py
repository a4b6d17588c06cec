"""The log of one partition: appends batches to the active segment and reads them back as slices.

How segments are rolled, cut and removed is `LocalLog`'s part. One owner thread.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from penstock.config.log_config import LogConfig
from penstock.io.disk import write_fully
from penstock.model.ids import (
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
)
from penstock.model.slices import FileSlice
from penstock.model.values import new_tuple
from penstock.protocol.batch import (
    BatchHeader,
)
from penstock.storage.damage import find_damage
from penstock.storage.duplicates import find_stored
from penstock.storage.engine import (
    AppendOrigin,
    DamagedBatch,
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
from penstock.storage.leader_epoch_cache import (
    OffsetAndEpoch,
)
from penstock.storage.local_log import LocalLog
from penstock.storage.log_validator import (
    check_times,
    is_plain,
    prepare,
    validate_batch,
    validate_fetched,
)
from penstock.storage.producer_replay import apply_batch
from penstock.storage.segment import MAX_RELATIVE_OFFSET, Segment
from penstock.storage.segment_file import LocatedBatch
from penstock.storage.timestamp_lookup import (
    find_appended_after,
    find_by_time,
    find_max_timestamp,
    find_segment_offsets,
    find_time_of,
)
from penstock.storage.transaction_index import AbortedTxn, collect_aborted

# Base offset, length and leader epoch, which lie outside the CRC. The leader sets the first and the
# last; writing the length between them again makes it one call.
_OFFSET_AND_EPOCH: Final = Struct(">qii")


class SegmentedLog(LocalLog):
    """Owned by its engine's owner thread."""

    # Offset, segment, position and generation of where the last read ended.
    _read_end: tuple[int, Segment | None, int, int] = (-1, None, 0, 0)

    def reconfigure(self, config: LogConfig) -> None:
        super().reconfigure(config)
        self._is_plain = is_plain(config)
        self.flush_messages = config.flush_messages
        self._max_append_bytes = min(config.max_message_bytes, config.segment_bytes)

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
        header = validate_batch(batches, origin, self.tp)
        config = self.config
        append_time_ms = NO_TIMESTAMP
        if not self._is_plain or header[9] >= 0 or len(batches) > self._max_append_bytes:
            parsed = BatchHeader._make(header)
            batches, parsed = prepare(
                batches, parsed, config, now_ms=now_ms, origin=origin, tp=self.tp
            )
            if parsed.producer_id >= 0:
                stored = find_stored(self.producers, parsed, batches, config, self.tp)
                if stored is not None:
                    return stored
            if config.message_timestamp_type == "LogAppendTime":
                append_time_ms = TimestampMs(now_ms)
            header = parsed
        elif header[8] > now_ms + config.message_timestamp_after_max_ms:
            check_times(BatchHeader._make(header), config, now_ms, self.tp)
        size = len(batches)
        base_offset = self.log_end_offset
        last_offset = base_offset + header[6]
        _OFFSET_AND_EPOCH.pack_into(batches, 0, base_offset, header[1], leader_epoch)
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
            parsed = BatchHeader._make(header)._replace(base_offset=base_offset)
            self._update_producer(segment, parsed, batches, now_ms)
        return new_tuple(LogAppendInfo, (base_offset, self.log_end_offset, append_time_ms, False))

    def append_as_follower(self, batches: memoryview, now_ms: int) -> LogAppendInfo:
        """Store the leader's batches unchanged; a partial batch at the end is left out."""
        if self.failure is not None:
            raise LogFenced(self.tp, self.failure)
        located = validate_fetched(batches, self.log_end_offset, self.tp)
        first = Offset(located[0][1].base_offset)
        for position, header in located:
            content = batches[position : position + header.size]
            segment = self._segment_for(header, now_ms)
            last_offset, max_timestamp = header.last_offset, header.max_timestamp
            self._store(segment, content, header.size, last_offset, max_timestamp, now_ms)
            self.follow_epoch(header)
            if header.producer_id >= 0:
                self._update_producer(segment, header, content, now_ms)
        return LogAppendInfo(first, self.log_end_offset, NO_TIMESTAMP, False)

    def _segment_for(self, header: BatchHeader, now_ms: int) -> Segment:
        segment = self.segments.active
        if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            # At the log's end if possible, because recovery takes a hole between segments for loss.
            if header.last_offset - self.log_end_offset <= MAX_RELATIVE_OFFSET:
                return self._roll(self.log_end_offset, now_ms)
            self._sync_files(segment)  # so that this hole is never one left by a power cut
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
        """Write at the end of the file, or fence the log: a failed write leaves an unknown
        state."""
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
            self.dirty_from_bytes = self._rolled_bytes + position
        segment.note_batch(position, size, last_offset, max_timestamp)
        self.log_end_offset = Offset(last_offset + 1)
        if position == 0:
            self._plan_roll()

    # -- producers and epochs --------------------------------------------------------------

    def _update_producer(
        self, segment: Segment, header: BatchHeader, content: memoryview, now_ms: int
    ) -> None:
        """Apply a stored batch to producer state; an abort goes into the transaction index."""
        aborted = apply_batch(self.producers, header, content, now_ms)
        if aborted is None:
            return
        if not segment.transaction_index.entries:
            self.names_changed = True  # the first entry creates the index file
        try:
            segment.transaction_index.append(aborted)
        except OSError as error:
            raise self.fail(error) from error

    def follow_epoch(self, header: BatchHeader) -> None:
        if header.leader_epoch > self._latest_epoch:
            self.epochs.assign(header.leader_epoch, header.base_offset)
            self._latest_epoch = header.leader_epoch

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """Batches carry `epoch` from here on; it is assigned before the first one (KAFKA-7415)."""
        assert epoch >= self._latest_epoch, f"{self.tp}: epoch {epoch} is a former leader's"
        self.begin_epoch_at(epoch, self.log_end_offset)

    def begin_epoch_at(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Only for a copy of another log does an epoch begin elsewhere than at the end."""
        self.epochs.assign(epoch, start_offset)
        self._latest_epoch = epoch

    def find_epoch_end(self, epoch: LeaderEpoch) -> OffsetAndEpoch | None:
        return self.epochs.find_end_offset(epoch, self.log_end_offset)

    # -- reading ---------------------------------------------------------------------------

    def read(
        self,
        start: Offset,
        *,
        below: Offset,
        max_bytes: int,
        at_least_one: bool,
        skip_empty: bool = False,
    ) -> Read:
        """Whole batches from the one that holds `start`, all of whose offsets are below `below`.

        With `skip_empty` the first one has records, unless only batches without any are left: some
        consumers do not get past a response without records. Followers need every batch.
        """
        if self.is_retired:
            raise UnknownPartition(self.tp)
        if not self.log_start_offset <= start <= self.log_end_offset:
            raise OffsetOutOfRange(start, self.log_start_offset, self.log_end_offset)
        read = None
        # A fetch over many logs leaves those without a free descriptor to the next fetch.
        if start < below and (at_least_one or self._handles.has_room):
            # Only compaction leaves batches without records, maybe of an earlier cleanup.policy.
            skip_empty = skip_empty and (self.config.compact or self.cleaned_offset > 0)
            if self._read_end[0] == start:
                read = self._continue_read(start, below, max_bytes, skip_empty)
            if read is None:
                read = self._find_and_read(
                    start, min(below, self.log_end_offset), max_bytes, at_least_one, skip_empty
                )
        return Read((), start, self._handles.lease()) if read is None else read

    def find_damage(self, start: Offset, max_bytes: int) -> DamagedBatch | None:
        return find_damage(self, self._disk, start, max_bytes)

    def _find_and_read(
        self, start: int, below: int, max_bytes: int, at_least_one: bool, skip_empty: bool
    ) -> Read | None:
        segments = self.segments
        first = self._find_first(start, below, skip_empty)
        if first is None:
            return None
        index, batch = first
        segment = segments[index]
        limit = batch.position + max_bytes
        if batch.end_position > limit:
            if not at_least_one:
                return None
            limit = batch.end_position
        if below < segments.end_offset_of(index, self.log_end_offset):
            limit = min(limit, self._position_of(segment, below))
        end, end_offset = segment.find_whole_end(batch.position, limit)
        if end_offset is None:
            end_offset = segments.end_offset_of(index, self.log_end_offset)
        return self._slice(segment, batch.position, end, end_offset)

    def _find_first(
        self, start: int, below: int, skip_empty: bool
    ) -> tuple[int, LocatedBatch] | None:
        """The batch where a read begins, and the index of its segment."""
        first: tuple[int, LocatedBatch] | None = None
        for index in range(self.segments.index_of(start), len(self.segments)):
            segment = self.segments[index]
            batch = segment.find_batch(start)
            if batch is None:
                continue
            first = first or (index, batch)
            if skip_empty and not batch.header.record_count:
                batch = segment.find_batch_with_records(batch.position)
                if batch is None:
                    continue
            if batch.header.last_offset < below:
                return index, batch
            break
        if first is None or first[1].header.last_offset >= below:
            return None
        return first

    def _continue_read(
        self, start: int, below: int, max_bytes: int, skip_empty: bool
    ) -> Read | None:
        """Read from where the last read ended, as a consumer does: without an index look-up, and at
        the log's end without reading the file. None if that position may be stale."""
        _, segment, position, generation = self._read_end
        index = self.segments.index_of(start)
        if segment is not self.segments[index] or generation != self.generation:
            return None  # rolled, replaced, removed or cut since
        segment_end_offset = self.segments.end_offset_of(index, self.log_end_offset)
        if below < segment_end_offset or position >= segment.size:
            return None
        if skip_empty and not segment.header_at(position).record_count:
            return None
        end, end_offset = segment.find_whole_end(position, position + max_bytes)
        if end == position:
            return None
        if end_offset is None:
            end_offset = segment_end_offset
        return self._slice(segment, position, end, end_offset)

    def _position_of(self, segment: Segment, offset: int) -> int:
        batch = segment.find_batch(offset)
        return segment.size if batch is None else batch.position

    def _slice(self, segment: Segment, start: int, end: int, end_offset: int) -> Read:
        descriptor = self._handles.descriptor(segment.file)
        lease = self._handles.lease(segment.file)
        self._read_end = end_offset, segment, end, self.generation
        return Read((FileSlice(descriptor, start, end - start),), Offset(end_offset), lease)

    def find_by_time(self, timestamp_ms: TimestampMs) -> TimestampAndOffset | None:
        return find_by_time(
            self.segments, timestamp_ms, start=self.log_start_offset, end=self.log_end_offset
        )

    def find_appended_after(
        self, timestamp_ms: TimestampMs, start: Offset
    ) -> TimestampAndOffset | None:
        return find_appended_after(self.segments, timestamp_ms, start=start)

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        return find_max_timestamp(
            self.segments, start=self.log_start_offset, end=self.log_end_offset
        )

    def find_time_of(self, offset: Offset) -> TimestampMs | None:
        if self.is_retired:
            raise UnknownPartition(self.tp)
        return find_time_of(self.segments, max(offset, self.log_start_offset))

    def segment_offsets(self, *, before_ms: TimestampMs | None = None) -> Sequence[Offset]:
        return find_segment_offsets(self.segments, before_ms, start=self.log_start_offset)

    def aborted(self, start: Offset, below: Offset) -> Sequence[AbortedTxn]:
        """Aborted transactions that touch [start, below); a read_committed consumer skips them."""
        aborted: list[AbortedTxn] = []
        for segment in self.segments.starting_from(start):
            part, is_complete = collect_aborted(segment.transaction_index.entries, start, below)
            aborted += part
            if is_complete:
                break
        return aborted

    # -- watermarks ------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> Offset:
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def advance_high_watermark(self, offset: Offset) -> None:
        """Never moves back nor past the end: a follower may learn of more than it has."""
        end_offset = self.log_end_offset
        reached = min(end_offset, offset)
        if reached > self.high_watermark:
            self.high_watermark = reached
            self.producers.on_high_watermark(reached)

    def delete_before(self, offset: Offset) -> None:
        """Hide the records below `offset`; the next retention job removes their segments."""
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    # -- statistics ------------------------------------------------------------------------

    def statistics(self) -> LogStatistics:
        return LogStatistics(
            tp=self.tp,
            directory=self.directory,
            log_start_offset=self.log_start_offset,
            last_stable_offset=self.last_stable_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            durable_offset=self.durable_offset,
            size_bytes=self.size_bytes,
            segments=self.segment_count,
            producers=len(self.producers),
            fenced=None if self.failure is None else str(self.failure),
        )
