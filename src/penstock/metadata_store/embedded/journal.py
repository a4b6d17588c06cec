"""The embedded store's files: a journal of commands, and snapshots that keep it short.

Not the store, which knows its callers. Commands survive a power cut once `append` has returned; a
crash within it leaves all of its commands, or none.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.io.disk import CREATE, Disk, read_file, read_fully, replace_file, write_fully
from penstock.logs.event_logger import NO_LOGGER, EventLogger
from penstock.metadata_store.embedded.records import (
    decode_commands,
    decode_image,
    encode_command,
    encode_image,
)
from penstock.metadata_store.embedded.znode_tree import (
    EMPTY,
    Command,
    EndAllSessions,
    Image,
    ZnodeTree,
)
from penstock.metadata_store.errors import StoreDamaged, StoreLocked

JOURNAL_FILE = "journal"
SNAPSHOT_FILE = "snapshot"
LOCK_FILE = ".lock"

_FRAME_MAGIC = b"PKj1"
_SNAPSHOT_MAGIC = b"PKs1"
_FRAME = struct.Struct(">4sIIQIq")  # magic, CRC, length, first zxid, number of commands, time
_SNAPSHOT = struct.Struct(">4sI")  # magic, CRC
_CRC_END = 8  # the CRC covers everything after it


class _Frame(NamedTuple):
    """The commands of one append, that is, of one sync of the journal."""

    first_zxid: int
    command_count: int
    now_ms: int
    commands: bytes
    end: int  # its end in the file

    @property
    def last_zxid(self) -> int:
        return self.first_zxid + self.command_count - 1


class Journal:
    """Owned by one store, which makes one call at a time, from any thread."""

    def __init__(self, disk: Disk, folder: str, lock: int) -> None:
        self.size_bytes = 0
        self.snapshot_bytes = 0
        self.folder = folder
        self._disk = disk
        self._lock = lock
        self._path = os.path.join(folder, JOURNAL_FILE)
        self._descriptor = disk.open(self._path, CREATE)

    def append(self, first_zxid: int, commands: Sequence[bytes], now_ms: int) -> None:
        """Durable when this returns. After an error nothing more may be appended."""
        frame = _encode_frame(first_zxid, commands, now_ms)
        write_fully(self._disk, self._descriptor, frame)
        self._disk.sync(self._descriptor)
        self.size_bytes += len(frame)

    def snapshot(self, image: Image) -> None:
        """Replace all commands so far by their image."""
        body = encode_image(image)
        content = _SNAPSHOT.pack(_SNAPSHOT_MAGIC, zlib.crc32(body)) + body
        replace_file(self._disk, os.path.join(self.folder, SNAPSHOT_FILE), content)
        self.snapshot_bytes = len(content)
        # Not earlier: after a crash the old snapshot needs the commands, the new one covers them.
        self._cut(0)

    def replay(self, tree: ZnodeTree, logger: EventLogger) -> None:
        """Apply all whole frames, and truncate what a crash left after them."""
        content = read_fully(self._disk, self._descriptor, self._disk.size(self._descriptor), 0)
        end = 0
        for frame in _frames(content):
            end = frame.end
            _replay_frame(tree, frame, self._path)
        if end < len(content):
            self._check_tail(content, end, tree.zxid)
            logger.warning(
                "journal_cut",
                f"{self._path} ends in {len(content) - end} bytes of an unfinished write; "
                f"cut to {end} bytes",
            )
            self._cut(end)
        self.size_bytes = end

    def make_durable(self) -> None:
        """Sync all files and their names, including an earlier process's unsynced writes."""
        self._disk.sync(self._descriptor)
        self._disk.sync_directory(self.folder)

    def close(self) -> None:
        self._disk.close(self._descriptor)
        self._disk.close(self._lock)

    def _cut(self, length: int) -> None:
        self._disk.truncate(self._descriptor, length)
        # So that no power cut mixes truncated bytes with later ones.
        self._disk.sync(self._descriptor)
        self.size_bytes = length

    def _check_tail(self, content: bytes, end: int, zxid: int) -> None:
        """A crash damages the last frame only; a whole frame after it means real damage."""
        position = content.find(_FRAME_MAGIC, end)
        while position >= 0:
            frame = _find_frame(content, position)
            if frame is not None and frame.last_zxid > zxid:
                raise StoreDamaged(
                    f"{self._path} is damaged at byte {end}: zxid {zxid + 1} is unreadable, but "
                    f"{frame.first_zxid} is there at byte {position}; restore the directory from "
                    f"a copy, or cut the file at {end} to lose all that follows"
                )
            position = content.find(_FRAME_MAGIC, position + 1)


