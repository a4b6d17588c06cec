"""The messages of one target that are due and not sent yet, in order. Derived, as the index is.

A target that refuses for long has thousands of them in memory, and the others in runs outside of
it. Invariant: the first one is in memory, and so are as many behind it as a delivery takes.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterator

from penstock.coordinators.deferred.due_index import DueEntry, RunStore
from penstock.coordinators.deferred.values import Target

MAX_IN_MEMORY = 5_000
MIN_IN_MEMORY = 1_000  # then a run is read: more than a delivery has
RUN_ENTRIES = 5_000  # a few milliseconds to read
_ENTRY = struct.Struct(">qqqi")


class ReadyQueue:
    """Owned by its shard's state."""

    def __init__(self, target: Target, runs: RunStore, new_run: Callable[[], int]) -> None:
        self._target = target
        self._runs = runs
        self._new_run = new_run  # a name that no other run of the shard has
        self._first: deque[DueEntry] = deque()
        self._stored: deque[int] = deque()  # runs of RUN_ENTRIES each
        self._last = bytearray()  # packed, and not enough for a run

    def __bool__(self) -> bool:
        return bool(self._first)

    def __iter__(self) -> Iterator[DueEntry]:
        """The first ones."""
        return iter(self._first)

    def append(self, entry: DueEntry) -> None:
        if len(self._first) < MAX_IN_MEMORY and not self._stored and not self._last:
            self._first.append(entry)
            return
        due_ms, number, offset, size_bytes, _ = entry
        self._last += _ENTRY.pack(due_ms, number, offset, size_bytes)
        if len(self._last) >= RUN_ENTRIES * _ENTRY.size:
            run = self._new_run()
            self._runs.append(run, bytes(self._last))
            self._stored.append(run)
            self._last.clear()

    def peek(self) -> DueEntry:
        return self._first[0]

    def popleft(self) -> DueEntry:
        entry = self._first.popleft()
        if len(self._first) < MIN_IN_MEMORY:
            self._load_more()
        return entry

    def _load_more(self) -> None:
        if self._stored:
            data = self._runs.take(self._stored.popleft())
        else:
            data = bytes(self._last)
            self._last.clear()
        self._first.extend(
            DueEntry(due_ms, number, offset, size_bytes, self._target)
            for due_ms, number, offset, size_bytes in _ENTRY.iter_unpack(data)
        )
