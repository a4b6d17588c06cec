"""Which messages are due, and when the next one is. Rebuilt from the log, never replicated.

Messages of this minute and the next are in a heap; those of the next hour wait in memory as bytes,
by minute; those of later hours in one run per hour, which a `RunStore` keeps outside of memory. A
message is known by its number and the offset of its record, never by a position in a file. Bytes
are unpacked a slice at a time, because an hour can have a million messages.
Invariant: every message that was added and has not been taken is in exactly one of these, and none
is taken before one that was due earlier.
"""

import heapq
import struct
import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from penstock.coordinators.deferred.values import Target

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
_BUFFERED_BYTES = 64 * 1024  # of one run, before they are stored
_ENTRY = struct.Struct(">qqqii")
_CHUNK = 1_000  # entries that are unpacked together


class DueEntry(NamedTuple):
    """Sorts by when it is due, then by number."""

    due_ms: int
    number: int
    offset: int  # of its record
    size_bytes: int  # of its record, about
    target: Target


class RunStore(Protocol):
    """Bytes by hour, for one shard. Below 0 are no hours: a `ReadyQueue` keeps its own there."""

    def append(self, hour: int, data: bytes) -> None: ...

    def take(self, hour: int) -> bytes:
        """Everything that was appended; it is removed."""


class _Unpacking(NamedTuple):
    first_ms: int  # no entry is due before
    entries: Iterator[tuple[int, int, int, int, int]]


class DueIndex:
    """Owned by its shard's state."""

    def __init__(self, runs: RunStore) -> None:
        self._runs = runs
        self._heap: list[DueEntry] = []
        self._heap_end = 0  # minutes below this one are in the heap
        self._minutes: dict[int, bytearray] = {}  # packed entries
        self._minutes_end = 0  # hours below this one are in the minutes, or the heap
        self._hours: dict[int, bytearray] = {}  # what is not stored yet; no hour is missing
        self._unpacking: deque[_Unpacking] = deque()
        self._packed_count = 0  # in minutes, hours and what is being unpacked
        self._targets: list[Target] = []  # a packed entry names its target by its index here
        self._target_indexes: dict[Target, int] = {}

    def __len__(self) -> int:
        """Including those that ended and are not taken out yet."""
        return len(self._heap) + self._packed_count

    def add(self, entry: DueEntry) -> None:
        if entry.due_ms // MINUTE_MS < self._heap_end:
            heapq.heappush(self._heap, entry)
        elif entry.due_ms // HOUR_MS < self._minutes_end:
            self._pack(self._minutes, entry.due_ms // MINUTE_MS, entry)
        else:
            self._add_to_hour(entry)

    def take_due(self, now_ms: int, limit: int | None = None) -> Iterator[DueEntry]:
        """Those that are due by now, in order. Time may not move back between two calls.

        With a limit, so many are unpacked or taken; call again when `next_due_ms` says."""
        self._begin_unpacking(now_ms)
        left = sys.maxsize if limit is None else limit
        left -= self._unpack(left)
        if self._unpacking and self._unpacking[0].first_ms <= now_ms:
            return  # one of them may be due before those in the heap
        while left > 0 and self._heap and self._heap[0].due_ms <= now_ms:
            left -= 1
            yield heapq.heappop(self._heap)

    def next_due_ms(self) -> int | None:
        """When to look again: the next message is due, or something must be loaded. None: never."""
        if self._unpacking:
            return 0
        if self._heap:
            return self._heap[0].due_ms
        if self._minutes:
            return (min(self._minutes) - 1) * MINUTE_MS
        return (min(self._hours) - 1) * HOUR_MS if self._hours else None

    def _begin_unpacking(self, now_ms: int) -> None:
        """Keeps hours and minutes ahead of the time by one each."""
        self._minutes_end = max(self._minutes_end, now_ms // HOUR_MS + 2)
        self._heap_end = max(self._heap_end, now_ms // MINUTE_MS + 2)
        begun = [
            _Unpacking(minute * MINUTE_MS, iter(_ENTRY.iter_unpack(self._minutes.pop(minute))))
            for minute in [minute for minute in self._minutes if minute < self._heap_end]
        ]
        begun += [
            _Unpacking(
                hour * HOUR_MS,
                iter(_ENTRY.iter_unpack(self._runs.take(hour) + self._hours.pop(hour))),
            )
            for hour in [hour for hour in self._hours if hour < self._minutes_end]
        ]
        if begun:
            everything = sorted([*self._unpacking, *begun], key=lambda piece: piece.first_ms)
            self._unpacking = deque(everything)

    def _unpack(self, limit: int) -> int:
        """Adds at most so many entries again; returns their number."""
        unpacked = 0
        while self._unpacking and unpacked < limit:
            some = list(islice(self._unpacking[0].entries, min(limit - unpacked, _CHUNK)))
            if not some:
                self._unpacking.popleft()
            unpacked += len(some)
            self._packed_count -= len(some)
            for due_ms, number, offset, size_bytes, index in some:
                self.add(DueEntry(due_ms, number, offset, size_bytes, self._targets[index]))
        return unpacked

    def _add_to_hour(self, entry: DueEntry) -> None:
        hour = entry.due_ms // HOUR_MS
        buffer = self._pack(self._hours, hour, entry)
        if len(buffer) >= _BUFFERED_BYTES:
            self._runs.append(hour, bytes(buffer))
            buffer.clear()

    def _pack(self, buffers: dict[int, bytearray], key: int, entry: DueEntry) -> bytearray:
        due_ms, number, offset, size_bytes, target = entry
        buffer = buffers.setdefault(key, bytearray())
        buffer += _ENTRY.pack(due_ms, number, offset, size_bytes, self._index_of(target))
        self._packed_count += 1
        return buffer

    def _index_of(self, target: Target) -> int:
        index = self._target_indexes.get(target)
        if index is None:
            index = self._target_indexes[target] = len(self._targets)
            self._targets.append(target)
        return index
