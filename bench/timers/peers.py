"""The two timer implementations behind one interface."""

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Any, Protocol

from penstock.purgatory.timing_wheel import TimingWheel

START_MS = 1_000_000


class Timers(Protocol):
    def add(self, deadline_ms: int, value: object) -> Any: ...

    def cancel(self, timer: Any) -> bool: ...

    def advance_to(self, now_ms: int) -> Iterator[Any]: ...


def make_wheel() -> Timers:
    return TimingWheel(start_ms=START_MS)


class HeapTimers:
    """The recipe of Python's documentation: a cancelled entry is marked and stays until it is
    due."""

    def __init__(self) -> None:
        self._heap: list[list[Any]] = []
        self._counter = count()

    def add(self, deadline_ms: int, value: object) -> list[Any]:
        entry = [deadline_ms, next(self._counter), value]
        heapq.heappush(self._heap, entry)
        return entry

    def cancel(self, timer: list[Any]) -> bool:
        was_pending = timer[2] is not None
        timer[2] = None
        return was_pending

    def advance_to(self, now_ms: int) -> Iterator[list[Any]]:
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            entry = heapq.heappop(heap)
            if entry[2] is not None:
                yield entry
                entry[2] = None


PEERS = {"heapq": HeapTimers, "ours": make_wheel}
