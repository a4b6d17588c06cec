"""The small slices of a response, as reads of a commit log have them by the thousand: which of them
share an entry of the send queue, and how their bytes reach it.

Slices of one file with little between them come out of one read. Where a response has many of them
in the same part of a file, as a fetch of several partitions has, it maps that part once, and the
kernel takes the bytes from the map. Invariant: nobody but the kernel touches a map, because a bad
page is an error there and the end of the process here.
"""

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from penstock.model.slices import FileSlice, ScatteredSlices
from penstock.network.buffers import Buffer

# Read at once, and nothing more while as much is in memory: the allocator gets larger pieces from
# the system each time, which costs half as much again (bench/zero_copy).
COPIED_BYTES: Final = 64 * 1024
# Slices of a fetch of many partitions: two system calls per slice cost more than copying a few
# bytes and sending them with their neighbours. Half the cost up to 16 KB, more above 64 KB.
SMALL_BYTES: Final = 16 * 1024
GROUPED: Final = 512  # slices of one entry; a system call takes at most 1024 buffers
# Small slices of a file with at most so much between them are cut out of one read. A read of its
# own costs as much as copying 16 KB, for slices from 300 bytes to 16 KB.
JOINED_GAP_BYTES: Final = 16 * 1024
JOINED_BYTES: Final = 1 << 20
# A part of a file is mapped if it has so many slices, and no more bytes for each of them: mapping
# costs 0.12 us a KB, a read 0.4 us and 0.1 us a KB (docs/decisions/0080).
MAPPED_SLICES: Final = 64
MAPPED_BYTES_A_SLICE: Final = 8 * 1024
MAPPED_AT_ONCE: Final = 256 * 1024  # of a system call
# Of one response, those with the most slices: a map has a descriptor of its own until it is sent,
# and a slow client may fetch a thousand partitions that lag behind differently.
MAX_MAPS: Final = 4
_PAGE = mmap.ALLOCATIONGRANULARITY


class FileTruncated(Exception):
    """A file ended before the slice that a response, whose size was already sent, contains."""


class FileMap(NamedTuple):
    """A part of a file. It ends with the last view of it."""

    view: memoryview
    start: int


class SmallSlices(NamedTuple):
    """Small slices of one file, ascending, as one entry of a send queue."""

    fd: int
    positions: Sequence[int]
    lengths: Sequence[int]
    length: int
    mapped: FileMap | None = None

    def read(self) -> bytes:
        """Their bytes, by one read for as many neighbours as pays."""
        parts: list[Buffer] = []
        start = end = self.positions[0]
        first = 0
        for index, position in enumerate(self.positions):
            reach = position + self.lengths[index]
            if position - end > JOINED_GAP_BYTES or reach - start > JOINED_BYTES:
                self._cut(parts, start, end, slice(first, index))
                first, start = index, position
            end = reach
        self._cut(parts, start, end, slice(first, None))
        return b"".join(parts)

    def _cut(self, parts: list[Buffer], start: int, end: int, within: slice) -> None:
        """Add the bytes of neighbouring slices, which lie between start and end."""
        data = os.pread(self.fd, end - start, start)
        if len(data) < end - start:
            raise truncated(FileSlice(self.fd, start, end - start))
        if len(data) == sum(self.lengths[within]):
            parts.append(data)
        else:
            parts += self._views(memoryview(data), start, within)

    def views(self, offset: int, at_most: int) -> list[memoryview]:
        """Up to so many of their bytes from the offset on, in the map."""
        assert self.mapped is not None
        if not offset and at_most >= self.length:
            return self._views(self.mapped.view, self.mapped.start, slice(None))
        ends = list(accumulate(self.lengths))
        first = bisect_right(ends, offset)
        last = bisect_right(ends, offset + at_most)
        views = self._views(self.mapped.view, self.mapped.start, slice(first, last + 1))
        views[0] = views[0][offset - ends[first] + self.lengths[first] :]
        excess = ends[min(last, len(ends) - 1)] - offset - at_most
        if excess > 0:
            views[-1] = views[-1][: len(views[-1]) - excess]
        return views

    def _views(self, view: memoryview, start: int, within: slice) -> list[memoryview]:
        places = zip(self.positions[within], self.lengths[within], strict=True)
        return [view[position - start : position - start + size] for position, size in places]


