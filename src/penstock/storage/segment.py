"""One segment of a log: keeps the indexes of its file up to date while batches are appended.

The log decides which segment is written, read or deleted. Invariant: while `is_active`, the
indexes are in memory and cover the file up to the last index interval.
"""

from struct import Struct
from typing import Final

from penstock.io.disk import CREATE, Disk
from penstock.protocol.batch import ATTRIBUTES_POSITION, HEADER_BYTES, LOG_OVERHEAD, MAGIC
from penstock.protocol.checksum import crc32c
from penstock.storage.handles import Handles
from penstock.storage.indexed_segment import IndexedSegment
from penstock.storage.segment_file import MIN_BATCH_LENGTH, file_name
from penstock.storage.sparse_index import OFFSET_INDEX, TIME_INDEX
from penstock.storage.transaction_index import TRANSACTION_INDEX_SUFFIX, TransactionIndex

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
# Fields: base offset, length, epoch, magic, CRC, last offset delta, maximum time, producer id.
_PLAIN: Final = Struct(">qiibI2xi8xqq")


class Segment(IndexedSegment):
    """Owned by its log. `is_active` says whether the indexes are in memory and may grow."""

    __slots__ = (
        "_indexed_timestamp",
        "_max_offset_entries",
        "_max_time_entries",
        "bytes_since_index",
        "created_ms",
        "first_timestamp_ms",
        "index_interval_bytes",
        "is_active",
        "is_index_full",
        "transaction_index",
    )

    def __init__(
        self,
        disk: Disk,
        handles: Handles,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        index_interval_bytes: int,
        index_bytes: int,
    ) -> None:
        super().__init__(disk, handles, directory, base_offset)
        self.created_ms = created_ms
        self.index_interval_bytes = index_interval_bytes
        # One entry of each kind stays free, for the last time entry at sealing.
        self._max_offset_entries = max(1, index_bytes // OFFSET_INDEX.entry.size - 1)
        self._max_time_entries = max(1, index_bytes // TIME_INDEX.entry.size - 1)
        self.is_index_full = False
        self.bytes_since_index = 0
        self.first_timestamp_ms: int | None = None  # the first batch's; rolls by time count from it
        self.is_active = False
        self._indexed_timestamp = -1  # the last key of the time index, while active
        path = f"{directory}/{file_name(base_offset, TRANSACTION_INDEX_SUFFIX)}"
        self.transaction_index = TransactionIndex(disk, path)

    @property
    def newest_ms(self) -> int:
        """The largest timestamp; without one, the time when the segment was created."""
        newest = self.max_timestamp
        return newest if newest >= 0 else self.created_ms

    # -- lifecycle -------------------------------------------------------------------------

    def create(self) -> None:
        """Create the files of a new, empty, active segment; existing ones are emptied."""
        for path in (self.file.path, self.offset_index.path, self.time_index.path):
            self._disk.close(self._disk.open(path, CREATE))
        if self._disk.size(self._handles.descriptor(self.file)):
            self._disk.truncate(self._handles.descriptor(self.file), 0)
        self.start_indexes()

    def start_indexes(self) -> None:
        """Start with empty indexes; the caller continues with `note_batch` for each batch."""
        self.offset_index.start_empty()
        self.time_index.start_empty()
        self.bytes_since_index = 0
        self.is_index_full = False
        self.first_timestamp_ms = None
        self.is_active = True
        self._max_timestamp = -1
        self._indexed_timestamp = -1
        self._max_timestamp_offset = self.base_offset
        self.transaction_index.start_empty()

    def resume(self, size: int) -> None:
        """Become active with the file as it is: load the indexes and read only the tail.

        CorruptRecords where the file does not end with a whole batch: then it needs recovery.
        """
        self.size = size
        self.transaction_index.unload()
        self.offset_index.load(self._disk)
        self.time_index.load(self._disk)
        self.is_active = True
        self._max_timestamp = None
        self._settle_indexes()

    def cut(self, position: int, offset: int) -> None:
        """Truncate at a batch boundary, durably; batches from `offset` on are gone.

        Otherwise a power cut could bring them back before newer batches of the next segment.
        """
        self.truncate_file(position)
        self.transaction_index.truncate(offset)
        self.resume(position)

    def seal(self) -> None:
        """No more batches come: write the indexes and keep them on disk only."""
        self.write_indexes()
        self.offset_index.seal(self._disk)
        self.time_index.seal(self._disk)
        self.transaction_index.seal()
        self.is_active = False

    def release(self) -> None:
        """Close everything, because the files are about to be renamed or removed."""
        self._handles.close(self.file)
        self.offset_index.release()
        self.time_index.release()

    @property
    def index_paths(self) -> tuple[str, str, str]:
        return self.offset_index.path, self.time_index.path, self.transaction_index.path

    # -- appending -------------------------------------------------------------------------

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """A batch was written at `position`: update size, maximum timestamp and sparse entries."""
        if max_timestamp > self._max_timestamp:  # type: ignore[operator]  # active: it is known
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self.bytes_since_index > self.index_interval_bytes:
            # Straight into the arrays: every batch of 4 KiB and more comes here (bench/storage).
            offsets = self.offset_index
            offsets.keys.append(last_offset - self.base_offset)  # type: ignore[union-attr]
            values = offsets.values
            values.append(position)
            if self._max_timestamp > self._indexed_timestamp:  # type: ignore[operator]
                self._add_time_entry()
            if len(values) >= self._max_offset_entries:
                self.is_index_full = True
            self.bytes_since_index = size
        else:
            self.bytes_since_index += size
            if position == 0:
                self.first_timestamp_ms = max_timestamp
        self.size = position + size

    def note_plain_run(
        self, buffer: memoryview, cursor: int, filled: int, start: int, *, offset: int, epoch: int
    ) -> tuple[int, int]:
        """Check and note batches as long as each is whole, valid, without a producer, of this
        epoch, and starts where the one before it ends; the first starts at `offset`.

        `buffer` holds the file from position `start` on. Returns the buffer position and the offset
        of the first batch that is different or that continues after the buffer's end.

        This is `Scan.walk`, recovery's first check and `note_batch` in one loop, because most logs
        hold only such batches (bench/storage). A property test shows that it does the same.
        """
        unpack, first_cursor, last_cursor = _PLAIN.unpack_from, cursor, filled - HEADER_BYTES
        base_offset, limit = self.base_offset, self.base_offset + MAX_RELATIVE_OFFSET
        interval, since = self.index_interval_bytes, self.bytes_since_index
        newest, newest_offset = self.max_timestamp, self._max_timestamp_offset
        indexed = self._indexed_timestamp
        add_offset, add_position = self.offset_index.appenders()
        add_time, add_timed_offset = self.time_index.appenders()
        while cursor <= last_cursor:
            base, length, its_epoch, magic, crc, delta, max_ms, producer_id = unpack(buffer, cursor)
            size, last = length + LOG_OVERHEAD, base + delta
            end = cursor + size
            if (
                base != offset
                or its_epoch != epoch
                or magic != MAGIC
                or producer_id >= 0
                or length < MIN_BATCH_LENGTH
                or end > filled
                or not base <= last <= limit
                or crc32c(buffer[cursor + ATTRIBUTES_POSITION : end]) != crc
            ):
                break
            if max_ms > newest:
                newest, newest_offset = max_ms, last
            if since > interval:
                add_offset(last - base_offset)
                add_position(start + cursor)
                if newest > indexed:
                    add_time(newest)
                    add_timed_offset(newest_offset - base_offset)
                    indexed = newest
                since = size
            else:
                since += size
            offset, cursor = last + 1, end
        if cursor > first_cursor:
            if start + first_cursor == 0:
                self.first_timestamp_ms = unpack(buffer, first_cursor)[6]
            self.bytes_since_index, self.size = since, start + cursor
            self._max_timestamp, self._max_timestamp_offset = newest, newest_offset
            self._indexed_timestamp = indexed
            self._note_full_indexes()
        return cursor, offset

    def _note_full_indexes(self) -> None:
        offsets, times = len(self.offset_index), len(self.time_index)
        if offsets >= self._max_offset_entries or times >= self._max_time_entries:
            self.is_index_full = True

    def _add_time_entry(self) -> None:
        timestamp = self._max_timestamp
        assert timestamp is not None
        if timestamp > self._indexed_timestamp:
            self.time_index.append(timestamp, self._max_timestamp_offset - self.base_offset)
            self._indexed_timestamp = timestamp
            if len(self.time_index) >= self._max_time_entries:
                self.is_index_full = True

    # -- index files -----------------------------------------------------------------------

    def write_indexes(self) -> None:
        """Write the entries that are only in memory; the last time entry is the maximum."""
        self._add_time_entry()
        self.offset_index.write(self._disk)
        self.time_index.write(self._disk)

    def encode_indexes(self) -> tuple[bytes, bytes]:
        """The bytes that `write_indexes` would write to empty files."""
        self._add_time_entry()
        return self.offset_index.encode(), self.time_index.encode()

    def rewrite_indexes(self) -> None:
        """Make the index files hold exactly the entries in memory."""
        self._add_time_entry()
        self.offset_index.rewrite(self._disk)
        self.time_index.rewrite(self._disk)

    def rebuild_indexes(self) -> None:
        """Rebuild offset and time index from the batches; the file must be whole."""
        size, aborted = self.size, self.transaction_index.unload()
        self.start_indexes()
        self.transaction_index.restore(aborted)
        self.size = size
        for position, header, _ in self.scan(check_crc=False):
            self._check_offset(position, header.last_offset)
            self.note_batch(position, header.size, header.last_offset, header.max_timestamp)
        self.rewrite_indexes()

    def _settle_indexes(self) -> None:
        """Drop entries past the end, then note the batches after the last entry."""
        offsets, times = self.offset_index, self.time_index
        offsets.keep_values_below(self._disk, self.size)
        last = offsets.find_last()
        if last is not None and not self.has_batch_at(last.value):
            self.rebuild_indexes()
            return
        tail = self.find_last_batch()
        end_offset = self.base_offset if tail is None else tail.header.next_offset
        times.keep_values_below(self._disk, end_offset - self.base_offset)
        time = times.find_last()
        if time is not None and not self._confirms(time.key, self.base_offset + time.value):
            self.rebuild_indexes()
            return
        self._note_tail(0 if last is None else last.value)
        self.is_index_full = False
        self._note_full_indexes()

    def _note_tail(self, position: int) -> None:
        time = self.time_index.find_last()
        self._max_timestamp = self._indexed_timestamp = -1 if time is None else time.key
        self._max_timestamp_offset = self.base_offset + (0 if time is None else time.value)
        self.bytes_since_index = self.size - position
        self.first_timestamp_ms = self.header_at(0).max_timestamp if self.size else None
        while position < self.size:
            for batch in self._read_headers(position):
                header = batch.header
                self._check_offset(batch.position, header.last_offset)
                if header.max_timestamp > self._max_timestamp:
                    self._max_timestamp = header.max_timestamp
                    self._max_timestamp_offset = header.last_offset
                position = batch.end_position

    def _check_offset(self, position: int, last_offset: int) -> None:
        """Check a new batch: an index cannot express an offset out of its range."""
        if not 0 <= last_offset - self.base_offset <= MAX_RELATIVE_OFFSET:
            raise self._corrupt(position)
