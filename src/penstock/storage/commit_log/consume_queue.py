"""The consume queue of one partition: an entry of 32 bytes per batch, by offset.

The first entries may be in a file, which is mapped when it is searched; the rest is in memory. Who
writes the file, and when, is the checkpoint's part. Invariant: base offsets strictly increase, and
times never decrease.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from struct import Struct
from typing import NamedTuple

from penstock.protocol.checksum import crc32c
from penstock.storage.handles import Handles, MappedFile

ENTRY = Struct(">qiqiq")
_pack = ENTRY.pack
ENTRY_BYTES = ENTRY.size
_CHUNK_ENTRIES = 64  # copied at a time by a reader
_MEASURED_ENTRIES = 4096
_OFFSETS = Struct(">qi")
_POSITION_AND_SIZE = Struct(">12xqi8x")  # position and size


class QueueEntry(NamedTuple):
    base_offset: int
    last_delta: int
    position: int  # of the batch in the commit log
    size: int
    time_ms: int  # the largest timestamp up to here: producers' times need not increase

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_delta + 1

    def encode(self) -> bytes:
        return ENTRY.pack(*self)


class QueueFile(NamedTuple):
    """The first entries as they are on disk."""

    path: str
    entry_count: int  # that are valid; there may be more
    crc: int  # CRC-32C of those


def name_queue(number: int, generation: int) -> str:
    """The file of a partition's queue; a generation is never used again."""
    return f"{number:010d}.{generation:010d}"


def find_generation(name: str) -> int:
    """As in the name of a queue's file; 0 if it is none."""
    number, _, generation = name.partition(".")
    return int(generation) if number.isdecimal() and generation.isdecimal() else 0


class QueueLimits(NamedTuple):
    """When a checkpoint writes the file of a queue."""

    # Fewer new entries than this are written into the checkpoint instead, because each file costs
    # a sync.
    least_saved: int = 64
    # The file is written anew once this many of its first entries, and half of it, are dropped.
    least_dropped: int = 4096


class QueueSave(NamedTuple):
    """What a checkpoint writes off the owner thread, for one queue."""

    path: str
    is_new: bool
    content: bytes  # to write at the file's end
    start: int  # index of the file's first entry
    stop: int  # index after its last one
    version: int
    crc_before: int  # of what the file has already

    @property
    def crc(self) -> int:
        return crc32c(self.content, self.crc_before)


