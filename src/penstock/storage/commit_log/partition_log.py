"""The log of one partition in a commit log: appends batches and reads them back as slices.

How its entries change is `PartitionEntries`' part. One owner thread.
"""

from collections.abc import Sequence
from operator import add, ge
from struct import Struct

from penstock.config.log_config import LogConfig
from penstock.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from penstock.model.slices import FileSlice, ScatteredSlices
from penstock.model.values import new_tuple
from penstock.protocol.batch import BatchHeader
from penstock.storage.commit_log.commit_log import CommitLogFile
from penstock.storage.commit_log.frames import FRAME_BYTES, FrameKind
from penstock.storage.commit_log.lookups import (
    find_appended_after,
    find_by_time,
    find_max_timestamp,
    find_time_of,
)
from penstock.storage.commit_log.partition_entries import PartitionEntries
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
from penstock.storage.errors import CorruptRecords, LogFenced, OffsetOutOfRange, UnknownPartition
from penstock.storage.leader_epoch_cache import OffsetAndEpoch
from penstock.storage.log_validator import (
    check_times,
    is_plain,
    prepare,
    validate_batch,
    validate_fetched,
)
from penstock.storage.transaction_index import AbortedTxn, collect_aborted

# Base offset, length and leader epoch, which lie outside the CRC, as in `storage.log`.
_OFFSET_AND_EPOCH = Struct(">qii")
_BATCHES = int(FrameKind.BATCHES)
MAX_SLICES = 4096  # of one read
MANY_BATCHES = 32  # as columns; fewer are looked at one by one


