"""Received bytes of one connection, split into frames. It does not own the socket.

Invariants: memory grows with the bytes received, never with the size that a frame claims; a frame
is contiguous, and seldom copied to become so.
"""

import socket
from collections.abc import Callable
from typing import Final

from penstock.network.receive_memory import (
    SHARED_BYTES,
    SMALL_BYTES,
    SMALL_FRAME_BYTES,
    ReceiveMemory,
)
from penstock.network.tls_socket import TlsSocket
from penstock.protocol.frames import (
    SIZE_BYTES,
    check_frame_size,
    peek_api_key,
    read_frame_size,
)

HEAD_BYTES: Final = SIZE_BYTES + 2  # the size and the API key
UNCHECKED_BYTES: Final = 64 * 1024  # no API has a lower limit
# Larger buffers are multiples of it, so that a similar next frame fits.
STEP_BYTES: Final = SMALL_FRAME_BYTES


class ReceiveBuffer:
    """Owned by its connection.

    A frame that arrives whole is served from the shared memory. A remainder moves to a buffer of
    its own, small or large, where the rest of the frame is received in place.
    """

    __slots__ = (
        "_buffer",
        "_check_frame",
        "_end",
        "_is_spare",
        "_max_frame_bytes",
        "_memory",
        "_need",
        "_on_memory",
        "_reads",
        "_start",
        "_unchecked_bytes",
        "capacity",
        "host",
        "is_proven",
        "wish",
    )

    def __init__(
        self,
        memory: ReceiveMemory,
        *,
        host: str,
        max_frame_bytes: int,
        check_frame: Callable[[int, int], None],
        on_memory: Callable[[], None],
    ) -> None:
        self._memory = memory
        self.host = host  # the client's address
        self.is_proven = False  # its connection's last large request took little time
        self._check_frame = check_frame  # API key and size of a large frame; may refuse it
        self._max_frame_bytes = max_frame_bytes
        self._unchecked_bytes = min(UNCHECKED_BYTES, max_frame_bytes)
        self._on_memory = on_memory  # the memory that this buffer waited for was granted
        self._buffer: memoryview | None = None  # None: the shared one
        self.capacity = 0  # of its own buffer
        self.wish = 0  # the capacity that it waits for
        self._start = self._end = 0  # the bytes received and not yet taken
        self._need = 0  # bytes of the first frame with its size field; 0: not received yet
        self._is_spare = False  # holds an empty buffer for the next frame
        self._reads = 0  # by which the bytes in its own buffer came

    def limit(self, max_frame_bytes: int) -> None:
        """For frames whose size is not known yet."""
        self._max_frame_bytes = max_frame_bytes
        self._unchecked_bytes = min(UNCHECKED_BYTES, max_frame_bytes)

    @property
    def size(self) -> int:
        return self._end - self._start

    @property
    def is_clear(self) -> bool:
        """No bytes are left and no memory is held: nothing more to do."""
        return self._end == self._start and not self.capacity

    @property
    def small_frame_bytes(self) -> int:
        """The size of its frame, if that is a small one and its wish no larger; else 0."""
        is_small = self._need <= SMALL_FRAME_BYTES and self.wish <= SMALL_FRAME_BYTES
        return self._need if is_small else 0

    @property
    def is_filling(self) -> bool:
        """The frame is still incomplete and its buffer has room: nothing to do yet."""
        return self._end - self._start < self._need and self._end < self.capacity

    @property
    def has_frame(self) -> bool:
        """Probably a complete one; `take_frame` finds out whether it is valid."""
        size = self._end - self._start
        return size >= (self._need or HEAD_BYTES)

    def receive(self, sock: socket.socket | TlsSocket) -> int:
        """One system call; 0 at the end of the stream, BlockingIOError if there is nothing."""
        if self.capacity > SMALL_BYTES:
            return self._receive_own(sock)
        shared = self._memory.shared
        stop = self._memory.first_read_bytes()
        size = self._end - self._start
        if size:
            assert self._buffer is not None
            shared[:size] = self._buffer[self._start : self._end]
            count = sock.recv_into(shared[size:stop])
            self._drop_buffer()
        else:
            count = sock.recv_into(shared, stop)
        self._start, self._end = 0, size + count
        return count

    def take_frame(self) -> memoryview | None:
        """The next complete frame without its size, valid until `receive` or `finish_turn`."""
        buffer = self._buffer
        if buffer is None:
            buffer = self._memory.shared
        start, end = self._start, self._end
        need = self._need
        if not need:
            if end - start < SIZE_BYTES:
                return None
            size = read_frame_size(buffer, start)
            if size > self._unchecked_bytes:
                has_key = end - start >= HEAD_BYTES
                if has_key:  # first, because its refusal names the API
                    self._check_frame(peek_api_key(buffer[start + SIZE_BYTES : end]), size)
                check_frame_size(size, max_bytes=self._max_frame_bytes)
                if not has_key:
                    return None
            self._need = need = size + SIZE_BYTES
        if end - start < need:
            return None
        self._start = stop = start + need
        self._need = 0
        return buffer[start + SIZE_BYTES : stop]

    def put_back(self, frame: memoryview) -> None:
        """Undo the last `take_frame`: this frame has to wait."""
        self._need = len(frame) + SIZE_BYTES
        self._start -= self._need
        frame.release()

    def finish_turn(self, *, wants_more: bool, may_wait: bool) -> bool:
        """Keep what is left and make room for more. False: there is no memory; `on_memory` is
        called when there is some, if the buffer may wait."""
        if self._buffer is None:
            if self._start == self._end:
                self._start = self._end = 0
                return True
            self._keep_rest()
        elif self._start == self._end:
            self._on_empty()
            return True
        return self._make_room(may_wait) if wants_more else True

    def grow(self) -> None:
        """Grow to the wished capacity; the memory was granted."""
        self._move_to(bytearray(self.wish))
        self.wish = 0

    def grow_later(self) -> None:
        """Called by the memory when it grants the wish of a waiting buffer."""
        self.grow()
        self._on_memory()

    def drop_spare(self) -> None:
        """Free the buffer that is kept for the next frame."""
        if self._is_spare:
            self._memory.use_spare(self)
            self._is_spare = False
            self._drop_buffer()

    def close(self) -> None:
        self._memory.stop_waiting(self)
        self.drop_spare()
        self._start = self._end = self._need = 0
        if self._buffer is not None:
            self._drop_buffer()
        self._memory.leave(self)

    def _receive_own(self, sock: socket.socket | TlsSocket) -> int:
        assert self._buffer is not None
        end, stop = self._end, self.capacity
        left = 0
        if self._need:
            # A large frame is read to its end and no further: the next one starts at the front.
            # One that is complete, but was put back, leaves room for the next only.
            left = self._start + self._need - end
            if left >= STEP_BYTES or (left > 0 and self._memory.uses_reserve(self)):
                stop = min(stop, end + left)
        room = self._buffer[end:stop]
        if left > 0 and isinstance(sock, TlsSocket):
            count = sock.recv_rest(room)
        else:
            count = sock.recv_into(room)
        self._reads += 1
        if self._is_spare:
            self._memory.use_spare(self)
            self._is_spare = False
        self._end = end + count
        return count

    def _keep_rest(self) -> None:
        """Copy the remainder from the shared memory."""
        rest = self._memory.shared[self._start : self._end]
        self.capacity = SMALL_BYTES if len(rest) <= SMALL_BYTES else self._fitting_capacity()
        self._memory.take(self.capacity)
        self._buffer = memoryview(bytearray(self.capacity))
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
        self._reads = 1

    def _on_empty(self) -> None:
        """Keep a large buffer for the next frame, if memory is not short. Where all bytes came with
        one read, the shared memory serves the next frame as well, and at less cost."""
        self._start = self._end = 0
        if self._is_spare:
            return
        is_shared_enough = self._reads <= 1 and self.capacity <= SHARED_BYTES
        self._reads = 0
        if self.capacity <= SMALL_BYTES or is_shared_enough or self._memory.uses_reserve(self):
            self._drop_buffer()
            self._memory.leave(self)
        else:
            self._is_spare = True
            self._memory.keep_spare(self)

    def _make_room(self, may_wait: bool) -> bool:
        fits = self._start + self._need <= self.capacity
        if self._end < self.capacity and fits:
            return True
        if self._start:
            self._move_to_front()
        if self._end < self.capacity:
            return True
        self.wish = self._fitting_capacity()
        if not self._memory.try_take(self, may_wait=may_wait):
            return False
        self.grow()
        return True

    def _fitting_capacity(self) -> int:
        """Twice the bytes received, but no more than the first frame needs."""
        size = self._end - self._start
        wished = max(2 * size, SMALL_BYTES)
        if self._need > size:
            wished = min(wished, max(self._need, SMALL_BYTES))
        if wished < STEP_BYTES:
            return wished
        return -(-wished // STEP_BYTES) * STEP_BYTES

    def _move_to_front(self) -> None:
        assert self._buffer is not None
        size = self._end - self._start
        self._buffer[:size] = self._buffer[self._start : self._end]
        self._start, self._end = 0, size

    def _move_to(self, larger: bytearray) -> None:
        assert self._buffer is not None
        size = self._end - self._start
        moved = memoryview(larger)
        moved[:size] = self._buffer[self._start : self._end]
        self._memory.give_back(self, self.capacity)
        self._buffer, self.capacity = moved, len(larger)
        self._start, self._end = 0, size

    def _drop_buffer(self) -> None:
        self._memory.give_back(self, self.capacity)
        self._buffer, self.capacity = None, 0
