"""A segment file with its offset and time index: finds batches by offset, position or timestamp.

Reads only; `Segment` fills the indexes. An index entry is a hint: an entry that the log does not
confirm is ignored, and the search starts at the front of the file.
"""

from typing import Final

from penstock.io.disk import Disk
from penstock.model.ids import Offset
from penstock.protocol.batch import HEADER, BatchHeader
from penstock.storage.errors import CorruptRecords
from penstock.storage.handles import Handles
from penstock.storage.segment_file import LocatedBatch, SegmentFile
from penstock.storage.sparse_index import OFFSET_INDEX, TIME_INDEX, SparseIndex

_SKIPPED_BYTES: Final = 1 << 20  # of batches without records, in one read


class IndexedSegment(SegmentFile):
    """Owned by its log."""

    __slots__ = ("_max_timestamp", "_max_timestamp_offset", "offset_index", "time_index")

    def __init__(self, disk: Disk, handles: Handles, directory: str, base_offset: int) -> None:
        super().__init__(disk, handles, directory, base_offset)
        stem = f"{directory}/{base_offset:020d}"
        self.offset_index = SparseIndex(stem + OFFSET_INDEX.suffix, OFFSET_INDEX, handles)
        self.time_index = SparseIndex(stem + TIME_INDEX.suffix, TIME_INDEX, handles)
        self._max_timestamp: int | None = None  # None: not looked up yet
        self._max_timestamp_offset = base_offset

    # -- by offset -------------------------------------------------------------------------

    def find_batch(self, offset: int) -> LocatedBatch | None:
        """The first batch whose last offset is not below `offset`; None past the end."""
        entry = self.offset_index.find_floor(offset - self.base_offset)
        if entry is not None:
            try:
                return self._find_offset(entry.value, offset)
            except CorruptRecords:
                pass  # a damaged entry: it points at no batch at or before the offset
        return self._find_offset(0, offset)

    def _find_offset(self, start: int, offset: int) -> LocatedBatch | None:
        for position, base, last, _, content, cursor in self._steps(start):
            if position == start > 0 and not self.base_offset <= base <= offset:
                raise self._corrupt(start)
            if last >= offset:
                header = BatchHeader._make(HEADER.unpack_from(content, cursor))
                return LocatedBatch(position, header)
        return None

    def find_last_batch(self) -> LocatedBatch | None:
        """Search from the last index entry on; CorruptRecords if the file ends within a batch."""
        if self.size == 0:
            return None
        entry = self.offset_index.find_last()
        position = entry.value if entry is not None and self.has_batch_at(entry.value) else 0
        batch = self._read_headers(position)[-1]
        while batch.end_position < self.size:
            batch = self._read_headers(batch.end_position)[-1]
        return batch

    # -- by position -----------------------------------------------------------------------

    def find_batch_with_records(self, start: int) -> LocatedBatch | None:
        """The first batch from this batch boundary on that compaction has not emptied.

        After many without records it is just the next one, so that no read takes long.
        """
        for position, _, _, _, content, cursor in self._steps(start):
            header = BatchHeader._make(HEADER.unpack_from(content, cursor))
            if header.record_count or position - start >= _SKIPPED_BYTES:
                return LocatedBatch(position, header)
        return None

    def find_end_offset(self, boundary: int) -> Offset:
        """The end offset of the batches before this batch boundary."""
        entry = self.offset_index.find_floor_by_value(boundary - 1)
        position = entry.value if entry is not None and self.has_batch_at(entry.value) else 0
        end_offset = self.base_offset
        while position < boundary:
            for batch in self._read_headers(position):
                if batch.position < boundary:
                    end_offset, position = batch.header.next_offset, batch.end_position
        return Offset(end_offset)

    def find_whole_end(self, start: int, limit: int) -> tuple[int, int | None]:
        """The largest batch boundary in [start, limit], where `start` is one.

        With it comes the offset that begins there, or None at the end of the segment.
        """
        if limit >= self.size:
            return self.size, None
        entry = self.offset_index.find_floor_by_value(limit)
        if entry is not None and entry.value > start:
            try:
                return self._find_end_from(entry.value, limit)
            except CorruptRecords:
                pass  # a damaged entry
        return self._find_end_from(start, limit)

    def _find_end_from(self, start: int, limit: int) -> tuple[int, int | None]:
        for position, base, _, end, _, _ in self._steps(start):
            if base < self.base_offset:
                raise self._corrupt(position)
            if end > limit:
                return position, base
        return self.size, None

    # -- by timestamp ----------------------------------------------------------------------

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, -1 if there is none."""
        timestamp = self._max_timestamp
        return self._load_max_timestamp() if timestamp is None else timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch with the largest timestamp."""
        return self._max_timestamp_offset if self.max_timestamp >= 0 else self.base_offset

    def _load_max_timestamp(self) -> int:
        """Take it from the last time entry if the log confirms it, else from the log itself."""
        last, tail = self.time_index.find_last(), self.find_last_batch()
        if (
            last is not None
            and tail is not None
            and tail.header.max_timestamp <= last.key
            and self._confirms(last.key, self.base_offset + last.value)
        ):
            timestamp = self._max_timestamp = last.key
            self._max_timestamp_offset = self.base_offset + last.value
            return timestamp
        timestamp = -1
        for _, header, _ in self.scan(check_crc=False):
            if header.max_timestamp > timestamp:
                timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset
        self._max_timestamp = timestamp
        return timestamp

    def _confirms(self, timestamp: int, offset: int) -> bool:
        batch = self.find_batch(offset)
        return batch is not None and batch.header.max_timestamp == timestamp

    def find_batch_by_time(self, timestamp_ms: int) -> LocatedBatch | None:
        """The first batch whose largest timestamp is not below `timestamp_ms`."""
        position = self._position_by_time(timestamp_ms)
        return self._find_from(position, lambda header: header.max_timestamp >= timestamp_ms)

    def find_batch_appended_after(self, timestamp_ms: int, start: int) -> LocatedBatch | None:
        """The first batch with an offset from `start` on whose append time is later. A producer's
        time is no append time."""
        first = self.find_batch(start)
        if first is None:
            return None
        position = max(first.position, self._position_by_time(timestamp_ms + 1))
        return self._find_from(
            position, lambda header: header.is_append_time and header.max_timestamp > timestamp_ms
        )

    def _position_by_time(self, timestamp_ms: int) -> int:
        """A batch boundary before which every timestamp is below, near to the first that is not."""
        entry = self.time_index.find_floor(timestamp_ms)
        if entry is not None:
            batch = self.find_batch(self.base_offset + entry.value)
            if batch is not None and batch.header.max_timestamp == entry.key:
                return batch.position
        return 0
