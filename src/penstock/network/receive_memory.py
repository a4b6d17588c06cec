"""The memory that all connections together may hold: for requests that are still arriving, for
copies of requests that wait, and for decoded requests in flight.

Invariants: all together never hold more than the budget, besides `SMALL_BYTES` a connection. Every
connection that waits for memory gets it eventually: one at a time, the favoured one, may use a
reserve as large as the largest request, and has to finish within its time limit. Small frames have
a reserve of their own, so that they do not wait behind large ones. Half of it is for connections
whose requests took little time so far: the others may hold theirs for long, because they wait for
their turn. Addresses take turns in every queue, and one that keeps copies leaves as much memory for
copies of the others.
"""

from collections import deque
from typing import Final, Protocol

from penstock.network.address_turns import AddressTurns

SHARED_BYTES: Final = 256 * 1024
SMALL_BYTES: Final = 4 * 1024  # what each connection may always hold
MAX_SPARE_BYTES: Final = 32 * 1024 * 1024
ROUNDING_BYTES: Final = 128 * 1024  # frame size fields, and buffers that are rounded up
SMALL_FRAME_BYTES: Final = 64 * 1024  # with the size field
# For one of them in each half, while it moves to a larger buffer.
MIN_SMALL_RESERVE_BYTES: Final = 4 * SMALL_FRAME_BYTES
MAX_SMALL_RESERVE_BYTES: Final = 32 * 1024 * 1024


class Holder(Protocol):
    """The owner of a buffer: `ReceiveBuffer`."""

    capacity: int
    wish: int
    host: str
    is_proven: bool

    @property
    def small_frame_bytes(self) -> int: ...

    def grow_later(self) -> None: ...

    def drop_spare(self) -> None: ...


class Kept:
    """Memory for a copy; `release` it once, when the copy is dropped."""

    __slots__ = ("_count", "_host", "_memory")

    def __init__(self, memory: "ReceiveMemory", host: str, count: int) -> None:
        self._memory = memory
        self._host = host
        self._count = count

    def release(self) -> None:
        self._memory.drop_kept(self._host, self._count)


