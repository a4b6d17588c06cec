"""File slices in place of bytes: storage creates them, the network sends them. No I/O here."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, overload


class FileSlice(NamedTuple):
    fd: int
    position: int
    length: int


class ScatteredSlices(Sequence[FileSlice]):
    """Many slices of one file, ascending, as two columns: a read of a commit log has thousands."""

    __slots__ = ("fd", "lengths", "positions", "size_bytes")

    def __init__(self, fd: int, positions: Sequence[int], lengths: Sequence[int]) -> None:
        self.fd = fd
        self.positions = positions
        self.lengths = lengths
        self.size_bytes = sum(lengths)

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[FileSlice]:
        for position, length in zip(self.positions, self.lengths, strict=True):
            yield FileSlice(self.fd, position, length)

    @overload
    def __getitem__(self, index: int) -> FileSlice: ...
    @overload
    def __getitem__(self, index: slice) -> "ScatteredSlices": ...
    def __getitem__(self, index: int | slice) -> "FileSlice | ScatteredSlices":
        if isinstance(index, slice):
            return ScatteredSlices(self.fd, self.positions[index], self.lengths[index])
        return FileSlice(self.fd, self.positions[index], self.lengths[index])


class Releasable(Protocol):
    def release(self) -> None: ...


class FileRun:
    """Consecutive slices as one part of a response; its length is their number of bytes."""

    __slots__ = ("size_bytes", "slices")

    def __init__(self, slices: Sequence[FileSlice]) -> None:
        self.slices = slices
        if len(slices) == 1:  # nearly always
            self.size_bytes = slices[0].length
        else:
            self.size_bytes = total_bytes(slices)

    def __len__(self) -> int:
        return self.size_bytes


def total_bytes(slices: Sequence[FileSlice]) -> int:
    if type(slices) is ScatteredSlices:
        return slices.size_bytes
    return sum(piece.length for piece in slices)
