"""How far consumers may read a topic with a delay (`penstock.delay.ms`): its visible end.

Not the high watermark, which stays as it is for replicas and producers. Append times are the
leader's and part of the batches, so every replica finds the same visible end, up to the difference
of the brokers' clocks. Invariant: it moves back only with a truncation or another delay, even where
the clock is set back.
"""

from collections.abc import Callable
from typing import Protocol

from penstock.model.ids import Offset, TimestampMs, TopicPartition
from penstock.purgatory.delayed_operations import Call, PurgatoryTimers
from penstock.purgatory.timing_wheel import Timer
from penstock.storage.engine import PartitionLog


class VisibilityTimers(PurgatoryTimers, Protocol):
    def now_ms(self) -> int: ...


class VisibleEnd:
    """The visible end of one partition. Owned by the event loop, through `Partition`."""

    __slots__ = ("_delay_ms", "_due_ms", "_log", "_offset", "_timer", "_visible_ends")

    def __init__(self, log: PartitionLog, delay_ms: int, visible_ends: "VisibleEnds") -> None:
        self._log = log
        self._delay_ms = delay_ms
        self._visible_ends = visible_ends
        self._offset = Offset(0)  # everything before it is visible
        self._due_ms: int | None = None  # when the batch at the offset is visible; None: search
        self._timer: Timer[Call] | None = None  # wakes fetches then

    def reset(self) -> None:
        """Search again from the start: the log was truncated and may get other records."""
        self._offset, self._due_ms = Offset(0), None
        self.stop()

    def stop(self) -> None:
        """Wake nobody any more."""
        if self._timer is not None:
            self._visible_ends.timers.cancel(self._timer)
            self._timer = None

    def find(self) -> Offset:
        """The first offset that consumers may not read yet; the log end offset if there is none.
        StorageError or OSError if the log cannot be read."""
        log = self._log
        start = max(self._offset, log.log_start_offset)
        now_ms = self._visible_ends.wall_ms()
        if self._due_ms is not None:
            if start > self._offset:
                self.stop()  # that batch was deleted, and the next one may be due before it
            elif now_ms < self._due_ms:
                return start
        self._due_ms = None
        if start < log.log_end_offset:
            hidden = log.find_appended_after(TimestampMs(now_ms - self._delay_ms), start)
            if hidden is None:
                start = log.log_end_offset
            else:
                start, self._due_ms = hidden.offset, hidden.timestamp_ms + self._delay_ms
        self._offset = start
        return start

    def find_and_wake(self) -> Offset:
        """Like `find`, and check the fetches that wait for this partition when it moves on."""
        offset = self.find()
        if self._due_ms is not None and self._timer is None:
            self._timer = self._visible_ends.call_at(self._due_ms, self._on_due)
        return offset

    def _on_due(self) -> None:
        self._timer = None
        self._visible_ends.on_moved(self._log.tp)


class VisibleEnds:
    """What the visible ends of a broker's partitions share. Owned by `ReplicaManager`."""

    def __init__(
        self,
        *,
        wall_ms: Callable[[], int],
        timers: VisibilityTimers,
        on_moved: Callable[[TopicPartition], None],
    ) -> None:
        self.wall_ms = wall_ms
        self.on_moved = on_moved  # called when more may be visible
        self.timers = timers

    def create(self, log: PartitionLog) -> VisibleEnd | None:
        """By the log's config; None: consumers see records at once."""
        delay_ms = log.config.penstock_delay_ms
        return VisibleEnd(log, delay_ms, self) if delay_ms else None

    def call_at(self, due_ms: int, call: Call) -> Timer[Call]:
        """Call it at this time of the wall clock, if that is not set meanwhile."""
        wait_ms = max(1, due_ms - self.wall_ms())
        return self.timers.add(self.timers.now_ms() + wait_ms, call)
