"""Replaces a run of sealed segments by one new segment, so that a crash leaves one or the other.

Renames files only: compaction writes them, and the log replaces its segments in memory. Invariant:
`<base>.log.swap` exists only from the commit of the new segment until it has its final name; before
the commit all old files are complete, after it none is needed.

    write, sync   <base>.log.cleaned, .index.cleaned, .timeindex.cleaned, .txnindex.cleaned
    commit        .cleaned -> .swap, the log last: the commit point; then sync the folder
    complete      old files -> .deleted; .swap -> final names, the log first; then sync the folder
    sweep         remove .deleted

Kafka uses the same names with the same meaning, and either can finish a swap of the other.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from penstock.io.disk import READ, Disk
from penstock.protocol.batch import MAX_OFFSET
from penstock.storage.scan import Scan
from penstock.storage.segment_file import LOG_SUFFIX, SUFFIXES, file_name

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
TEMPORARY = ".tmp"

# All but the log: renamed after it where it is first, and before it where it is last.
_COMPANIONS = tuple(suffix for suffix in SUFFIXES if suffix != LOG_SUFFIX)
_NAME = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex)(\.cleaned|\.swap)?")
_REPLACED = re.compile(r"(\d{20})\.log(\.swap|\.deleted)")
# Leftovers of our logs and of Kafka's. A user's notes.tmp is not one.
_GARBAGE = re.compile(
    r"(\d{20}\.[a-z]+|leader-epoch-checkpoint|partition\.metadata)(\.cleaned|\.deleted|\.tmp)"
)


class Swap:
    """One replacement while the broker runs. Owned by the job that wrote the new files.

    `commit`, `undo` and `complete` are a few renames and run on the log's owner thread; `discard`,
    `sweep` and syncing the folder are slow and run off it.
    """

    def __init__(
        self, disk: Disk, directory: str, *, base_offset: int, old_base_offsets: Sequence[int]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._old_base_offsets = old_base_offsets

    def path(self, suffix: str, state: str = CLEANED) -> str:
        return f"{self._directory}/{file_name(self._base_offset, suffix)}{state}"

    def commit(self) -> None:
        """A crash after the last of these renames rolls forward."""
        for suffix in (*_COMPANIONS, LOG_SUFFIX):
            _rename_if_there(self._disk, self.path(suffix, CLEANED), self.path(suffix, SWAP))

    def undo(self) -> None:
        """Take the commit back: all old files are still there until `complete`."""
        _rename_if_there(self._disk, self.path(LOG_SUFFIX, SWAP), self.path(LOG_SUFFIX, CLEANED))

    def complete(self) -> None:
        """Rename the old files away and the new ones to their final names. Sync the commit first.

        Old files go newest first, though any order would do: while `.log.swap` exists, finishing
        removes the rest of them. The new log is renamed before its companions, because a
        `.txnindex` with its final name could be the old one or the new one; while it is called
        `.swap`, it is the new one.
        """
        for base_offset in sorted(self._old_base_offsets, reverse=True):
            for suffix in SUFFIXES:
                path = f"{self._directory}/{file_name(base_offset, suffix)}"
                _rename_if_there(self._disk, path, path + DELETED)
        for suffix in SUFFIXES:
            _rename_if_there(self._disk, self.path(suffix, SWAP), self.path(suffix, ""))

    def sweep(self) -> None:
        for base_offset in self._old_base_offsets:
            for suffix in SUFFIXES:
                path = f"{self._directory}/{file_name(base_offset, suffix)}{DELETED}"
                _unlink_if_there(self._disk, path)

    def discard(self) -> None:
        """Remove the new files; nothing was committed, or it was undone."""
        log = self.path(LOG_SUFFIX, SWAP)
        assert not self._disk.exists(log), f"{log} is committed: only a restart may touch it"
        for suffix in _COMPANIONS:
            _unlink_if_there(self._disk, self.path(suffix, SWAP))
        # `.log.cleaned` distinguishes a companion's `.swap` from one after the commit, so it is
        # removed only when they are durably gone.
        self._disk.sync_directory(self._directory)
        for suffix in (*_COMPANIONS, LOG_SUFFIX):
            _unlink_if_there(self._disk, self.path(suffix, CLEANED))


class _Leftover(NamedTuple):
    name: str
    base_offset: int
    suffix: str
    state: str  # empty: a segment's file with its final name


def find_last_replaced(names: Iterable[str]) -> int:
    """The base offset of the last segment that a pass has replaced, by its leftovers; else -1.

    Call it before `finish_swaps` removes them. They are the only trace of an interrupted pass,
    because Kafka writes the cleaner checkpoint when a pass has ended.
    """
    matches = (_REPLACED.fullmatch(name) for name in names)
    return max((int(match[1]) for match in matches if match is not None), default=-1)


def finish_swaps(disk: Disk, directory: str, names: Iterable[str]) -> bool:
    """Bring a partition's folder into a valid state after a crash, as recovery's first step.

    Returns False if nothing had to change. `names` is the content of the folder. It can itself be
    interrupted anywhere and called again. Only segment files with final names, and files unrelated
    to swaps, are left.
    """
    names = list(names)
    files = [leftover for leftover in map(_parse, names) if leftover is not None]
    # Kafka renames the log to `.swap` before its companions, and splits one segment into several:
    # either is complete only once no `.cleaned` at or below is left. With our own order this finds
    # the companions of an uncommitted swap.
    first_cleaned = min((f.base_offset for f in files if f.state == CLEANED), default=MAX_OFFSET)
    void = [f for f in files if f.state == SWAP and f.base_offset >= first_cleaned]
    _remove_void(disk, directory, void)
    garbage = [name for name in names if _GARBAGE.fullmatch(name) is not None]
    for name in garbage:
        disk.unlink(f"{directory}/{name}")
    swaps = [f for f in files if f.state == SWAP and f not in void]
    if swaps:
        _roll_forward(disk, directory, files, swaps)
    has_changed = bool(garbage or void or swaps)
    if has_changed:
        disk.sync_directory(directory)
    return has_changed


def _remove_void(disk: Disk, directory: str, void: list[_Leftover]) -> None:
    """Remove them durably before the `.cleaned` files that prove them void."""
    for leftover in sorted(void, key=lambda f: f.suffix != LOG_SUFFIX):
        disk.unlink(f"{directory}/{leftover.name}")
    if void:
        disk.sync_directory(directory)


def _roll_forward(
    disk: Disk, directory: str, files: list[_Leftover], swaps: list[_Leftover]
) -> None:
    disk.sync_directory(directory)  # after a kill the commit may be in memory only
    logs = [f for f in swaps if f.suffix == LOG_SUFFIX]
    finals = sorted((f for f in files if not f.state), key=lambda f: -f.base_offset)
    for log in logs:
        last_offset = _read_last_offset(disk, f"{directory}/{log.name}", log.base_offset)
        for old in finals:
            if _is_replaced(old, log.base_offset, last_offset):
                _unlink_if_there(disk, f"{directory}/{old.name}")
    present = {f.base_offset for f in chain(logs, finals) if f.suffix == LOG_SUFFIX}
    for leftover in sorted(swaps, key=lambda f: f.suffix != LOG_SUFFIX):
        path = f"{directory}/{leftover.name}"
        if leftover.base_offset in present:
            disk.rename(path, path.removesuffix(SWAP))
        else:
            disk.unlink(path)  # belongs to no segment


def _is_replaced(old: _Leftover, base_offset: int, last_offset: int) -> bool:
    if old.base_offset == base_offset:
        return old.suffix != LOG_SUFFIX  # the rename replaces the log itself
    return base_offset < old.base_offset <= last_offset


def _read_last_offset(disk: Disk, path: str, base_offset: int) -> int:
    """The last offset of a log file, which was synced as a whole before it got its name."""
    descriptor = disk.open(path, READ)
    try:
        last_offset = base_offset
        for _, header, _ in Scan(disk, descriptor, end=disk.size(descriptor), check_crc=False):
            last_offset = header.last_offset
        return last_offset
    finally:
        disk.close(descriptor)


def _parse(name: str) -> _Leftover | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return _Leftover(name, int(match[1]), match[2], match[3] or "")


def _rename_if_there(disk: Disk, source: str, target: str) -> None:
    if disk.exists(source):
        disk.rename(source, target)


def _unlink_if_there(disk: Disk, path: str) -> None:
    if disk.exists(path):
        disk.unlink(path)
