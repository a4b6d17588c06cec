"""The start offset of every leader epoch of one log (KIP-101, KIP-279), and its checkpoint.

Not the truncation protocol, only its data. Invariant: epochs and start offsets both strictly
increase from entry to entry.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from penstock.io.disk import Disk, read_file, replace_file
from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from penstock.storage.checkpoints import (
    MAX_INT,
    MAX_OFFSET,
    decode_lines,
    encode_lines,
    parse_number,
)
from penstock.storage.errors import MalformedCheckpoint

EPOCH_FILE = "leader-epoch-checkpoint"

_epoch_of = attrgetter("epoch")
_start_of = attrgetter("start_offset")


class EpochEntry(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset


class OffsetAndEpoch(NamedTuple):
    epoch: LeaderEpoch
    end_offset: Offset  # one past the epoch's last offset


class LeaderEpochCache:
    """Owned by its log, which writes the checkpoint while it is `dirty`."""

    __slots__ = ("_entries", "dirty")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)
        self.dirty = False  # True while the checkpoint on disk differs

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> LeaderEpoch:
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Start the epoch at the offset; True if that changed anything.

        For the latest epoch only an earlier start changes anything. Entries that contradict the new
        one (a later epoch, or a start at or after its own) are removed: their batches are gone.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}: both start at 0")
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(LeaderEpoch(epoch), Offset(start_offset)))
        self.dirty = True
        return True

    def find_end_offset(self, requested_epoch: int, log_end_offset: int) -> OffsetAndEpoch | None:
        """The largest epoch up to the requested one, and its end offset.

        None if the log cannot tell: no epoch was requested, or one later than its latest. An epoch
        before the first entry ends where that starts: its records are deleted, and the follower
        continues from there.
        """
        entries = self._entries
        if not entries or not 0 <= requested_epoch <= entries[-1].epoch:
            return None
        if requested_epoch == entries[-1].epoch:
            return OffsetAndEpoch(LeaderEpoch(requested_epoch), Offset(log_end_offset))
        later = bisect_right(entries, requested_epoch, key=_epoch_of)
        epoch = entries[later - 1].epoch if later else LeaderEpoch(requested_epoch)
        return OffsetAndEpoch(epoch, entries[later].start_offset)

    def find_epoch_at(self, offset: int) -> LeaderEpoch | None:
        """The epoch of the offset; the cache does not know where the log ends."""
        later = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[later - 1].epoch if later else None

    def truncate_from_end(self, offset: int) -> None:
        """Remove the epochs that start at or after the offset."""
        kept = bisect_left(self._entries, offset, key=_start_of)
        if kept < len(self._entries):
            del self._entries[kept:]
            self.dirty = True

    def truncate_from_start(self, offset: int) -> None:
        """Remove the epochs that end before the offset; the one that covers it now starts there."""
        covering = bisect_right(self._entries, offset, key=_start_of) - 1
        if covering < 0 or (covering == 0 and self._entries[0].start_offset == offset):
            return
        self._entries[covering] = EpochEntry(self._entries[covering].epoch, Offset(offset))
        del self._entries[:covering]
        self.dirty = True

    def clear(self) -> None:
        if self._entries:
            self._entries.clear()
            self.dirty = True


def read_epochs(disk: Disk, path: str) -> list[EpochEntry]:
    content = read_file(disk, path)
    return [] if content is None else decode_epochs(content, path)


def write_epochs(disk: Disk, path: str, entries: Iterable[EpochEntry]) -> None:
    replace_file(disk, path, encode_epochs(entries))


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return encode_lines(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def decode_epochs(content: bytes, path: str) -> list[EpochEntry]:
    entries: list[EpochEntry] = []
    for line, (epoch_text, offset_text) in decode_lines(content, path, fields_per_line=2):
        epoch = LeaderEpoch(parse_number(epoch_text, MAX_INT, path, line))
        start_offset = Offset(parse_number(offset_text, MAX_OFFSET, path, line))
        if entries and (epoch <= entries[-1].epoch or start_offset <= entries[-1].start_offset):
            problem = f"epoch {epoch} at offset {start_offset} does not follow the line before it"
            raise MalformedCheckpoint(path, line, problem)
        entries.append(EpochEntry(epoch, start_offset))
    return entries
