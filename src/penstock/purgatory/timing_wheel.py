"""A hierarchical timing wheel: timers in order of their time, with O(1) add and cancel.

Not a clock and not a thread: time is an argument. No timer expires before its deadline, and each
expires at the first `advance_to` a tick or more after it.
"""

import heapq
from collections.abc import Iterator
from sys import maxsize
from typing import Final, Generic, NamedTuple, TypeVar, cast

Value = TypeVar("Value")

TICK_MS: Final = 1
WHEEL_SIZE: Final = 512  # 0.5 s, 4 min and 37 h in three wheels: most timers cascade at most once


class Link:
    """A node of a bucket's ring. A timer that is in no bucket points at `UNLINKED`."""

    __slots__ = ("after", "before")

    after: "Link"
    before: "Link"


UNLINKED: Final = Link()


class Timer(Link, Generic[Value]):
    """A value and its deadline. Its wheel owns the links; they cost no object of their own."""

    __slots__ = ("deadline_ms", "value")

    def __init__(self, deadline_ms: int, value: Value) -> None:
        self.deadline_ms = deadline_ms
        self.value = value

    @property
    def is_pending(self) -> bool:
        return self.after is not UNLINKED


class TimerBucket(Link):
    """The timers of one slot, in a ring that begins and ends here."""

    __slots__ = ("level", "opens_at_tick")

    def __init__(self, level: int) -> None:
        self.level = level
        self.opens_at_tick: int | None = None  # None: not in the delay queue
        self.after = self.before = self


class WheelStatistics(NamedTuple):
    pending: int
    added: int
    expired: int
    cancelled: int
    wheels: int
    queued_buckets: int  # the length of the delay queue, never more than all slots


