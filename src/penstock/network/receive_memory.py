"""The memory that all connections together may hold: for requests that are still arriving, and for
copies of requests that wait.

Invariant: every connection that waits for memory gets it eventually. One connection at a time, the
favoured one, may use a reserve as large as the largest request, and has to finish within its time
limit.
"""

from typing import Protocol

SHARED_BYTES = 256 * 1024
SMALL_BYTES = 4 * 1024  # what each connection may always hold
MAX_SPARE_BYTES = 32 * 1024 * 1024
ROUNDING_BYTES = 128 * 1024  # frame size fields, and buffers that are rounded up


class Holder(Protocol):
    """The owner of a buffer: `ReceiveBuffer`."""

    capacity: int
    wish: int

    def grow_later(self) -> None: ...

    def drop_spare(self) -> None: ...


class Kept:
    """Memory for a copy; `release` it once, when the copy is dropped."""

    __slots__ = ("_count", "_memory")

    def __init__(self, memory: "ReceiveMemory", count: int) -> None:
        self._memory = memory
        self._count = count

    def release(self) -> None:
        self._memory.drop_kept(self._count)


class ReceiveMemory:
    """Owned by the event loop. A frame that arrives whole stays in `shared` and costs nothing."""

    def __init__(self, *, total_bytes: int, max_request_bytes: int) -> None:
        self._reserve_bytes = max_request_bytes + ROUNDING_BYTES
        # A budget below the reserve is raised: the largest request must stay possible.
        self._free_bytes = max(total_bytes - self._reserve_bytes, 2 * SHARED_BYTES)
        self._held_bytes = 0
        self._kept_bytes = 0  # the part held by copies
        self._spare: dict[Holder, None] = {}  # empty buffers for a next frame; oldest first
        self._spare_bytes = 0
        self._waiting: dict[Holder, None] = {}  # first come, first served
        self._favoured: Holder | None = None
        self._is_granting = False
        self.shared = memoryview(bytearray(SHARED_BYTES))

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def is_favoured(self, holder: Holder) -> bool:
        return self._favoured is holder

    def first_read_bytes(self) -> int:
        """How much may be received into the shared memory: a remainder needs memory of its own."""
        if self._free_bytes >= 2 * SHARED_BYTES and not self._waiting:
            return SHARED_BYTES
        if self._waiting or not self._make_free(2 * SHARED_BYTES):
            return SMALL_BYTES
        return SHARED_BYTES

    def take(self, count: int) -> None:
        """Take what `first_read_bytes` allowed; small buffers may overdraw the budget."""
        self._free_bytes -= count
        self._held_bytes += count

    def try_take(self, holder: Holder, *, may_wait: bool) -> bool:
        """The wish of a growing buffer. False: stop reading, until `grow_later` if it may wait. A
        buffer that cannot use the memory at once may not wait, or all others wait for it."""
        if self._favoured is holder:
            self._held_bytes += holder.wish
            return True
        if not self._waiting and self._make_free(holder.wish):
            self.take(holder.wish)
            return True
        if not may_wait:
            return False
        self._waiting[holder] = None
        if self._favoured is not None or next(iter(self._waiting)) is not holder:
            return False
        del self._waiting[holder]
        self._favour(holder)
        return True

    def try_keep(self, count: int) -> Kept | None:
        """Memory for a copy that outlives its frame. None: the client has to retry, so one copy is
        always possible, however large."""
        if self._kept_bytes and not self._make_free(count):
            return None
        self._kept_bytes += count
        self.take(count)
        return Kept(self, count)

    def drop_kept(self, count: int) -> None:
        self._kept_bytes -= count
        self._held_bytes -= count
        self._free_bytes += count
        if self._waiting:
            self._grant_waiting()

    def give_back(self, holder: Holder, count: int) -> None:
        self._held_bytes -= count
        if self._favoured is not holder:
            self._free_bytes += count
        if self._waiting:
            self._grant_waiting()

    def stop_waiting(self, holder: Holder) -> None:
        """Call it before `give_back`, or the holder may be granted its own memory."""
        self._waiting.pop(holder, None)

    def leave(self, holder: Holder) -> None:
        """Its frame is complete or its connection closed: it holds nothing and does not wait."""
        if self._favoured is holder:
            self._favoured = None
        if self._waiting:
            self._grant_waiting()

    def keep_spare(self, holder: Holder) -> None:
        self._spare[holder] = None
        self._spare_bytes += holder.capacity
        while self._spare_bytes > MAX_SPARE_BYTES:
            next(iter(self._spare)).drop_spare()
        if self._waiting:
            self._grant_waiting()

    def use_spare(self, holder: Holder) -> None:
        del self._spare[holder]
        self._spare_bytes -= holder.capacity

    def _make_free(self, count: int) -> bool:
        while self._free_bytes < count and self._spare:
            next(iter(self._spare)).drop_spare()
        return self._free_bytes >= count

    def _favour(self, holder: Holder) -> None:
        """Charge everything it holds to the reserve from here on."""
        self._favoured = holder
        self._free_bytes += holder.capacity
        self._held_bytes += holder.wish

    def _grant_waiting(self) -> None:
        if self._is_granting:  # growing gives memory back
            return
        self._is_granting = True
        while self._waiting:
            holder = next(iter(self._waiting))
            if self._make_free(holder.wish):
                self.take(holder.wish)
            elif self._favoured is None:
                self._favour(holder)
            else:
                break
            del self._waiting[holder]
            holder.grow_later()
        self._is_granting = False
