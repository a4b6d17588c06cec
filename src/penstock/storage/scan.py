"""Walks the batches of a segment file front to back, in large reads. Changes nothing.

Stops at the first byte that cannot belong to a valid batch and says why; what came before is whole.
"""

from collections.abc import Iterator

from crc32c import crc32c

from penstock.protocol.batch import (
    ATTRIBUTES_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    check_header,
)
from penstock.storage.disk import Disk

CHUNK_BYTES = 1 << 20

# Position, header and the whole batch; the view is valid until the next step of the scan. A plain
# tuple and no checks beyond these: recovery walks every batch of a segment (bench/storage).
Scanned = tuple[int, BatchHeader, memoryview]
_new_header = BatchHeader._make


class Scan:
    """One pass over a file from `start` to `end`; `position` and `problem` tell how it ended."""

    def __init__(
        self,
        disk: Disk,
        descriptor: int,
        *,
        start: int = 0,
        end: int,
        check_crc: bool,
    ) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._end = end
        self._check_crc = check_crc
        self._buffer = memoryview(bytearray(max(HEADER_BYTES, min(CHUNK_BYTES, end - start))))
        self.position = start  # end of the last valid batch
        self.problem: str | None = None  # why the scan stopped before `end`

    def __iter__(self) -> Iterator[Scanned]:
        """Whole valid batches in order."""
        while self.problem is None and self.position < self._end:
            filled = self._fill()
            if filled == 0:
                self.problem = "the file is shorter than its size said"
            else:
                yield from self._walk(filled)

    def _fill(self) -> int:
        """Read from `position`: a full buffer, or what is left of the file."""
        wanted = min(len(self._buffer), self._end - self.position)
        filled = 0
        while filled < wanted:
            count = self._disk.read_into(
                self._descriptor, self._buffer[filled:wanted], self.position + filled
            )
            if count == 0:
                break
            filled += count
        return filled

    def _walk(self, filled: int) -> Iterator[Scanned]:
        buffer, check_crc, first, place = self._buffer, self._check_crc, self.position, 0
        unpack = HEADER.unpack_from
        while filled - place >= HEADER_BYTES:
            header = _new_header(unpack(buffer, place))
            size = header[1] + LOG_OVERHEAD
            if header[3] != MAGIC or size < HEADER_BYTES or header[6] < 0 or header[0] < 0:
                self.problem = _describe(header, self._end - first - place)
                return
            if size > filled - place:
                self._read_on(place, size)
                return
            content = buffer[place : place + size]
            if check_crc and crc32c(content[ATTRIBUTES_POSITION:]) != header[4]:
                self.problem = f"the CRC is not {header[4]:#010x} as the header says"
                return
            place += size
            self.position = first + place
            yield first + place - size, header, content
        if first + filled >= self._end and place < filled:
            self.problem = f"{filled - place} bytes at the end are too few for a batch"

    def _read_on(self, place: int, size: int) -> None:
        """The batch does not end in the buffer: read again from its start, or give up."""
        left = self._end - self.position
        if size > left:
            self.problem = f"{size} bytes announced, {left} are there"
        elif place == 0:
            # Safe to allocate: the file is as long as the header says.
            self._buffer = memoryview(bytearray(size))


def _describe(header: BatchHeader, available: int) -> str:
    try:
        check_header(header, available)
    except CorruptBatch as error:
        return error.reason
    raise AssertionError(f"header {header} is sane after all")
