"""Which messages are due, and when the next one is. Rebuilt from the log, never replicated.

Messages of the next hour are in a heap; those of later hours in one run per hour, which a
`RunStore` keeps outside of memory and which is sorted when its hour comes near. A message is known
by its number and the offset of its record, never by a position in a file. Invariant: every message
that was added and has not been taken is in the heap or in exactly one run.
"""

import heapq
import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from penstock.coordinators.deferred.values import Target

HOUR_MS = 3_600_000
_BUFFERED_BYTES = 64 * 1024  # of one run, before they are stored
_ENTRY = struct.Struct(">qqqii")


class DueEntry(NamedTuple):
    """Sorts by when it is due, then by number."""

    due_ms: int
    number: int
    offset: int  # of its record
    size_bytes: int  # of its record, about
    target: Target


class RunStore(Protocol):
    """Bytes by hour, for one shard."""

    def append(self, hour: int, data: bytes) -> None: ...

    def take(self, hour: int) -> bytes:
        """Everything that was appended; it is removed."""


class DueIndex:
    """Owned by its shard's state."""

    def __init__(self, runs: RunStore) -> None:
        self._runs = runs
        self._near: list[DueEntry] = []  # a heap
        self._near_hours = 0  # hours below this one are in the heap
        self._far: dict[int, bytearray] = {}  # by hour: what is not stored yet; no hour is missing
        self._far_count = 0
        self._targets: list[Target] = []  # an entry in a run names its target by its index here
        self._target_indexes: dict[Target, int] = {}

    def __len__(self) -> int:
        """Including those that ended and are not taken out yet."""
        return len(self._near) + self._far_count

    def add(self, entry: DueEntry) -> None:
        if entry.due_ms // HOUR_MS < self._near_hours:
            heapq.heappush(self._near, entry)
        else:
            self._add_far(entry)

    def take_due(self, now_ms: int) -> Iterator[DueEntry]:
        """Those that are due by now, in order. Time may not move back between two calls."""
        self._load_near(now_ms)
        while self._near and self._near[0].due_ms <= now_ms:
            yield heapq.heappop(self._near)

    def next_due_ms(self) -> int | None:
        """When to look again: the next message is due, or an hour must be loaded. None: never."""
        if self._near:
            return self._near[0].due_ms
        return min(self._far) * HOUR_MS - HOUR_MS if self._far else None

    def _add_far(self, entry: DueEntry) -> None:
        due_ms, number, offset, size_bytes, target = entry
        hour = due_ms // HOUR_MS
        buffer = self._far.setdefault(hour, bytearray())
        buffer += _ENTRY.pack(due_ms, number, offset, size_bytes, self._index_of(target))
        self._far_count += 1
        if len(buffer) >= _BUFFERED_BYTES:
            self._runs.append(hour, bytes(buffer))
            buffer.clear()

    def _load_near(self, now_ms: int) -> None:
        """Everything that is due within the next hour."""
        self._near_hours = max(self._near_hours, now_ms // HOUR_MS + 2)
        for hour in [hour for hour in self._far if hour < self._near_hours]:
            for entry in self._take_run(hour):
                heapq.heappush(self._near, entry)
                self._far_count -= 1

    def _take_run(self, hour: int) -> list[DueEntry]:
        data = self._runs.take(hour) + self._far.pop(hour)
        return [
            DueEntry(due_ms, number, offset, size_bytes, self._targets[index])
            for due_ms, number, offset, size_bytes, index in _ENTRY.iter_unpack(data)
        ]

    def _index_of(self, target: Target) -> int:
        index = self._target_indexes.get(target)
        if index is None:
            index = self._target_indexes[target] = len(self._targets)
            self._targets.append(target)
        return index
