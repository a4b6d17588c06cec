"""One segment of a log: its file, its two sparse indexes and what is known of its records.

Finds positions and keeps the indexes; which segment is written, read or deleted is the log's
matter. Invariant: the first `size` bytes of the file are whole batches, in offset order.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from penstock.io.disk import (
    APPEND,
    CREATE,
    REPLACE,
    Disk,
    read_file,
    read_fully,
    replace_file,
    write_fully,
)
from penstock.model.ids import Offset
from penstock.protocol.batch import (
    ATTRIBUTES_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
)
from penstock.protocol.checksum import crc32c
from penstock.storage.errors import CorruptRecords
from penstock.storage.handles import Handle, Handles
from penstock.storage.scan import Scan
from penstock.storage.sparse_index import OFFSET_INDEX, TIME_INDEX, SparseIndex
from penstock.storage.transaction_index import (
    AbortedTxn,
    decode_entries,
    encode_entry,
)

LOG_SUFFIX = ".log"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX.suffix, TIME_INDEX.suffix, TRANSACTION_INDEX_SUFFIX)
MAX_RELATIVE_OFFSET = 2**31 - 1
_MIN_LENGTH = HEADER_BYTES - LOG_OVERHEAD
_STEP = Struct(">qi4xb6xi")  # of a header: base offset, length, magic, last offset delta
# Of a header: base offset, length, epoch, magic, CRC, last offset delta, maximum time, producer id.
_PLAIN = Struct(">qiibI2xi8xqq")
_HEADERS_BYTES = 4096  # one look into the file shows the headers of many small batches


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class LocatedBatch(NamedTuple):
    """A batch's place in the file, with the header fields that searches ask for."""

    position: int
    header: BatchHeader

    @property
    def end_position(self) -> int:
        return self.position + self.header[1] + LOG_OVERHEAD