class Recovered(NamedTuple):
    tree: ZnodeTree
    journal: Journal


def recover(disk: Disk, folder: str, now_ms: int, logger: EventLogger = NO_LOGGER) -> Recovered:
    """Open or create the store in this folder, and end the sessions of an earlier process."""
    _make_folder(disk, folder)
    lock = disk.open(os.path.join(folder, LOCK_FILE), CREATE)
    if not disk.try_lock(lock):
        disk.close(lock)
        raise StoreLocked(folder)
    journal: Journal | None = None
    try:
        tree = ZnodeTree(_read_snapshot(disk, folder))
        journal = Journal(disk, folder, lock)
        journal.replay(tree, logger)
        journal.make_durable()
        _end_earlier_sessions(tree, journal, now_ms)
    except (OSError, StoreDamaged):
        disk.close(lock) if journal is None else journal.close()
        raise
    return Recovered(tree, journal)


def _end_earlier_sessions(tree: ZnodeTree, journal: Journal, now_ms: int) -> None:
    if tree.sessions:
        command = EndAllSessions()
        journal.append(tree.zxid + 1, [encode_command(command)], now_ms)
        tree.apply(command, now_ms)


def _make_folder(disk: Disk, folder: str) -> None:
    if not disk.exists(folder):
        disk.make_directory(folder)
    # Also if it exists: an earlier process may have crashed before this sync.
    disk.sync_directory(os.path.dirname(folder) or ".")


def _read_snapshot(disk: Disk, folder: str) -> Image:
    path = os.path.join(folder, SNAPSHOT_FILE)
    content = read_file(disk, path)
    if content is None:
        return EMPTY
    try:
        magic, crc = _SNAPSHOT.unpack_from(content)
        body = content[_SNAPSHOT.size :]
        if magic != _SNAPSHOT_MAGIC or zlib.crc32(body) != crc:
            raise ValueError(f"checksum or format {magic!r} is wrong")
        return decode_image(body)
    except (ValueError, struct.error) as error:
        raise StoreDamaged(
            f"{path} ({len(content)} bytes) is not a snapshot: {error}; it is replaced atomically, "
            f"so a crash cannot cause this: restore the directory from a copy"
        ) from error


def _replay_frame(tree: ZnodeTree, frame: _Frame, path: str) -> None:
    if frame.last_zxid <= tree.zxid:
        return  # crashed between the snapshot and the truncation of the journal
    if frame.first_zxid != tree.zxid + 1:
        raise StoreDamaged(
            f"{path} continues with zxid {frame.first_zxid} after {tree.zxid}; restore the "
            f"directory from a copy"
        )
    commands: list[Command] = list(decode_commands(frame.commands))
    assert len(commands) == frame.command_count, (
        f"frame of {frame.first_zxid} has {len(commands)} commands"
    )
    for command in commands:
        tree.apply(command, frame.now_ms)


def _encode_frame(first_zxid: int, commands: Sequence[bytes], now_ms: int) -> bytes:
    body = b"".join(commands)
    header = _FRAME.pack(_FRAME_MAGIC, 0, len(body), first_zxid, len(commands), now_ms)
    crc = zlib.crc32(body, zlib.crc32(header[_CRC_END:]))
    return b"".join((_FRAME_MAGIC, crc.to_bytes(4, "big"), header[_CRC_END:], body))


def _frames(content: bytes) -> Iterator[_Frame]:
    """All frames up to the first that is incomplete."""
    frame = _find_frame(content, 0)
    while frame is not None:
        yield frame
        frame = _find_frame(content, frame.end)


def _find_frame(content: bytes, position: int) -> _Frame | None:
    if position + _FRAME.size > len(content):
        return None
    magic, crc, length, first_zxid, count, now_ms = _FRAME.unpack_from(content, position)
    start = position + _FRAME.size
    if magic != _FRAME_MAGIC or start + length > len(content):
        return None
    if zlib.crc32(memoryview(content)[position + _CRC_END : start + length]) != crc:
        return None
    return _Frame(first_zxid, count, now_ms, content[start : start + length], start + length)
