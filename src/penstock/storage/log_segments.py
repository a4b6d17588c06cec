"""The segments of one log in offset order. Only the list: files are the segment's own matter."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from penstock.storage.segment import Segment


class LogSegments:
    """Never empty once the log is open; the last one is active."""

    __slots__ = ("_bases", "_items", "active")

    active: Segment  # absent while there is none; every append asks, so it is no property

    def __init__(self, items: Iterable[Segment] = ()) -> None:
        self._items = list(items)
        self._bases = [segment.base_offset for segment in self._items]
        self._note_active()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    def __getitem__(self, place: int) -> Segment:
        return self._items[place]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._items)

    def index_of(self, offset: int) -> int:
        """Of the segment that holds `offset` if any does: the last that begins at or before it."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def starting_from(self, offset: int) -> list[Segment]:
        return self._items[self.index_of(offset) :]

    def end_offset_of(self, place: int, log_end_offset: int) -> int:
        """Where the segment's offsets end: the next one's begin."""
        return self._bases[place + 1] if place + 1 < len(self._bases) else log_end_offset

    def add(self, segment: Segment) -> None:
        assert not self._bases or segment.base_offset > self._bases[-1], "segments go up"
        self._items.append(segment)
        self._bases.append(segment.base_offset)
        self._note_active()

    def pop_last(self) -> Segment:
        self._bases.pop()
        gone = self._items.pop()
        self._note_active()
        return gone

    def pop_first(self, count: int) -> list[Segment]:
        gone = self._items[:count]
        del self._items[:count]
        del self._bases[:count]
        self._note_active()
        return gone

    def holds(self, run: list[Segment]) -> bool:
        """Whether just these stand side by side in the list."""
        place = self.index_of(run[0].base_offset)
        held = self._items[place : place + len(run)]
        return len(held) == len(run) and all(a is b for a, b in zip(held, run, strict=True))

    def replace(self, run: list[Segment], new: Segment) -> None:
        assert self.holds(run), "only segments that stand side by side can be replaced"
        place = self.index_of(run[0].base_offset)
        self._items[place : place + len(run)] = [new]
        self._bases[place : place + len(run)] = [new.base_offset]
        self._note_active()

    def _note_active(self) -> None:
        if self._items:
            self.active = self._items[-1]