class TimingWheel(Generic[Value]):
    """The bottom wheel has a slot per tick, each wheel above a slot per turn of the one below.

    A bucket opens at the first tick of its slot: at the bottom its timers expire, higher up they
    cascade down. The delay queue orders buckets, not timers, so an idle wheel needs no ticks. One
    owner; adding and cancelling while iterating over `advance_to` is allowed.
    """

    def __init__(
        self, *, start_ms: int, tick_ms: int = TICK_MS, wheel_size: int = WHEEL_SIZE
    ) -> None:
        if tick_ms < 1:
            raise ValueError(f"a tick of {tick_ms} ms never passes; use 1 ms or more")
        if wheel_size < 2 or wheel_size & (wheel_size - 1):
            raise ValueError(f"a wheel of {wheel_size} slots; use a power of two from 2 up")
        self._tick_ms = tick_ms
        self._slot_bits = wheel_size.bit_length() - 1
        self._slot_mask = wheel_size - 1
        self._tick = start_ms // tick_ms  # every bucket that opened before it is empty
        self._seen_tick = self._tick  # the latest `advance_to`; never moves back
        self._wheels: list[list[TimerBucket]] = []
        self._overdue = TimerBucket(0)  # timers that were due when they were added
        # (tick, level, bucket): ticks and levels differ, so that buckets are never compared.
        self._delay_queue: list[tuple[int, int, TimerBucket]] = []
        self._added = self._expired = self._cancelled = 0

    def __len__(self) -> int:
        return self._added - self._expired - self._cancelled

    def add(self, deadline_ms: int, value: Value) -> Timer[Value]:
        timer = Timer(deadline_ms, value)
        self._insert(timer)
        self._added += 1
        return timer

    def cancel(self, timer: Timer[Value]) -> bool:
        """False if it has expired or was cancelled before. It must be a timer of this wheel."""
        if timer.after is UNLINKED:
            return False
        _unlink(timer)
        self._cancelled += 1
        return True

    def next_due_ms(self) -> int | None:
        """When to call `advance_to`: no timer expires before. None: not until one is added."""
        if self._overdue.after is not self._overdue:
            return self._tick * self._tick_ms
        bucket = self._find_first_bucket()
        if bucket is None:
            return None
        assert bucket.opens_at_tick is not None
        return bucket.opens_at_tick * self._tick_ms

    def advance_to(self, now_ms: int, *, at_most: int = maxsize) -> Iterator[Timer[Value]]:
        """Expire due timers, tick by tick; a timer counts as expired when it is yielded.

        `at_most` bounds the timers touched (expired or cascaded), so that many timers of one
        instant can be expired in turns: while some are left, `next_due_ms` is in the past. A clock
        that goes back expires nothing new.
        """
        self._seen_tick = max(self._seen_tick, now_ms // self._tick_ms)
        left = at_most
        while left > 0:
            bucket = self._next_to_open()
            if bucket is None:
                return
            opened_at = bucket.opens_at_tick
            # The last condition fails if a nested call has moved on and the slot is reused.
            while left > 0 and bucket.after is not bucket and bucket.opens_at_tick == opened_at:
                timer = cast("Timer[Value]", bucket.after)
                _unlink(timer)
                left -= 1
                if bucket.level:
                    self._insert(timer)
                else:
                    self._expired += 1
                    yield timer

    def keep_up(self, now_ms: int) -> None:
        """Move an idle wheel's time, so that a new timer does not start in the past.

        Does nothing if a bucket is due by then: `advance_to` has to open it first.
        """
        tick = now_ms // self._tick_ms
        due_ms = self.next_due_ms()
        if tick > self._tick and (due_ms is None or due_ms > now_ms):
            self._tick = tick
            self._seen_tick = max(self._seen_tick, tick)

    def statistics(self) -> WheelStatistics:
        return WheelStatistics(
            pending=len(self),
            added=self._added,
            expired=self._expired,
            cancelled=self._cancelled,
            wheels=len(self._wheels),
            queued_buckets=len(self._delay_queue),
        )

    def _next_to_open(self) -> TimerBucket | None:
        """The bucket that opens next; the wheel's time moves there."""
        if self._overdue.after is not self._overdue:
            return self._overdue
        bucket = self._find_first_bucket()
        if bucket is None or cast("int", bucket.opens_at_tick) > self._seen_tick:
            self._tick = self._seen_tick
            return None
        self._tick = cast("int", bucket.opens_at_tick)
        return bucket

    def _insert(self, timer: Timer[Value]) -> None:
        """Level l takes timers at least one and less than `size` of its slots ahead.

        Two turns never share a slot: the current one was emptied when its bucket opened. One
        function and not four, because it is the cost of a timer (bench/timers).
        """
        tick = -(-timer.deadline_ms // self._tick_ms)  # rounded up: never early
        ahead = tick - self._tick
        if ahead <= 0:
            bucket = self._overdue
        else:
            level = (ahead.bit_length() - 1) // self._slot_bits
            slot = tick >> level * self._slot_bits
            if level >= len(self._wheels):
                self._add_wheels(level)
            bucket = self._wheels[level][slot & self._slot_mask]
            if bucket.opens_at_tick is None:
                self._enqueue(bucket, slot << level * self._slot_bits)
        last = timer.before = bucket.before
        timer.after = bucket
        last.after = bucket.before = timer

    def _add_wheels(self, level: int) -> None:
        for above in range(len(self._wheels), level + 1):
            self._wheels.append([TimerBucket(above) for _ in range(self._slot_mask + 1)])

    def _enqueue(self, bucket: TimerBucket, opens_at_tick: int) -> None:
        bucket.opens_at_tick = opens_at_tick
        heapq.heappush(self._delay_queue, (opens_at_tick, bucket.level, bucket))

    def _find_first_bucket(self) -> TimerBucket | None:
        """The first bucket with timers; emptied ones are removed from the queue."""
        queue = self._delay_queue
        while queue:
            bucket = queue[0][2]
            if bucket.after is not bucket:
                return bucket
            heapq.heappop(queue)
            bucket.opens_at_tick = None
        return None


def _unlink(timer: Link) -> None:
    before, after = timer.before, timer.after
    before.after = after
    after.before = before
    timer.before = timer.after = UNLINKED