class Segment:
    """Owned by its log. `is_active` says whether the indexes are in memory and may grow."""

    __slots__ = (
        "_aborted",
        "_disk",
        "_handles",
        "_indexed_timestamp",
        "_max_offset_entries",
        "_max_time_entries",
        "_max_timestamp",
        "_max_timestamp_offset",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "directory",
        "file",
        "first_timestamp_ms",
        "index_interval_bytes",
        "is_active",
        "is_index_full",
        "offset_index",
        "size",
        "time_index",
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
        stem = f"{directory}/{base_offset:020d}"
        self._disk = disk
        self._handles = handles
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.index_interval_bytes = index_interval_bytes
        # One entry of each kind stays free, for the last time entry at sealing.
        self._max_offset_entries = max(1, index_bytes // OFFSET_INDEX.entry.size - 1)
        self._max_time_entries = max(1, index_bytes // TIME_INDEX.entry.size - 1)
        self.is_index_full = False
        self.file = Handle(stem + LOG_SUFFIX, APPEND)
        self.size = 0
        self.offset_index = SparseIndex(stem + OFFSET_INDEX.suffix, OFFSET_INDEX, handles)
        self.time_index = SparseIndex(stem + TIME_INDEX.suffix, TIME_INDEX, handles)
        self.bytes_since_index = 0
        self.first_timestamp_ms: int | None = (
            None  # of the first batch: rolling by time counts from it
        )
        self.is_active = False
        self._max_timestamp: int | None = None  # None: not looked up yet
        self._max_timestamp_offset = base_offset
        self._indexed_timestamp = -1  # the last key of the time index, while active
        self._aborted: list[AbortedTxn] | None = None  # None: not loaded yet

    # -- life ------------------------------------------------------------------------------

    def create(self) -> None:
        """Make the files of a new, empty, active segment; remains of the same name are emptied."""
        for path in (self.file.path, self.offset_index.path, self.time_index.path):
            self._disk.close(self._disk.open(path, CREATE))
        if self._disk.size(self._handles.descriptor(self.file)):
            self._disk.truncate(self._handles.descriptor(self.file), 0)
        self.start_indexes()

    def start_indexes(self) -> None:
        """Begin with nothing known: the caller goes on with `note_batch` for each batch."""
        self.offset_index.start_empty()
        self.time_index.start_empty()
        self.bytes_since_index = 0
        self.is_index_full = False
        self.first_timestamp_ms = None
        self.is_active = True
        self._max_timestamp = -1
        self._indexed_timestamp = -1
        self._max_timestamp_offset = self.base_offset
        self._aborted = []

    def seal(self) -> None:
        """No more batches come: write the indexes out and keep them on disk only."""
        self.write_indexes()
        self.offset_index.seal(self._disk)
        self.time_index.seal(self._disk)
        self._aborted = None if self._aborted else self._aborted
        self.is_active = False

    def write_indexes(self) -> None:
        """Bring what only memory knows to the files; the last time entry is the maximum."""
        self._add_time_entry()
        self.offset_index.write(self._disk)
        self.time_index.write(self._disk)

    def encode_indexes(self) -> tuple[bytes, bytes]:
        """What `write_indexes` would make of empty files."""
        self._add_time_entry()
        return self.offset_index.encode(), self.time_index.encode()

    @property
    def index_paths(self) -> tuple[str, str, str]:
        return self.offset_index.path, self.time_index.path, self.transaction_index_path

    def release(self) -> None:
        """Close everything: the files are about to be renamed or removed."""
        self._handles.close(self.file)
        self.offset_index.release()
        self.time_index.release()

    # -- appending -------------------------------------------------------------------------

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """A batch now stands at `position`: keep size, maximum time and the sparse entries."""
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
        self, buffer: memoryview, place: int, filled: int, start: int, *, offset: int, epoch: int
    ) -> tuple[int, int]:
        """Check and note batch after batch while each is whole, sound, without a producer, of this
        epoch, and begins at `offset`, then where the one before ends.

        `buffer` holds the file from position `start` on. Returns the place and the offset at which
        something else begins: any other batch, or one that goes on behind the buffer's end.

        This is `Scan.walk`, recovery's first look and `note_batch` in one loop, as most logs hold
        nothing but such batches (bench/storage). A property test shows that it does the same.
        """
        unpack, first_place, last_place = _PLAIN.unpack_from, place, filled - HEADER_BYTES
        base_offset, limit = self.base_offset, self.base_offset + MAX_RELATIVE_OFFSET
        interval, since = self.index_interval_bytes, self.bytes_since_index
        newest, newest_offset = self.max_timestamp, self._max_timestamp_offset
        indexed = self._indexed_timestamp
        add_offset, add_position = self.offset_index.appenders()
        add_time, add_timed_offset = self.time_index.appenders()
        while place <= last_place:
            base, length, its_epoch, magic, crc, delta, max_ms, producer_id = unpack(buffer, place)
            size, last = length + LOG_OVERHEAD, base + delta
            end = place + size
            if (
                base != offset
                or its_epoch != epoch
                or magic != MAGIC
                or producer_id >= 0
                or length < _MIN_LENGTH
                or end > filled
                or not base <= last <= limit
                or crc32c(buffer[place + ATTRIBUTES_POSITION : end]) != crc
            ):
                break
            if max_ms > newest:
                newest, newest_offset = max_ms, last
            if since > interval:
                add_offset(last - base_offset)
                add_position(start + place)
                if newest > indexed:
                    add_time(newest)
                    add_timed_offset(newest_offset - base_offset)
                    indexed = newest
                since = size
            else:
                since += size
            offset, place = last + 1, end
        if place > first_place:
            if start + first_place == 0:
                self.first_timestamp_ms = unpack(buffer, first_place)[6]
            self.bytes_since_index, self.size = since, start + place
            self._max_timestamp, self._max_timestamp_offset = newest, newest_offset
            self._indexed_timestamp = indexed
            self._note_full_indexes()
        return place, offset

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

    # -- time ------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, -1 if there is none."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
            assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch with the largest timestamp."""
        return self._max_timestamp_offset if self.max_timestamp >= 0 else self.base_offset

    def _load_max_timestamp(self) -> None:
        """From the last time entry where the log confirms it, else from the log itself."""
        last, tail = self.time_index.find_last(), self.find_last_batch()
        if (
            last is not None
            and tail is not None
            and tail.header.max_timestamp <= last.key
            and self._confirms(last.key, self.base_offset + last.value)
        ):
            self._max_timestamp = last.key
            self._max_timestamp_offset = self.base_offset + last.value
            return
        self._max_timestamp = -1
        for _, header, _ in self.scan(check_crc=False):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset

    def _confirms(self, timestamp: int, offset: int) -> bool:
        placed = self.find_batch(offset)
        return placed is not None and placed.header.max_timestamp == timestamp

    def find_batch_by_time(self, timestamp_ms: int) -> LocatedBatch | None:
        """The first batch whose largest timestamp is not below the asked one."""
        entry = self.time_index.find_floor(timestamp_ms)
        position = 0
        if entry is not None:
            offset = self.base_offset + entry.value
            placed = self.find_batch(offset)
            # An entry that the log does not confirm is no ground to stand on: start at the front.
            if placed is not None and placed.header.max_timestamp == entry.key:
                position = placed.position
        return self._find_from(position, lambda header: header.max_timestamp >= timestamp_ms)

    # -- finding ---------------------------------------------------------------------------

    def find_batch(self, offset: int) -> LocatedBatch | None:
        """The first batch whose last offset is not below `offset`; None past the end."""
        entry = self.offset_index.find_floor(offset - self.base_offset)
        if entry is not None:
            try:
                return self._find_offset(entry.value, offset)
            except CorruptRecords:
                pass  # the entry is damaged: it shows no batch at or before the offset
        return self._find_offset(0, offset)

    def _find_offset(self, position: int, offset: int) -> LocatedBatch | None:
        for found, base, last, _, content, place in self._steps(position):
            if found == position > 0 and not self.base_offset <= base <= offset:
                raise self._corrupt(position)
            if last >= offset:
                return LocatedBatch(found, BatchHeader._make(HEADER.unpack_from(content, place)))
        return None

    def _steps(self, position: int) -> Iterator[tuple[int, int, int, int, bytes, int]]:
        """Position, first and last offset, end, and where the header is, of batch after batch.

        Looks at four fields of each only: most are passed over on the way to one.
        """
        size, unpack, descriptor = self.size, _STEP.unpack_from, -1
        while position < size:
            if descriptor < 0:
                descriptor = self._handles.descriptor(self.file)
            content = (
                self._disk.pread(descriptor, _HEADERS_BYTES, position) if position >= 0 else b""
            )
            place, last_place = 0, min(len(content), size - position) - HEADER_BYTES
            if place > last_place:
                raise self._corrupt(position)
            start = position
            while place <= last_place:
                base, length, magic, delta = unpack(content, place)
                end = position + length + LOG_OVERHEAD
                if magic != MAGIC or length < _MIN_LENGTH or delta < 0 or end > size:
                    raise self._corrupt(position)
                yield position, base, base + delta, end, content, place
                position = end
                place = end - start

    def find_last_batch(self) -> LocatedBatch | None:
        """From the last index entry on; CorruptRecords where the file does not end with a batch."""
        if self.size == 0:
            return None
        entry = self.offset_index.find_last()
        position = entry.value if entry is not None and self.has_batch_at(entry.value) else 0
        placed = self._read_headers(position)[-1]
        while placed.end_position < self.size:
            placed = self._read_headers(placed.end_position)[-1]
        return placed

    def find_end_offset(self, boundary: int) -> Offset:
        """Where the offsets of the batches end that lie before this batch boundary."""
        entry = self.offset_index.find_floor_by_value(boundary - 1)
        position = entry.value if entry is not None and self.has_batch_at(entry.value) else 0
        end_offset = self.base_offset
        while position < boundary:
            for placed in self._read_headers(position):
                if placed.position < boundary:
                    end_offset, position = placed.header.next_offset, placed.end_position
        return Offset(end_offset)

    def find_whole_end(self, start: int, limit: int) -> tuple[int, int | None]:
        """The largest batch boundary in [start, limit], where `start` is one.

        With it the offset that begins there; None at the end of the segment.
        """
        if limit >= self.size:
            return self.size, None
        entry = self.offset_index.find_floor_by_value(limit)
        if entry is not None and entry.value > start:
            try:
                return self._find_end_from(entry.value, limit)
            except CorruptRecords:
                pass  # the entry is damaged
        return self._find_end_from(start, limit)

    def _find_end_from(self, position: int, limit: int) -> tuple[int, int | None]:
        for found, base, _, end, _, _ in self._steps(position):
            if base < self.base_offset:
                raise self._corrupt(found)
            if end > limit:
                return found, base
        return self.size, None

    def _find_from(
        self, position: int, wanted: Callable[[BatchHeader], bool]
    ) -> LocatedBatch | None:
        while position < self.size:
            for placed in self._read_headers(position):
                if wanted(placed.header):
                    return placed
                position = placed.end_position
        return None

    def has_batch_at(self, position: int) -> bool:
        """Whether an index entry is true: any batch of this segment will do to search on from."""
        try:
            return self.header_at(position).base_offset >= self.base_offset
        except CorruptRecords:
            return False

    def header_at(self, position: int) -> BatchHeader:
        return self._read_headers(position)[0].header

    def _read_headers(self, position: int) -> list[LocatedBatch]:
        """The batches from `position` on, as many as one short read shows: at least one."""
        size = self.size
        length = min(_HEADERS_BYTES, size - position)
        if length < HEADER_BYTES or position < 0:
            raise self._corrupt(position)
        content = self._disk.pread(self._handles.descriptor(self.file), length, position)
        found: list[LocatedBatch] = []
        place, last_place = 0, len(content) - HEADER_BYTES
        while place <= last_place:
            header = BatchHeader._make(HEADER.unpack_from(content, place))
            end = place + header[1] + LOG_OVERHEAD
            if (
                header[3] != MAGIC
                or end < place + HEADER_BYTES
                or header[6] < 0
                or position + end > size
            ):
                raise self._corrupt(position + place)
            found.append(LocatedBatch(position + place, header))
            place = end
        if not found:
            raise self._corrupt(position)
        return found

    def _corrupt(self, position: int) -> CorruptRecords:
        return CorruptRecords(
            f"{self.file.path} has no whole batch at position {position} of {self.size}; "
            f"run `penstock log verify {self.directory}` and restart the broker to recover"
        )

    def _check_offset(self, position: int, last_offset: int) -> None:
        """Of a batch that was not checked: no index has room for one of elsewhere."""
        if not 0 <= last_offset - self.base_offset <= MAX_RELATIVE_OFFSET:
            raise self._corrupt(position)

    def read_batch(self, placed: LocatedBatch) -> bytes:
        length = placed.end_position - placed.position
        descriptor = self._handles.descriptor(self.file)
        return read_fully(self._disk, descriptor, length, placed.position)

    def scan(self, *, check_crc: bool, start: int = 0) -> Scan:
        return Scan(
            self._disk,
            self._handles.descriptor(self.file),
            start=start,
            end=self.size,
            check_crc=check_crc,
        )

    # -- going on after a stop or a cut ------------------------------------------------------

    def resume(self, size: int) -> None:
        """Become active with the file as it is: take the indexes from disk, look at the tail only.

        CorruptRecords where the file does not end with a whole batch: then it needs recovery.
        """
        self.size = size
        self._aborted = None
        self.offset_index.load(self._disk)
        self.time_index.load(self._disk)
        self.is_active = True
        self._max_timestamp = None
        self._settle_indexes()

    def cut(self, position: int, offset: int) -> None:
        """End at a batch boundary; batches from `offset` on are gone, also after a power cut: else
        they could come back in front of newer ones that went to the next segment."""
        self.truncate_file(position)
        aborted = [entry for entry in self.aborted if entry.last_offset < offset]
        if len(aborted) < len(self.aborted):
            self.rewrite_aborted(aborted)
        self.resume(position)

    def truncate_file(self, position: int) -> None:
        """End the file here, durably; nothing else is touched."""
        descriptor = self._handles.descriptor(self.file)
        self._disk.truncate(descriptor, position)
        self._disk.sync(descriptor)
        self.size = position

    def rewrite_indexes(self) -> None:
        """Make the index files hold just what memory knows."""
        self._add_time_entry()
        self.offset_index.rewrite(self._disk)
        self.time_index.rewrite(self._disk)

    def rebuild_indexes(self) -> None:
        """From the batches themselves; the file must be whole."""
        aborted = self._aborted
        size = self.size
        self.start_indexes()
        self._aborted = aborted
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
            for placed in self._read_headers(position):
                header = placed.header
                self._check_offset(placed.position, header.last_offset)
                if header.max_timestamp > self._max_timestamp:
                    self._max_timestamp = header.max_timestamp
                    self._max_timestamp_offset = header.last_offset
                position = placed.end_position

    # -- aborted transactions --------------------------------------------------------------

    @property
    def transaction_index_path(self) -> str:
        return f"{self.directory}/{file_name(self.base_offset, TRANSACTION_INDEX_SUFFIX)}"

    @property
    def aborted(self) -> list[AbortedTxn]:
        if self._aborted is None:
            content = read_file(self._disk, self.transaction_index_path) or b""
            self._aborted = decode_entries(content, self.transaction_index_path)
        return self._aborted

    def note_aborted(self, entry: AbortedTxn) -> None:
        self.aborted.append(entry)
        self._put_aborted(CREATE, encode_entry(entry))

    def rewrite_aborted(self, entries: list[AbortedTxn]) -> None:
        """Make the index hold just these; an index without entries has no file."""
        self._aborted = entries
        if entries:
            self._put_aborted(REPLACE, b"".join(map(encode_entry, entries)))
        elif self._disk.exists(self.transaction_index_path):
            self._disk.unlink(self.transaction_index_path)

    def store_aborted(self) -> None:
        """Let the file say what memory knows, at every moment all of it or what it said before: of
        a segment that is known to be durable, nobody checks it after a crash."""
        content = b"".join(map(encode_entry, self.aborted))
        if content == (read_file(self._disk, self.transaction_index_path) or b""):
            return
        if content:
            replace_file(self._disk, self.transaction_index_path, content)
        else:
            self._disk.unlink(self.transaction_index_path)

    def _put_aborted(self, flags: int, content: bytes) -> None:
        descriptor = self._disk.open(self.transaction_index_path, flags)
        try:
            write_fully(self._disk, descriptor, content)
        finally:
            self._disk.close(descriptor)