class ReceiveMemory:
    """Owned by the event loop. A frame that arrives whole stays in `shared` and costs nothing."""

    def __init__(self, *, total_bytes: int, max_request_bytes: int) -> None:
        # A budget below the reserves is raised: the largest request must stay possible.
        left_bytes = max(total_bytes - max_request_bytes - ROUNDING_BYTES, 0)
        self._small_free_bytes = min(  # of the reserve for small frames
            max(left_bytes // 8, MIN_SMALL_RESERVE_BYTES), MAX_SMALL_RESERVE_BYTES
        )
        self._proven_bytes = self._small_free_bytes // 2  # the part for proven connections only
        self._free_bytes = max(left_bytes - self._small_free_bytes, 2 * SHARED_BYTES)
        self._held_bytes = 0
        self._kept_bytes = 0  # the part held by copies and by decoded requests in flight
        self._max_kept_bytes = self._free_bytes // 2  # the rest is for requests that arrive
        self._kept_by_host: dict[str, int] = {}  # no zeros
        self._spare: dict[Holder, None] = {}  # empty buffers for a next frame; oldest first
        self._spare_bytes = 0
        self._reserved: dict[Holder, int] = {}  # bytes charged to the reserve for small frames
        self._proven: AddressTurns[Holder] = AddressTurns()  # wait for a small frame, like the next
        self._small: AddressTurns[Holder] = AddressTurns()
        self._large: AddressTurns[Holder] = AddressTurns()  # wait for more
        self._waiting = deque((self._proven, self._small, self._large))  # the next favoured first
        self._favoured: Holder | None = None
        self._is_granting = False
        self.shared = memoryview(bytearray(SHARED_BYTES))

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def waiting_count(self) -> int:
        return sum(map(len, self._waiting))

    def is_favoured(self, holder: Holder) -> bool:
        return self._favoured is holder

    def uses_reserve(self, holder: Holder) -> bool:
        """It should read no further than its frame, and keep no spare buffer."""
        return self._favoured is holder or holder in self._reserved

    def first_read_bytes(self) -> int:
        """How much may be received into the shared memory: a remainder needs memory of its own."""
        # While nobody is favoured nobody waits: one look in place of three queues.
        if self._favoured is not None and self.waiting_count:
            return SMALL_BYTES
        if self._free_bytes >= 2 * SHARED_BYTES or self._make_free(2 * SHARED_BYTES):
            return SHARED_BYTES
        return SMALL_BYTES

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
        waiting = self._large
        if holder.small_frame_bytes:
            waiting = self._proven if holder.is_proven else self._small
        if not waiting and self._try_grant(holder):
            return True
        if not may_wait:
            return False
        if self._favoured is None:
            assert not self.waiting_count, "they would be favoured"
            self._favour(holder)
            return True
        waiting.add(holder.host, holder)
        return False

    def try_keep(self, host: str, count: int) -> Kept | None:
        """Memory for a copy or a decoded request that outlives its frame. None: the client has to
        retry, so one is always possible, however large."""
        left_bytes = self._max_kept_bytes - self._kept_bytes
        of_host = self._kept_by_host.get(host, 0)
        # A request may wait for as long as its client likes: an address takes half of it at most.
        is_too_much = count > left_bytes or (of_host and of_host + count > left_bytes)
        if self._kept_bytes and (is_too_much or not self._make_free(count)):
            return None
        self._kept_bytes += count
        self._kept_by_host[host] = of_host + count
        self.take(count)
        return Kept(self, host, count)

    def drop_kept(self, host: str, count: int) -> None:
        self._kept_bytes -= count
        left = self._kept_by_host.pop(host) - count
        if left:
            self._kept_by_host[host] = left
        self._held_bytes -= count
        self._free_bytes += count
        self._grant_waiting()

    def give_back(self, holder: Holder, count: int) -> None:
        self._held_bytes -= count
        reserved = self._reserved.get(holder)
        if reserved is not None:
            self._give_to_reserve(holder, reserved, count)
        elif self._favoured is not holder:
            self._free_bytes += count
        self._grant_waiting()

    def stop_waiting(self, holder: Holder) -> None:
        """Call it before `give_back`, or the holder may be granted its own memory."""
        for waiting in self._waiting:
            waiting.discard(holder.host, holder)

    def leave(self, holder: Holder) -> None:
        """Its frame is complete or its connection closed: it holds nothing and does not wait."""
        if self._favoured is holder:
            self._favoured = None
        self._grant_waiting()

    def keep_spare(self, holder: Holder) -> None:
        self._spare[holder] = None
        self._spare_bytes += holder.capacity
        while self._spare_bytes > MAX_SPARE_BYTES:
            next(iter(self._spare)).drop_spare()
        self._grant_waiting()

    def use_spare(self, holder: Holder) -> None:
        del self._spare[holder]
        self._spare_bytes -= holder.capacity

    def _make_free(self, count: int) -> bool:
        while self._free_bytes < count and self._spare:
            next(iter(self._spare)).drop_spare()
        return self._free_bytes >= count

    def _try_grant(self, holder: Holder) -> bool:
        """Charge its wish, if there is memory for it. While larger wishes wait, small frames use
        their reserve only, or the others would wait for ever."""
        frame_bytes = holder.small_frame_bytes
        if not (frame_bytes and self._large) and self._make_free(holder.wish):
            self.take(holder.wish)
            return True
        return bool(frame_bytes) and self._try_reserve(holder, frame_bytes)

    def _try_reserve(self, holder: Holder, frame_bytes: int) -> bool:
        """Charge everything it holds to the reserve for small frames from here on. It gets memory
        for the whole frame: if it waited again, all might wait for each other."""
        wish = max(holder.wish, frame_bytes)
        reserved = self._reserved.get(holder, 0)
        moved = 0 if reserved else holder.capacity
        kept_bytes = 0 if holder.is_proven else self._proven_bytes
        if moved + wish > self._small_free_bytes - kept_bytes:
            return False
        holder.wish = wish
        self._reserved[holder] = reserved + moved + wish
        self._small_free_bytes -= moved + wish
        self._free_bytes += moved
        self._held_bytes += wish
        return True

    def _give_to_reserve(self, holder: Holder, reserved: int, count: int) -> None:
        """More than it had from there belongs to the rest: it has grown out of the reserve."""
        returned = min(reserved, count)
        self._small_free_bytes += returned
        self._free_bytes += count - returned
        if reserved > returned:
            self._reserved[holder] = reserved - returned
        else:
            del self._reserved[holder]

    def _favour(self, holder: Holder) -> None:
        """Charge everything it holds to the reserve for the largest request from here on."""
        self._favoured = holder
        reserved = self._reserved.pop(holder, 0)
        self._small_free_bytes += reserved
        self._free_bytes += holder.capacity - reserved
        self._held_bytes += holder.wish

    def _grant_waiting(self) -> None:
        if self._is_granting or not (self._large or self._small or self._proven):
            return  # growing gives memory back
        self._is_granting = True
        while (holder := self._take_next()) is not None:
            holder.grow_later()
        self._is_granting = False

    def _take_next(self) -> Holder | None:
        """The next one whose wish was granted; None: there is no memory, or nobody waits."""
        for waiting in (self._proven, self._small, self._large):
            holder = waiting.find_next()
            if holder is not None and self._try_grant(holder):
                return waiting.take_next()
        if self._favoured is not None or not self.waiting_count:
            return None
        while not self._waiting[0]:
            self._waiting.rotate(-1)
        holder = self._waiting[0].take_next()
        self._waiting.rotate(-1)
        self._favour(holder)
        return holder
