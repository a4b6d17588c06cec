"""Walks the batches of a segment file from start to end, in large reads. Changes nothing.

Stops at the first byte that cannot belong to a valid batch and says why; all batches before it are
whole.
"""

from collections.abc import Callable, Iterator

from penstock.io.disk import Disk
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
from penstock.protocol.checksum import crc32c

# Read in the caller's thread: a second thread that reads ahead costs a fifth to a third more
# processor time, and is slower unless a core is idle, because cached pages leave little to overlap.
CHUNK_BYTES = 1 << 20

# Position, header and the whole batch; the view is valid until the next step of the scan.
Scanned = tuple[int, BatchHeader, memoryview]
# Position, header fields in BatchHeader's order, and the batch's position in the scan's buffer.
# Bare tuples, because recovery walks every batch of a segment (bench/storage).
Walked = tuple[int, tuple[int, ...], int]
# Consumes any number of batches itself. Gets the buffer, the position in it where a batch starts,
# the filled length and the file position of its first byte; returns the position where it stopped.
# It must check what it consumes, including the CRC.
TakeRun = Callable[[memoryview, int, int, int], int]


class Scan:
    """One pass over a file from `start` to `end`; `position` and `problem` say how it ended."""

    def __init__(
        self,
        disk: Disk,
        descriptor: int,
        *,
        start: int = 0,
        end: int,
        check_crc: bool,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._end = end
        self._check_crc = check_crc
        self._buffer = memoryview(bytearray(max(HEADER_BYTES, min(chunk_bytes, end - start))))
        self.position = start  # end of the last valid batch
        self.problem: str | None = None  # why the scan stopped before `end`

    def __iter__(self) -> Iterator[Scanned]:
        """Whole valid batches in order."""
        for position, fields, cursor in self.walk():
            header = BatchHeader._make(fields)
            yield position, header, self.content(cursor, header.size)

    def content(self, cursor: int, size: int) -> memoryview:
        return self._buffer[cursor : cursor + size]

    def walk(self, take_run: TakeRun | None = None) -> Iterator[Walked]:
        """Like iteration, but yields header fields only, and only for batches that `take_run` did
        not consume."""
        check_crc, unpack = self._check_crc, HEADER.unpack_from
        # One generator for chunks and batches, because a nested one costs a step per batch.
        while self.problem is None and self.position < self._end:
            filled = self._fill()
            buffer, first, cursor = self._buffer, self.position, 0
            last_cursor = filled - HEADER_BYTES
            try:
                if take_run is not None:
                    cursor = take_run(buffer, 0, filled, first)
                while cursor <= last_cursor:
                    header = unpack(buffer, cursor)
                    end = cursor + header[1] + LOG_OVERHEAD
                    if (
                        header[3] != MAGIC
                        or end < cursor + HEADER_BYTES
                        or header[0] | header[6] < 0
                    ):
                        self.problem = _describe(header, self._end - first - cursor)
                        return
                    if end > filled:
                        break
                    if (
                        check_crc
                        and crc32c(buffer[cursor + ATTRIBUTES_POSITION : end]) != header[4]
                    ):
                        self.problem = f"the CRC is not {header[4]:#010x} as the header says"
                        return
                    yield first + cursor, header, cursor
                    cursor = end
                    # A producer's batch is mostly followed by another one, so do not try a run.
                    if take_run is not None and header[9] < 0:
                        cursor = take_run(buffer, cursor, filled, first)
            finally:
                self.position = first + cursor
            if cursor < filled:
                self._read_on(cursor, filled)

    def _fill(self) -> int:
        """Read from `position`: a full buffer, or the rest of the file."""
        wanted = min(len(self._buffer), self._end - self.position)
        filled = 0
        while filled < wanted:
            count = self._disk.read_into(
                self._descriptor, self._buffer[filled:wanted], self.position + filled
            )
            if count == 0:
                self._end = self.position + filled  # the file is shorter than expected
                break
            filled += count
        return filled

    def _read_on(self, cursor: int, filled: int) -> None:
        """A batch starts at `cursor` and ends after the buffer: continue from it, or report it."""
        left = self._end - self.position
        if left < HEADER_BYTES:
            self.problem = f"{left} bytes at the end are too few for a batch"
        elif filled - cursor >= HEADER_BYTES:
            size = HEADER.unpack_from(self._buffer, cursor)[1] + LOG_OVERHEAD
            if size > left:
                self.problem = f"{size} bytes announced, {left} are there"
            elif size > len(self._buffer):
                # Safe to allocate, because the file is at least that long.
                self._buffer = memoryview(bytearray(size))


def _describe(fields: tuple[int, ...], available: int) -> str:
    header = BatchHeader._make(fields)
    try:
        check_header(header, available)
    except CorruptBatch as error:
        return error.reason
    raise AssertionError(f"header {header} is sane after all")
