"""The commit log of one log directory: files of one sequence of frames, written at the end only.

What a frame means is decided elsewhere. One owner thread. Invariant: a frame never spans two files,
and every byte below `durable_end` survives a power cut.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from threading import Lock

from penstock.io.disk import APPEND, CREATE, Buffer, Disk, write_fully
from penstock.storage.commit_log.frames import (
    ALIGNMENT,
    FRAME_BYTES,
    encode_frame,
    frame_bytes,
)
from penstock.storage.handles import Handle, Handles

COMMIT_LOG_FOLDER = "commitlog"
_FRAME_AND_PADDING = FRAME_BYTES + ALIGNMENT - 1
_NAME = re.compile(r"[0-9]{20}")


class CommitLogFile:
    """One file; its name is the position of its first byte."""

    __slots__ = ("base", "handle", "is_damaged", "size")

    def __init__(self, folder: str, base: int, size: int) -> None:
        self.base = base
        self.size = size
        self.handle = Handle(f"{folder}/{base:020d}", APPEND)
        self.is_damaged = False  # a live batch in it does not match its CRC

    @property
    def end(self) -> int:
        return self.base + self.size


def find_file_base(name: str) -> int | None:
    return int(name) if _NAME.fullmatch(name) else None


class CommitLog:
    """Owned by its directory's engine."""

    def __init__(self, disk: Disk, handles: Handles, folder: str, file_bytes: int) -> None:
        self.folder = folder
        self.files: list[CommitLogFile] = []
        self.active: CommitLogFile  # the last one, once there is any
        self.files_made = 0
        self.files_named = 0  # of them: so many have a durable name
        self.durable_end = 0
        self.written_end = 0  # of the last file, without staged frames
        self._bases: list[int] = []
        self._disk = disk
        self._handles = handles
        self._file_bytes = file_bytes
        self._write = disk.write
        self._syncing = Lock()
        self._sync_error: OSError | None = None  # the first one, which ends the commit log
        self._staged: list[Buffer] = []
        self._staged_bytes = 0

    # -- files -----------------------------------------------------------------------------

    def load(self) -> None:
        """Find the files of the folder, which exists."""
        bases = (find_file_base(entry.name) for entry in self._disk.list(self.folder))
        for base in sorted(base for base in bases if base is not None):
            file = CommitLogFile(self.folder, base, 0)
            file.size = self._disk.size_of(file.handle.path)
            self._add(file)

    def start_file(self, base: int) -> CommitLogFile:
        file = CommitLogFile(self.folder, base, 0)
        self._disk.close(self._disk.open(file.handle.path, CREATE))
        self.files_made += 1
        self._add(file)
        return file

    def _add(self, file: CommitLogFile) -> None:
        self.files.append(file)
        self._bases.append(file.base)
        self.active = file
        self.written_end = file.end

    def drop(self, file: CommitLogFile) -> None:
        """Take a file out of the log; its name is removed by the caller."""
        index = self.files.index(file)
        del self.files[index], self._bases[index]
        self._handles.close(file.handle)
        if self.files:
            self.active = self.files[-1]
            self.written_end = self.active.end

    def cut(self, file: CommitLogFile, size: int) -> None:
        """End the log in this file, which is the last one, durably."""
        descriptor = self._handles.descriptor(file.handle)
        self._disk.truncate(descriptor, size)
        self._disk.sync(descriptor)
        file.size = size
        self.written_end = file.end

    def find_file(self, position: int) -> CommitLogFile | None:
        """The file that holds the position, if it is still there."""
        if self._bases and position >= self._bases[-1]:
            end = self.written_end + self._staged_bytes
            return self.files[-1] if position < end else None
        index = bisect_right(self._bases, position) - 1
        if index < 0 or position >= self.files[index].end:
            return None
        return self.files[index]

    def get_file(self, position: int) -> CommitLogFile:
        file = self.find_file(position)
        assert file is not None, f"position {position} is in no file of {self.folder}"
        return file

    def files_from(self, position: int) -> Iterator[CommitLogFile]:
        """The files with bytes at or after the position."""
        return (file for file in self.files if file.end > position)

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.written_end + self._staged_bytes

    # -- writing ---------------------------------------------------------------------------

    def stage(self, kind: int, number: int, payload: Buffer, previous: int) -> int:
        """Put a frame behind the last one; returns its position. `write_staged` writes it."""
        size = frame_bytes(len(payload))
        active = self.active
        if active.size + self._staged_bytes + size > self._file_bytes:
            self.write_staged()
            if active.size:
                active = self.start_file(active.end)
        position = self.written_end + self._staged_bytes
        self._staged += encode_frame(kind, number, payload, position, previous)
        self._staged_bytes += size
        return position

    def write_staged(self) -> None:
        """One write for all staged frames; an OSError leaves the files' state unknown."""
        if not self._staged:
            return
        content, size = b"".join(self._staged), self._staged_bytes
        self._staged.clear()
        self._staged_bytes = 0
        self._write_out(self.active, content, size)

    def write_frame(self, kind: int, number: int, payload: Buffer, previous: int) -> int:
        """Stage and write one frame, without what only several need (docs/decisions/0080)."""
        active = self.active
        if self._staged or active.size + len(payload) + _FRAME_AND_PADDING > self._file_bytes:
            position = self.stage(kind, number, payload, previous)
            self.write_staged()
            return position
        position = self.written_end
        frame = b"".join(encode_frame(kind, number, payload, position, previous))
        self._write_out(active, frame, len(frame))
        return position

    def _write_out(self, active: CommitLogFile, content: bytes, size: int) -> None:
        handle = active.handle
        handle.touched = True
        descriptor = handle.descriptor
        if descriptor < 0:
            descriptor = self._handles.descriptor(handle)
        try:
            written = self._write(descriptor, content)
            if written != size:
                write_fully(self._disk, descriptor, memoryview(content)[written:])
        except OSError:
            self._cut_torn(active, descriptor)
            raise
        active.size += size
        self.written_end += size

    def sync_now(self) -> None:
        """Make everything written durable, in the caller's thread."""
        handles = [file.handle for file in self.files_from(self.durable_end)]
        has_names = self.files_named < self.files_made
        lease = self._handles.lease(*handles)
        try:
            self.sync(map(self._handles.descriptor, handles), self.folder if has_names else None)
        finally:
            lease.release()
        self.files_named = self.files_made
        self.durable_end = self.written_end

    def sync(self, descriptors: Iterable[int], folder: str | None) -> None:
        """Sync files, and the names in the folder. From any thread, one at a time: after a failed
        sync the kernel may have dropped what it could not write, and report the next as done."""
        with self._syncing:
            if self._sync_error is not None:
                raise self._sync_error
            try:
                for descriptor in descriptors:
                    self._disk.sync(descriptor)
                if folder is not None:
                    self._disk.sync_directory(folder)
            except OSError as error:
                self._sync_error = error
                raise

    def forget_staged(self) -> None:
        self._staged.clear()
        self._staged_bytes = 0

    def _cut_torn(self, active: CommitLogFile, descriptor: int) -> None:
        """Recovery cuts a torn frame too; removing it now is neater."""
        try:
            self._disk.truncate(descriptor, active.size)
        except OSError:
            return
