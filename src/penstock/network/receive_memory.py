"""The memory that all connections together may hold for requests: of those that are still arriving,
and for copies of those that wait for somebody else.

Invariant: whoever waits for memory gets it in the end. One connection at a time, the favoured one,
may use a reserve as large as the largest request, and it must finish within its time limit.
"""

from typing import Protocol

SHARED_BYTES = 256 * 1024
SMALL_BYTES = 4 * 1024  # what each connection may hold without asking
MAX_SPARE_BYTES = 32 * 1024 * 1024
ROUNDING_BYTES = 128 * 1024  # sizes in front of frames, buffers rounded up


class Holder(Protocol):
    """Whoever has a buffer: an inbox."""

    capacity: int
    wish: int

    def grow_later(self) -> None: ...

    def drop_spare(self) -> None: ...


class Kept:
    """Room for a copy; `release` it once, when the copy is gone."""

    __slots__ = ("_count", "_memory")

    def __init__(self, memory: "ReceiveMemory", count: int) -> None:
        self._memory = memory
        self._count = count

    def release(self) -> None:
        self._memory.drop_kept(self._count)


class ReceiveMemory:
    """Owned by the event loop. What arrives whole is served from `shared` and costs nothing."""

    def __init__(self, *, total_bytes: int, max_request_bytes: int) -> None:
        self._reserve_bytes = max_request_bytes + ROUNDING_BYTES
        # A budget below the reserve is raised: the largest request must stay possible.
        self._free_bytes = max(total_bytes - self._reserve_bytes, 2 * SHARED_BYTES)
        self._held_bytes = 0
        self._kept_bytes = 0  # of those, in copies
        self._spare: dict[Holder, None] = {}  # empty buffers, kept for a next frame; oldest first
        self._spare_bytes = 0
        self._waiting: dict[Holder, None] = {}  # first come, first served
        self._favoured: Holder | None = None
        self._is_waking = False
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
        """How much may be received into the shared memory: what is left over must find room."""
        if self._free_bytes >= 2 * SHARED_BYTES and not self._waiting:
            return SHARED_BYTES
        if self._waiting or not self._make_free(2 * SHARED_BYTES):
            return SMALL_BYTES
        return SHARED_BYTES

    def take(self, count: int) -> None:
        """What `first_read_bytes` allowed; a small buffer may overdraw, by that much each."""
        self._free_bytes -= count
        self._held_bytes += count

    def try_take(self, holder: Holder, *, may_wait: bool) -> bool:
        """The wish of a growing buffer. False: its reading stops, until `grow_later` is called
        if it may wait. Who cannot use the memory at once may not, lest all wait for it."""
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
        """For a copy that outlives its frame. Whoever gets None can only ask again, so one is
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
            self._wake()

    def give_back(self, holder: Holder, count: int) -> None:
        self._held_bytes -= count
        if self._favoured is not holder:
            self._free_bytes += count
        if self._waiting:
            self._wake()

    def stop_waiting(self, holder: Holder) -> None:
        """Before it gives back what it holds: else it might be served with that itself."""
        self._waiting.pop(holder, None)

    def leave(self, holder: Holder) -> None:
        """Its frame is through, or its connection: it holds nothing and does not wait."""
        if self._favoured is holder:
            self._favoured = None
        if self._waiting:
            self._wake()

    def keep_spare(self, holder: Holder) -> None:
        self._spare[holder] = None
        self._spare_bytes += holder.capacity
        while self._spare_bytes > MAX_SPARE_BYTES:
            next(iter(self._spare)).drop_spare()
        if self._waiting:
            self._wake()

    def use_spare(self, holder: Holder) -> None:
        del self._spare[holder]
        self._spare_bytes -= holder.capacity

    def _make_free(self, count: int) -> bool:
        while self._free_bytes < count and self._spare:
            next(iter(self._spare)).drop_spare()
        return self._free_bytes >= count

    def _favour(self, holder: Holder) -> None:
        """All it holds counts on the reserve from here on."""
        self._favoured = holder
        self._free_bytes += holder.capacity
        self._held_bytes += holder.wish

    def _wake(self) -> None:
        if self._is_waking:  # who grows gives something back
            return
        self._is_waking = True
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
        self._is_waking = False
