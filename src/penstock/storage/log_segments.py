"""The segments of one log in offset order. Only the list; a segment owns its files."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from penstock.storage.segment import Segment


class LogSegments:
    """Never empty once the log is open; the last one is active."""

    __slots__ = ("_bases", "_items", "active")

    active: Segment  # absent while there is none; no property, because every append reads it

    def __init__(self, items: Iterable[Segment] = ()) -> None:
        self._items = list(items)
        self._bases = [segment.base_offset for segment in self._items]
        self._note_active()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    def __getitem__(self, index: int) -> Segment:
        return self._items[index]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._items)

    def index_of(self, offset: int) -> int:
        """The index of the last segment that starts at or before `offset`."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def starting_from(self, offset: int) -> list[Segment]:
        return self._items[self.index_of(offset) :]

    def end_offset_of(self, index: int, log_end_offset: int) -> int:
        """The segment's end offset, which is the next one's base offset."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset

    def add(self, segment: Segment) -> None:
        assert not self._bases or segment.base_offset > self._bases[-1], (
            "base offsets must increase"
        )
        self._items.append(segment)
        self._bases.append(segment.base_offset)
        self._note_active()

    def pop_last(self) -> Segment:
        self._bases.pop()
        removed = self._items.pop()
        self._note_active()
        return removed

    def pop_first(self, count: int) -> list[Segment]:
        removed = self._items[:count]
        del self._items[:count]
        del self._bases[:count]
        self._note_active()
        return removed

    def holds(self, run: list[Segment]) -> bool:
        """Whether exactly these segments are neighbours in the list."""
        index = self.index_of(run[0].base_offset)
        held = self._items[index : index + len(run)]
        return len(held) == len(run) and all(a is b for a, b in zip(held, run, strict=True))

    def replace(self, run: list[Segment], new: Segment) -> None:
        assert self.holds(run), "only neighbouring segments can be replaced"
        index = self.index_of(run[0].base_offset)
        self._items[index : index + len(run)] = [new]
        self._bases[index : index + len(run)] = [new.base_offset]
        self._note_active()

    def _note_active(self) -> None:
        if self._items:
            self.active = self._items[-1]