class CommitLogPartition(PartitionEntries):
    """Owned by its engine's owner thread."""

    # Offset, index and queue version of where the last read ended.
    _read_end: tuple[int, int, int] = (-1, 0, -1)

    def reconfigure(self, config: LogConfig) -> None:
        super().reconfigure(config)
        self._is_plain = is_plain(config)
        self.flush_messages = config.flush_messages
        self._max_append_bytes = min(config.max_message_bytes, config.segment_bytes)

    @property
    def segment_count(self) -> int:
        return 1

    # -- appending -------------------------------------------------------------------------

    def append_as_leader(
        self, batches: memoryview, leader_epoch: int, origin: AppendOrigin, now_ms: int
    ) -> LogAppendInfo:
        """Stage one batch, stamped with its offset and epoch in place."""
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
        base_offset = self.log_end_offset
        _OFFSET_AND_EPOCH.pack_into(batches, 0, base_offset, header[1], leader_epoch)
        if leader_epoch != self._latest_epoch:
            self._assign_epoch(leader_epoch, base_offset)
        position = self._put(batches, now_ms)
        self.note_batch(position, len(batches), base_offset, header[6], header[8])
        if header[9] >= 0:
            parsed = BatchHeader._make(header)._replace(base_offset=base_offset)
            self.follow_producer(parsed, batches, now_ms)
        return new_tuple(LogAppendInfo, (base_offset, self.log_end_offset, append_time_ms, False))

    def append_as_follower(self, batches: memoryview, now_ms: int) -> LogAppendInfo:
        """Stage the leader's batches unchanged in one frame; a partial one is left out."""
        if self.failure is not None:
            raise LogFenced(self.tp, self.failure)
        located = validate_fetched(batches, self.log_end_offset, self.tp)
        first = Offset(located[0][1].base_offset)
        end = located[-1][0] + located[-1][1].size
        position = self._put(batches[:end], now_ms)
        self.take_in(located, batches, position, now_ms)
        return LogAppendInfo(first, self.log_end_offset, NO_TIMESTAMP, False)

    def _put(self, batches: memoryview, now_ms: int) -> int:
        """Write a frame, or stage it in a request of several partitions; returns the position of
        its payload."""
        if self.home.is_staging:
            position = self.home.stage(self, FrameKind.BATCHES, batches)
        else:
            position = self._commit_log.write_frame(_BATCHES, self.number, batches, self.last_frame)
            self.last_frame = position
        if self.dirty_since_ms is None:
            self.dirty_since_ms = now_ms
            self.home.note_dirty(self)
        return position + FRAME_BYTES

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
        """Whole batches from the one that holds `start`, all of whose offsets are below `below`."""
        if self.is_retired:
            raise UnknownPartition(self.tp)
        if not self.log_start_offset <= start <= self.log_end_offset:
            raise OffsetOutOfRange(start, self.log_start_offset, self.log_end_offset)
        read = None
        if start < below:
            queue = self.queue
            known_offset, index, version = self._read_end
            if known_offset != start or version != queue.version:
                index = queue.find(start)
            if skip_empty and (self.config.compact or self.cleaned_offset > 0):
                index = self._skip_empty(index, below)
            if queue.end - index >= MANY_BATCHES:
                read = self._read_many(index, below, max_bytes)
            if read is None:
                read = self._read_from(index, below, max_bytes, at_least_one)
        return Read((), start, self._handles.lease()) if read is None else read

    def _skip_empty(self, index: int, below: int) -> int:
        """The first entry with records; where there is none, the one where the search began."""
        for later in range(index, self.queue.end):
            entry = self.queue.entry(later)
            if entry.last_offset >= below:
                break
            if self.header_of(entry).record_count:
                return later
        return index

    def _read_many(self, index: int, below: int, max_bytes: int) -> Read | None:
        """Batches with others between them, as those of leaders are. None: they are few, have
        neighbours, were moved, or lie in several files."""
        queue = self.queue
        positions, sizes = queue.places_from(index, below, max_bytes, MAX_SLICES)
        if len(positions) < MANY_BATCHES or any(map(ge, map(add, positions, sizes), positions[1:])):
            return None
        file = self._file_at(positions[0])
        base = file.base
        if positions[-1] >= file.end:
            return None
        index += len(positions)
        end_offset = queue.entry(index - 1).next_offset
        self._read_end = end_offset, index, queue.version
        descriptor = self._handles.descriptor(file.handle)
        lease = self._handles.lease(file.handle)
        slices = ScatteredSlices(descriptor, [at - base for at in positions], sizes)
        return Read(slices, Offset(end_offset), lease)

    def _read_from(self, index: int, below: int, max_bytes: int, at_least_one: bool) -> Read | None:
        """Neighbouring batches, as a follower's frame has them, are one slice."""
        queue = self.queue
        runs: list[tuple[int, int]] = []  # position and length
        left, end_offset, run, length = max_bytes, -1, -1, 0
        for base_offset, last_delta, position, size, _ in queue.fields_from(index, MAX_SLICES):
            if base_offset + last_delta >= below:
                break
            left -= size
            if left < 0 and (end_offset >= 0 or not at_least_one):
                break
            if position == run + length:
                length += size
            else:
                if length:
                    runs.append((run, length))
                run, length = position, size
            end_offset = base_offset + last_delta + 1
            index += 1
        if end_offset < 0:
            return None
        runs.append((run, length))
        self._read_end = end_offset, index, queue.version
        return self._slices(runs, end_offset)

    def _slices(self, runs: list[tuple[int, int]], end_offset: int) -> Read:
        handles = self._handles
        file = self._file_at(runs[0][0])
        base = file.base
        if base <= min(runs)[0] and max(runs)[0] < file.end:  # nearly always
            descriptor = handles.descriptor(file.handle)
            lease = handles.lease(file.handle)
            single = [new_tuple(FileSlice, (descriptor, at - base, size)) for at, size in runs]
            return Read(tuple(single), Offset(end_offset), lease)
        return self._slices_of_files(runs, end_offset)

    def _slices_of_files(self, runs: list[tuple[int, int]], end_offset: int) -> Read:
        handles = self._handles
        files: dict[int, CommitLogFile] = {}
        file = files[-1] = self._file_at(runs[0][0])
        for position, _ in runs:
            if not file.base <= position < file.end:
                file = self._file_at(position)
                files[file.base] = file
        # Lease before opening the files: opening one may close another that is not leased.
        lease = handles.lease(*{file.handle for file in files.values()})
        slices: list[FileSlice] = []
        file = files[-1]
        base, end, descriptor = file.base, file.end, handles.descriptor(file.handle)
        for position, length in runs:
            if not base <= position < end:
                file = self._file_at(position)
                base, end, descriptor = file.base, file.end, handles.descriptor(file.handle)
            slices.append(new_tuple(FileSlice, (descriptor, position - base, length)))
        return Read(tuple(slices), Offset(end_offset), lease)

    def _file_at(self, position: int) -> CommitLogFile:
        file = self.home.commit_log.find_file(position)
        if file is None:
            raise CorruptRecords(
                f"{self.tp}: position {position} is in no file of "
                f"{self.home.commit_log.folder}; restart the broker"
            )
        return file

    def find_damage(self, start: Offset, max_bytes: int) -> DamagedBatch | None:
        return find_damage(self, self._disk, start, max_bytes)

    def find_by_time(self, timestamp_ms: TimestampMs) -> TimestampAndOffset | None:
        return find_by_time(self, timestamp_ms)

    def find_appended_after(
        self, timestamp_ms: TimestampMs, start: Offset
    ) -> TimestampAndOffset | None:
        return find_appended_after(self, timestamp_ms, start)

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        return find_max_timestamp(self)

    def find_time_of(self, offset: Offset) -> TimestampMs | None:
        if self.is_retired:
            raise UnknownPartition(self.tp)
        return find_time_of(self, offset)

    def segment_offsets(self, *, before_ms: TimestampMs | None = None) -> Sequence[Offset]:
        """Everything is in one segment."""
        last = self.queue.last()
        is_after = before_ms is not None and last is not None and last.time_ms > before_ms
        return [] if is_after else [self.log_start_offset]

    def aborted(self, start: Offset, below: Offset) -> Sequence[AbortedTxn]:
        """Aborted transactions that touch [start, below); a read_committed consumer skips them."""
        return collect_aborted(self.aborted_txns, start, below)[0]

    # -- watermarks ------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> Offset:
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def advance_high_watermark(self, offset: Offset) -> None:
        """Never moves back nor past the end: a follower may learn of more than it has."""
        reached = min(self.log_end_offset, offset)
        if reached > self.high_watermark:
            self.high_watermark = reached
            self.is_changed = True
            self.producers.on_high_watermark(reached)

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
