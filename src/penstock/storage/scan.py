"""Walks the batches of a segment file front to back, in large reads. Changes nothing.

Stops at the first byte that cannot belong to a valid batch and says why; what came before is whole.
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

# Read in the caller's thread: a second one that reads ahead costs a fifth to a third more of the
# processor, and is slower too unless a core is idle: pages from the cache leave little to overlap.
CHUNK_BYTES = 1 << 20

# Position, header and the whole batch; the view is valid until the next step of the scan.
Scanned = tuple[int, BatchHeader, memoryview]
# Position, header fields in BatchHeader's order, and the batch's place in the scan's buffer. Bare,
# as recovery walks every batch of a segment (bench/storage).
Walked = tuple[int, tuple[int, ...], int]
# Takes in batches on its own, as many as it likes: given the buffer, a place in it where a batch
# begins, how much of it is filled and the file position of its first byte, it says at which place
# it has stopped. It answers for what it has passed, the CRC included.
TakeRun = Callable[[memoryview, int, int, int], int]


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
        for position, fields, place in self.walk():
            header = BatchHeader._make(fields)
            yield position, header, self.content(place, header.size)

    def content(self, place: int, size: int) -> memoryview:
        return self._buffer[place : place + size]

    def walk(self, take_run: TakeRun | None = None) -> Iterator[Walked]:
        """The same for those who need no more than the header of most batches, and only of those
        that `take_run` has left."""
        check_crc, unpack = self._check_crc, HEADER.unpack_from
        # One generator for chunks and batches: each one between costs every batch a step.
        while self.problem is None and self.position < self._end:
            filled = self._fill()
            buffer, first, place = self._buffer, self.position, 0
            last_place = filled - HEADER_BYTES
            try:
                if take_run is not None:
                    place = take_run(buffer, 0, filled, first)
                while place <= last_place:
                    header = unpack(buffer, place)
                    end = place + header[1] + LOG_OVERHEAD
                    if (
                        header[3] != MAGIC
                        or end < place + HEADER_BYTES
                        or header[0] | header[6] < 0
                    ):
                        self.problem = _describe(header, self._end - first - place)
                        return
                    if end > filled:
                        break
                    if check_crc and crc32c(buffer[place + ATTRIBUTES_POSITION : end]) != header[4]:
                        self.problem = f"the CRC is not {header[4]:#010x} as the header says"
                        return
                    yield first + place, header, place
                    place = end
                    # A producer's batch is mostly followed by another one: not worth asking.
                    if take_run is not None and header[9] < 0:
                        place = take_run(buffer, place, filled, first)
            finally:
                self.position = first + place
            if place < filled:
                self._read_on(place, filled)

    def _fill(self) -> int:
        """Read from `position`: a full buffer, or what is left of the file."""
        wanted = min(len(self._buffer), self._end - self.position)
        filled = 0
        while filled < wanted:
            count = self._disk.read_into(
                self._descriptor, self._buffer[filled:wanted], self.position + filled
            )
            if count == 0:
                self._end = self.position + filled  # the file is shorter than its owner thought
                break
            filled += count
        return filled

    def _read_on(self, place: int, filled: int) -> None:
        """A batch begins at `place` and does not end in the buffer: read on from it, or give up."""
        left = self._end - self.position
        if left < HEADER_BYTES:
            self.problem = f"{left} bytes at the end are too few for a batch"
        elif filled - place >= HEADER_BYTES:
            size = HEADER.unpack_from(self._buffer, place)[1] + LOG_OVERHEAD
            if size > left:
                self.problem = f"{size} bytes announced, {left} are there"
            elif size > len(self._buffer):
                # Safe to allocate: the file is as long as the header says.
                self._buffer = memoryview(bytearray(size))


def _describe(fields: tuple[int, ...], available: int) -> str:
    header = BatchHeader._make(fields)
    try:
        check_header(header, available)
    except CorruptBatch as error:
        return error.reason
    raise AssertionError(f"header {header} is sane after all")
