"""The `.log` file of one segment and its name: reads batch headers at positions known to others.

Knows no index and does not decide where to read. Invariant: the first `size` bytes of the file are
whole batches, in offset order.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from penstock.io.disk import APPEND, Disk, read_fully
from penstock.protocol.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD, MAGIC, BatchHeader
from penstock.storage.errors import CorruptRecords
from penstock.storage.handles import Handle, Handles
from penstock.storage.scan import Scan
from penstock.storage.sparse_index import OFFSET_INDEX, TIME_INDEX
from penstock.storage.transaction_index import TRANSACTION_INDEX_SUFFIX

LOG_SUFFIX: Final = ".log"
SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX.suffix, TIME_INDEX.suffix, TRANSACTION_INDEX_SUFFIX)
MIN_BATCH_LENGTH: Final = HEADER_BYTES - LOG_OVERHEAD
_STEP: Final = Struct(">qi4xb6xi")  # of a header: base offset, length, magic, last offset delta
_HEADERS_BYTES: Final = 4096  # one read shows the headers of many small batches


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class LocatedBatch(NamedTuple):
    """A batch's position in the file and its header."""

    position: int
    header: BatchHeader

    @property
    def end_position(self) -> int:
        return self.position + self.header[1] + LOG_OVERHEAD


class SegmentFile:
    """Owned by its log. `size` counts the bytes of whole batches."""

    __slots__ = ("_disk", "_handles", "base_offset", "directory", "file", "size")

    def __init__(self, disk: Disk, handles: Handles, directory: str, base_offset: int) -> None:
        self._disk = disk
        self._handles = handles
        self.directory = directory
        self.base_offset = base_offset
        self.file = Handle(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}", APPEND)
        self.size = 0

    def has_batch_at(self, position: int) -> bool:
        """Whether an index entry points at a batch; any batch of this segment is a valid start."""
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
        batches: list[LocatedBatch] = []
        cursor, last_cursor = 0, len(content) - HEADER_BYTES
        while cursor <= last_cursor:
            header = BatchHeader._make(HEADER.unpack_from(content, cursor))
            end = cursor + header[1] + LOG_OVERHEAD
            if (
                header[3] != MAGIC
                or end < cursor + HEADER_BYTES
                or header[6] < 0
                or position + end > size
            ):
                raise self._corrupt(position + cursor)
            batches.append(LocatedBatch(position + cursor, header))
            cursor = end
        if not batches:
            raise self._corrupt(position)
        return batches

    def _steps(self, position: int) -> Iterator[tuple[int, int, int, int, bytes, int]]:
        """Position, base offset, last offset, end position, content and header's place in it, batch
        by batch.

        Decodes only four fields of each, because most batches are skipped on the way to one.
        """
        size, unpack, descriptor = self.size, _STEP.unpack_from, -1
        while position < size:
            if descriptor < 0:
                descriptor = self._handles.descriptor(self.file)
            content = (
                self._disk.pread(descriptor, _HEADERS_BYTES, position) if position >= 0 else b""
            )
            cursor, last_cursor = 0, min(len(content), size - position) - HEADER_BYTES
            if cursor > last_cursor:
                raise self._corrupt(position)
            start = position
            while cursor <= last_cursor:
                base, length, magic, delta = unpack(content, cursor)
                end = position + length + LOG_OVERHEAD
                if magic != MAGIC or length < MIN_BATCH_LENGTH or delta < 0 or end > size:
                    raise self._corrupt(position)
                yield position, base, base + delta, end, content, cursor
                position = end
                cursor = end - start

    def _find_from(
        self, position: int, wanted: Callable[[BatchHeader], bool]
    ) -> LocatedBatch | None:
        while position < self.size:
            for batch in self._read_headers(position):
                if wanted(batch.header):
                    return batch
                position = batch.end_position
        return None

    def read_batch(self, batch: LocatedBatch) -> bytes:
        length = batch.end_position - batch.position
        descriptor = self._handles.descriptor(self.file)
        return read_fully(self._disk, descriptor, length, batch.position)

    def scan(self, *, check_crc: bool, start: int = 0) -> Scan:
        return Scan(
            self._disk,
            self._handles.descriptor(self.file),
            start=start,
            end=self.size,
            check_crc=check_crc,
        )

    def truncate_file(self, position: int) -> None:
        """Truncate and sync the `.log` file; indexes stay as they are."""
        descriptor = self._handles.descriptor(self.file)
        self._disk.truncate(descriptor, position)
        self._disk.sync(descriptor)
        self.size = position

    def _corrupt(self, position: int) -> CorruptRecords:
        return CorruptRecords(
            f"{self.file.path} has no whole batch at position {position} of {self.size}; "
            f"run `penstock log verify {self.directory}` and restart the broker to recover"
        )
