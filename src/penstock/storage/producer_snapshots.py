"""The snapshot files of a log's producer state: takes, finds and drops them.

A missing or damaged snapshot only makes the replay of the log longer, so none is synced.
"""

from collections.abc import Iterable

from penstock.io.disk import REPLACE, Disk, write_fully
from penstock.storage.errors import CorruptSnapshot
from penstock.storage.producer_snapshot import (
    encode,
    find_snapshot_offset,
    read_snapshot,
    snapshot_name,
)
from penstock.storage.producer_state_manager import ProducerStateEntry


class ProducerSnapshots:
    """Owned by its log; the offsets in memory mirror the folder."""

    __slots__ = ("_directory", "_disk", "_offsets")

    def __init__(self, disk: Disk, directory: str, names: Iterable[str]) -> None:
        self._disk = disk
        self._directory = directory
        offsets = (find_snapshot_offset(name) for name in names)
        self._offsets: set[int] = {offset for offset in offsets if offset is not None}

    @property
    def offsets(self) -> list[int]:
        return sorted(self._offsets)

    def __contains__(self, offset: int) -> bool:
        return offset in self._offsets

    def take(self, offset: int, entries: Iterable[ProducerStateEntry]) -> None:
        descriptor = self._disk.open(self._path(offset), REPLACE)
        try:
            write_fully(self._disk, descriptor, encode(entries))
        finally:
            self._disk.close(descriptor)
        self._offsets.add(offset)

    def find_latest(self, at_most: int) -> tuple[int, list[ProducerStateEntry]] | None:
        """The newest valid one not above the offset; damaged ones are dropped on the way."""
        for offset in sorted((o for o in self._offsets if o <= at_most), reverse=True):
            try:
                entries = read_snapshot(self._disk, self._path(offset))
            except CorruptSnapshot:
                entries = None
            if entries is not None:
                return offset, entries
            self._drop(offset)
        return None

    def drop_above(self, offset: int) -> None:
        for dropped in [o for o in self._offsets if o > offset]:
            self._drop(dropped)

    def drop_below(self, offset: int) -> None:
        for dropped in [o for o in self._offsets if o < offset]:
            self._drop(dropped)

    def drop(self, offsets: Iterable[int]) -> None:
        for offset in self._offsets.intersection(offsets):
            self._drop(offset)

    def _drop(self, offset: int) -> None:
        self._offsets.discard(offset)
        path = self._path(offset)
        if self._disk.exists(path):
            self._disk.unlink(path)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{snapshot_name(offset)}"
