"""File slices in place of bytes: storage creates them, the network sends them. No I/O here."""

from typing import NamedTuple, Protocol


class FileSlice(NamedTuple):
    fd: int
    position: int
    length: int


class Releasable(Protocol):
    def release(self) -> None: ...


class FileRun:
    """Consecutive slices as one part of a response; its length is their number of bytes."""

    __slots__ = ("size_bytes", "slices")

    def __init__(self, slices: tuple[FileSlice, ...]) -> None:
        self.slices = slices
        if len(slices) == 1:  # nearly always
            self.size_bytes = slices[0].length
        else:
            self.size_bytes = sum(piece.length for piece in slices)

    def __len__(self) -> int:
        return self.size_bytes