InFile = FileSlice | SmallSlices  # asked for last: `isinstance` takes eight times `type() is`


def grouped(slices: Sequence[FileSlice], maps: "Maps | None" = None) -> list[InFile]:
    """Small slices of the same file become one entry, of as many bytes as are copied at once."""
    if type(slices) is ScatteredSlices and max(slices.lengths) <= SMALL_BYTES:
        return _groups_of(slices, None if maps is None else maps.find(slices))
    entries: list[InFile] = []
    group: list[FileSlice] = []
    size, fd, end = 0, -1, 0
    for piece in slices:
        piece_fd, position, length = piece
        if (
            size + length > COPIED_BYTES
            or piece_fd != fd
            or position < end
            or length > SMALL_BYTES
            or len(group) == GROUPED
        ):
            _end_group(entries, group, size)
            group, size, fd = [], 0, piece_fd
        end = position + length
        if length > SMALL_BYTES:
            entries.append(piece)
        elif length:
            group.append(piece)
            size += length
    _end_group(entries, group, size)
    return entries


def _end_group(entries: list[InFile], group: list[FileSlice], size: int) -> None:
    if len(group) == 1:
        entries.append(group[0])
    elif group:
        _, positions, lengths = zip(*group, strict=True)
        entries.append(SmallSlices(group[0].fd, positions, lengths, size))


def _groups_of(slices: ScatteredSlices, mapped: FileMap | None) -> list[InFile]:
    fd, positions, lengths = slices.fd, slices.positions, slices.lengths
    ends = list(accumulate(lengths))
    entries: list[InFile] = []
    first = before = 0
    at_once = COPIED_BYTES if mapped is None else MAPPED_AT_ONCE
    while first < len(ends):
        stop = min(bisect_right(ends, before + at_once), first + GROUPED)
        entries.append(
            SmallSlices(
                fd, positions[first:stop], lengths[first:stop], ends[stop - 1] - before, mapped
            )
        )
        first, before = stop, ends[stop - 1]
    return entries


class Maps:
    """The parts of files that one response maps."""

    def __init__(self, runs: Iterable[Sequence[FileSlice]]) -> None:
        self._maps: list[tuple[int, int, FileMap]] = []  # descriptor and end
        reaches = [
            (run.fd, run.positions[0], run.positions[-1] + run.lengths[-1], len(run))
            for run in runs
            if type(run) is ScatteredSlices and max(run.lengths) <= SMALL_BYTES
        ]
        reaches.sort()
        parts: list[tuple[int, int, int, int]] = []  # slices, descriptor, start and end
        fd, start, end, count = -1, 0, 0, 0
        for reach in reaches:
            if reach[0] == fd and reach[1] <= end:
                end, count = max(end, reach[2]), count + reach[3]
                continue
            parts.append((count, fd, start, end))
            fd, start, end, count = reach
        parts.append((count, fd, start, end))
        parts = [part for part in parts if _pays(*part)]
        for _, fd, start, end in sorted(parts, reverse=True)[:MAX_MAPS]:
            self._map(fd, start, end)

    def _map(self, fd: int, start: int, end: int) -> None:
        start -= start % _PAGE
        try:
            content = mmap.mmap(fd, end - start, prot=mmap.PROT_READ, offset=start)
        except (OSError, ValueError):  # too many maps, or a truncated file, which a read finds
            return
        content.madvise(mmap.MADV_WILLNEED)  # without it the faults cost a tenth more
        self._maps.append((fd, end, FileMap(memoryview(content), start)))

    def find(self, run: ScatteredSlices) -> FileMap | None:
        for fd, end, mapped in self._maps:
            if fd == run.fd and mapped.start <= run.positions[0] <= end:
                return mapped
        return None


def _pays(count: int, fd: int, start: int, end: int) -> bool:
    return count >= MAPPED_SLICES and end - start <= count * MAPPED_BYTES_A_SLICE


def truncated(piece: FileSlice) -> FileTruncated:
    return FileTruncated(
        f"file {piece.fd} ends before position {piece.position + piece.length}: it was truncated "
        "while a response with this slice was queued"
    )