class ConsumeQueue:
    """Owned by its log. An index counts entries from the first that was ever in the file."""

    def __init__(self, handles: Handles, saved: QueueFile | None = None, first: int = 0) -> None:
        self._handles = handles
        self._saved = saved
        self._file = None if saved is None else MappedFile(saved.path)
        self._saved_count = 0 if saved is None else saved.entry_count
        self._tail = bytearray()
        self.first = first  # index of the first live entry
        self.end = self._saved_count  # index after the last one
        self.version = 0  # counts every change but appends
        self._is_file_stale = False  # it has entries that a change has made void
        self._last_time: int | None = None  # of the last entry; None: not known
        self._measured = (-1, 0, 0, 0)  # version, first index, index after the last, bytes

    def __len__(self) -> int:
        return self.end - self.first

    # -- changing --------------------------------------------------------------------------

    def append(
        self, base_offset: int, last_delta: int, position: int, size: int, max_timestamp: int
    ) -> None:
        """An entry whose time is the running maximum."""
        time_ms, end = self._last_time, self.end
        if time_ms is None:
            time_ms = self._last_time = self.entry(end - 1).time_ms if end else max_timestamp
        if max_timestamp > time_ms or end == self.first:
            time_ms = self._last_time = max_timestamp
        self._tail += _pack(base_offset, last_delta, position, size, time_ms)
        self.end = end + 1

    def extend(self, content: bytes | memoryview) -> None:
        self._tail += content
        self.end += len(content) // ENTRY_BYTES
        self._last_time = None

    def truncate(self, end: int) -> None:
        """Drop the entries from index `end` on."""
        if end < self._saved_count:
            self._saved_count = end
            self._tail.clear()
        else:
            del self._tail[(end - self._saved_count) * ENTRY_BYTES :]
        self.end = end
        self.first = min(self.first, end)
        self.version += 1
        self._last_time = None

    def drop_before(self, index: int) -> None:
        self.first = max(self.first, index)

    def clear(self) -> None:
        self.truncate(self.first)

    def replace(self, start: int, stop: int, entries: bytes) -> None:
        """Put other entries in the place of [start, stop). Indexes from before are void."""
        shift = self._load()
        self._tail[(start - shift) * ENTRY_BYTES : (stop - shift) * ENTRY_BYTES] = entries
        self.end = len(self._tail) // ENTRY_BYTES
        self._last_time = None

    def move(self, index: int, position: int) -> None:
        """The entry's batch is at another position now. Indexes found before are void."""
        entry = self.entry(index)
        at = (index - self._load()) * ENTRY_BYTES
        ENTRY.pack_into(self._tail, at, *entry._replace(position=position))

    def _load(self) -> int:
        """Hold all live entries in memory, because those in the file must not be written over.

        Returns by how much every index falls.
        """
        shift = self.first
        if self._file is not None:
            self._tail = bytearray(self._read(shift, self.end))
            self.release()
            self._saved_count, self._saved, self._file = 0, None, None
        elif shift:
            del self._tail[: shift * ENTRY_BYTES]
        self.first, self.end = 0, self.end - shift
        self.version += 1
        return shift

    def release(self) -> None:
        if self._file is not None:
            self._handles.unmap(self._file)

    # -- reading ---------------------------------------------------------------------------

    def entry(self, index: int) -> QueueEntry:
        buffer, at = self._at(index)
        return QueueEntry._make(ENTRY.unpack_from(buffer, at))

    def entries(self, start: int, stop: int) -> Iterator[QueueEntry]:
        for index in range(start, min(stop, self.end)):
            yield self.entry(index)

    def fields_from(self, start: int, at_most: int) -> Iterator[tuple[int, ...]]:
        """The fields of the entries from index `start` on; changes meanwhile do not show."""
        for first in range(start, min(self.end, start + at_most), _CHUNK_ENTRIES):
            stop = min(first + _CHUNK_ENTRIES, self.end, start + at_most)
            yield from ENTRY.iter_unpack(self._read(first, stop))

    def last(self) -> QueueEntry | None:
        return self.entry(self.end - 1) if self.end > self.first else None

    def measure(self, start: int, stop: int) -> int:
        """Bytes of the batches in [start, stop). Asked again, it counts only what is new."""
        version, counted_from, counted_to, size = self._measured
        if (version, counted_from) != (self.version, start) or counted_to > stop:
            counted_to, size = start, 0
        size += self.measure_anew(counted_to, stop)
        self._measured = self.version, start, max(start, stop), size
        return size

    def measure_anew(self, start: int, stop: int) -> int:
        size = 0
        for first in range(start, stop, _MEASURED_ENTRIES):
            content = self._read(first, min(first + _MEASURED_ENTRIES, stop))
            size += sum([fields[3] for fields in ENTRY.iter_unpack(content)])
        return size

    def find(self, offset: int) -> int:
        """The index of the first live entry whose last offset is not below `offset`."""
        return bisect_left(range(self.end), offset, lo=self.first, key=self._last_offset)

    def find_time(self, time_ms: int) -> int:
        """The index of the first live entry whose time is not below `time_ms`."""
        return bisect_left(range(self.end), time_ms, lo=self.first, key=self._time)

    def _last_offset(self, index: int) -> int:
        buffer, at = self._at(index)
        base_offset, last_delta, _, _, _ = ENTRY.unpack_from(buffer, at)
        return int(base_offset + last_delta)

    def _time(self, index: int) -> int:
        buffer, at = self._at(index)
        return int(ENTRY.unpack_from(buffer, at)[4])

    def _at(self, index: int) -> tuple[bytearray | memoryview | bytes, int]:
        saved = self._saved_count
        if index >= saved:
            return self._tail, (index - saved) * ENTRY_BYTES
        return self._content(), index * ENTRY_BYTES

    def _content(self) -> bytes:
        assert self._file is not None
        content = self._handles.content(self._file)
        if content is None or len(content) < self._saved_count * ENTRY_BYTES:
            raise OSError(f"consume queue {self._file.path} is too short; restart the broker")
        return content  # type: ignore[return-value]  # a map works as bytes do

    def _read(self, start: int, stop: int) -> bytes:
        saved = min(stop, self._saved_count)
        parts = b""
        if start < saved:
            parts = bytes(self._content()[start * ENTRY_BYTES : saved * ENTRY_BYTES])
        first = max(start, self._saved_count) - self._saved_count
        last = max(0, stop - self._saved_count)
        return parts + bytes(self._tail[first * ENTRY_BYTES : last * ENTRY_BYTES])

    # -- saving ----------------------------------------------------------------------------

    def places_from(
        self, start: int, below: int, max_bytes: int, at_most: int
    ) -> tuple[list[int], list[int]]:
        """Positions and sizes of the batches from index `start` on whose offsets are all below
        `below`, up to so many bytes. By columns, which costs a third of a loop."""
        positions: list[int] = []
        sizes: list[int] = []
        stop = min(self.end, start + at_most)
        left, chunk = max_bytes, _CHUNK_ENTRIES
        while start < stop:
            end = min(start + chunk, stop)
            content = self._read(start, end)
            count = _count_below(content, below)
            if not count:
                break
            columns = zip(
                *_POSITION_AND_SIZE.iter_unpack(content[: count * ENTRY_BYTES]), strict=True
            )
            chunk_positions, chunk_sizes = columns
            ends = list(accumulate(chunk_sizes))
            count = bisect_right(ends, left)
            positions += chunk_positions[:count]
            sizes += chunk_sizes[:count]
            if count < end - start:
                break
            left -= ends[-1]
            start, chunk = end, chunk * 4
        return positions, sizes

    @property
    def saved(self) -> QueueFile | None:
        """The file, and how many of its entries are valid."""
        if self._saved is not None and self._saved.entry_count != self._saved_count:
            content = memoryview(self._content())[: self._saved_count * ENTRY_BYTES]
            crc = crc32c(content)
            content.release()  # so that the map can be closed
            return QueueFile(self._saved.path, self._saved_count, crc)
        return self._saved

    @property
    def unsaved(self) -> bytes:
        """The live entries that only memory holds."""
        start = max(self.first, self._saved_count)
        return bytes(self._tail[(start - self._saved_count) * ENTRY_BYTES :])

    @property
    def unsaved_count(self) -> int:
        return self.end - max(self.first, self._saved_count)

    def plan_save(self, new_path: str, limits: QueueLimits) -> QueueSave:
        """What to write so that the file holds every entry of now.

        Entries that a checkpoint on disk counts on are never written over.
        """
        saved, count = self._saved, self._saved_count
        is_stale = self._is_file_stale or saved is None or saved.entry_count != count
        if is_stale or (self.first > limits.least_dropped and self.first > self.end // 2):
            content = self._read(self.first, self.end)
            return QueueSave(new_path, True, content, self.first, self.end, self.version, 0)
        assert saved is not None
        content, crc = bytes(self._tail), saved.crc
        return QueueSave(saved.path, False, content, 0, self.end, self.version, crc)

    def end_save(self, save: QueueSave, crc: int) -> None:
        """The file has the planned content, and all of it this CRC.

        Entries appended meanwhile stay in memory. After any other change the save is forgotten.
        """
        if save.version != self.version:
            self._is_file_stale = self._is_file_stale or not save.is_new
            return
        kept = self._read(save.stop, self.end)
        self.release()
        count = save.stop - save.start
        self._saved = QueueFile(save.path, count, crc)
        self._file, self._saved_count = MappedFile(save.path), count
        self._tail = bytearray(kept)
        if save.start:
            self.first, self.end = self.first - save.start, self.end - save.start
            self.version += 1  # indexes found before are void
        self._is_file_stale = False


def _count_below(content: bytes, below: int) -> int:
    """How many of the entries, from the first on, have offsets below this one only."""

    def last_offset(index: int) -> int:
        base_offset, last_delta = _OFFSETS.unpack_from(content, index * ENTRY_BYTES)
        return int(base_offset + last_delta)

    count = len(content) // ENTRY_BYTES
    if last_offset(count - 1) < below:  # nearly always
        return count
    return bisect_left(range(count), below, key=last_offset)
