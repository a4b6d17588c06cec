"""Walks the frames of one commit log file, in large reads, and finds the next one after damage.

Changes nothing. Every frame it returns has passed its CRC.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.io.disk import Disk
from penstock.storage.commit_log.frames import (
    ALIGNMENT,
    FRAME,
    FRAME_BYTES,
    find_candidate,
    find_problem,
    frame_bytes,
    is_plausible,
)

_CHUNK_BYTES = 1 << 20


class ScannedFrame(NamedTuple):
    """The payload is valid until the next step of the scan."""

    position: int
    kind: int
    number: int
    previous: int
    payload: memoryview


class FrameScan:
    """One pass over a file; `position` and `problem` say where and why it stopped."""

    def __init__(self, disk: Disk, descriptor: int, *, base: int, start: int, end: int) -> None:
        self.position = start  # in the commit log
        self.end = end
        self.problem = ""
        self.number: int | None = None  # the partition of the bad frame, if its header says
        self._disk = disk
        self._descriptor = descriptor
        self._base = base
        self._buffer = memoryview(bytearray(_CHUNK_BYTES))
        self._filled = 0
        self._first = start  # position of the buffer's first byte

    def __iter__(self) -> Iterator[ScannedFrame]:
        """Valid frames, up to the end or the first bad one."""
        while self.position < self.end:
            frame = self._next()
            if frame is None:
                return
            yield frame

    def _next(self) -> ScannedFrame | None:
        self.number = None
        left = self.end - self.position
        if left < FRAME_BYTES or not self._load(FRAME_BYTES):
            self.problem = f"{left} bytes at the end are too few for a frame"
            return None
        header = FRAME.unpack_from(self._buffer, self.position - self._first)
        if not is_plausible(header, self.position, left):
            self.problem = f"no frame of {left} bytes at most begins here"
            return None
        size = frame_bytes(header[1])
        self.number = header[5]
        if not self._load(size):
            self.problem = f"{size} bytes announced, the file ends before"
            return None
        cursor = self.position - self._first
        self.problem = find_problem(self._buffer, cursor, header, self.position)
        if self.problem:
            return None
        payload = self._buffer[cursor + FRAME_BYTES : cursor + FRAME_BYTES + header[1]]
        frame = ScannedFrame(self.position, header[2], header[5], header[7], payload)
        self.position += size
        return frame

    def resume(self) -> bool:
        """Go on at the next valid frame after a bad one; False if there is none in this file."""
        start = self.position
        while True:
            start = self._find_candidate(start + ALIGNMENT)
            if start < 0:
                return False
            self.position = start
            if self._next() is not None:
                self.position = start
                return True

    def _find_candidate(self, start: int) -> int:
        while self.end - start >= FRAME_BYTES:
            self.position = start
            if not self._load(FRAME_BYTES):
                break
            cursor = start - self._first
            candidate = find_candidate(self._buffer, cursor, self._filled, self._first)
            if candidate is not None:
                return self._first + candidate
            start = self._first + self._filled - self._filled % ALIGNMENT - FRAME_BYTES + ALIGNMENT
        return -1

    def _load(self, size: int) -> bool:
        """Have `size` bytes from `position` on in the buffer; False if the file ends before."""
        cursor = self.position - self._first
        if cursor >= 0 and cursor + size <= self._filled:
            return True
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        elif self._filled:
            # Payloads handed out must not change under their users.
            self._buffer = memoryview(bytearray(len(self._buffer)))
        self._first, self._filled = self.position, 0
        wanted = min(len(self._buffer), self.end - self.position)
        while self._filled < wanted:
            count = self._disk.read_into(
                self._descriptor,
                self._buffer[self._filled : wanted],
                self._first - self._base + self._filled,
            )
            if count == 0:
                break
            self._filled += count
        return self._filled >= size
