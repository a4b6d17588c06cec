"""Received bytes of one connection, cut into frames. Not the socket's owner.

Invariants: memory grows with what has arrived, never with what a frame claims; a frame lies in one
piece, and is seldom moved to get there.
"""

import socket
from collections.abc import Callable

from penstock.network.receive_memory import SMALL_BYTES, ReceiveMemory
from penstock.protocol.frames import SIZE_BYTES, read_frame_size

STEP_BYTES = 64 * 1024  # larger buffers are multiples of it, so that the next like frame fits


class ReceiveBuffer:
    """Owned by its connection.

    What arrives whole is served from the memory that all share. What is left over moves to a
    pocket, if small, or to a buffer of its own, where the rest of the frame is received in place.
    """

    __slots__ = (
        "_buffer",
        "_end",
        "_is_spare",
        "_max_frame_bytes",
        "_memory",
        "_need",
        "_on_memory",
        "_start",
        "capacity",
        "wish",
    )

    def __init__(
        self, memory: ReceiveMemory, *, max_frame_bytes: int, on_memory: Callable[[], None]
    ) -> None:
        self._memory = memory
        self._max_frame_bytes = max_frame_bytes
        self._on_memory = on_memory  # what this inbox waited for has been granted
        self._buffer: memoryview | None = None  # None: the shared one
        self.capacity = 0  # of its own buffer
        self.wish = 0  # the capacity that it waits for
        self._start = self._end = 0  # the bytes received and not yet taken
        self._need = 0  # of the first frame with its size; 0: not known yet
        self._is_spare = False  # has a buffer, and nothing in it

    @property
    def size(self) -> int:
        return self._end - self._start

    @property
    def is_clear(self) -> bool:
        """Nothing is received that was not taken, and no memory is held: there is no more to do."""
        return self._end == self._start and not self.capacity

    @property
    def is_filling(self) -> bool:
        """More of a frame has arrived that is not whole, and there is room: all stays as it was."""
        return self._end - self._start < self._need and self._end < self.capacity

    @property
    def has_frame(self) -> bool:
        """A whole one, as far as is known; what is wrong with it shows when it is taken."""
        size = self._end - self._start
        return size >= (self._need or SIZE_BYTES + 1)

    def receive(self, sock: socket.socket) -> int:
        """One system call; 0 at the end of the stream, BlockingIOError if nothing is there."""
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
        """The next whole frame, without its size, valid until the next receive or settling."""
        buffer = self._buffer
        if buffer is None:
            buffer = self._memory.shared
        start, end = self._start, self._end
        need = self._need
        if not need:
            if end - start < SIZE_BYTES:
                return None
            size = read_frame_size(
                buffer[start : start + SIZE_BYTES], max_bytes=self._max_frame_bytes
            )
            self._need = need = size + SIZE_BYTES
        if end - start < need:
            return None
        self._start = stop = start + need
        self._need = 0
        return buffer[start + SIZE_BYTES : stop]

    def settle(self, *, wants_more: bool, may_wait: bool) -> bool:
        """After a turn: keep what is left, make room for more. False: there is none; who may wait
        is told by `on_memory`."""
        if self._buffer is None:
            if self._start == self._end:
                self._start = self._end = 0
                return True
            self._keep_rest()
        elif self._start == self._end:
            self._rest()
            return True
        return self._make_room(may_wait) if wants_more else True

    def grow(self) -> None:
        """Take up what was wished for; the memory for it has been granted."""
        self._move_to(bytearray(self.wish))
        self.wish = 0

    def grow_later(self) -> None:
        """For the memory: the wish of one that waited is granted."""
        self.grow()
        self._on_memory()

    def drop_spare(self) -> None:
        """Give up a buffer that is kept for the next frame."""
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

    def _receive_own(self, sock: socket.socket) -> int:
        assert self._buffer is not None
        end, stop = self._end, self.capacity
        if self._need:
            # A large frame is read to its end and no further: the next one begins at the front.
            frame_end = self._start + self._need
            if frame_end - end >= STEP_BYTES or self._memory.is_favoured(self):
                stop = min(stop, frame_end)
        count = sock.recv_into(self._buffer[end:stop])
        if self._is_spare:
            self._memory.use_spare(self)
            self._is_spare = False
        self._end = end + count
        return count

    def _keep_rest(self) -> None:
        """From the shared memory to our own."""
        rest = self._memory.shared[self._start : self._end]
        self.capacity = SMALL_BYTES if len(rest) <= SMALL_BYTES else self._fitting_capacity()
        self._memory.take(self.capacity)
        self._buffer = memoryview(bytearray(self.capacity))
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def _rest(self) -> None:
        """Nothing is left: keep a large buffer for the next frame, if memory is not short."""
        self._start = self._end = 0
        if self._is_spare:
            return
        if self.capacity <= SMALL_BYTES or self._memory.is_favoured(self):
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
        """Twice what is there, but no more than the first frame needs."""
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
