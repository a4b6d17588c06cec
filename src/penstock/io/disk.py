"""`Disk`: all file access of storage and of the embedded metadata store.

`RealDisk` calls the operating system; `penstock.testing.SimulatedDisk` works in memory and injects
faults. Not a virtual file system: only the calls that they need. Errors are the kernel's OSErrors.
"""

import fcntl
import mmap
import os
import stat
import sys
from collections.abc import Callable
from errno import EDQUOT, EINVAL, ENOSPC, ENXIO
from typing import NamedTuple, Protocol

READ = os.O_RDONLY | os.O_CLOEXEC
APPEND = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC  # reads anywhere, writes at the end
CREATE = APPEND | os.O_CREAT
REPLACE = CREATE | os.O_TRUNC

Buffer = bytes | bytearray | memoryview
# A sealed file's bytes, searched in place and released with `close`.
Mapping = mmap.mmap

_NO_FILE = "is not a regular file"


class DirectoryEntry(NamedTuple):
    name: str
    is_directory: bool


class Disk(Protocol):
    """One method per system call; a descriptor is an int, as the kernel's."""

    # Callables instead of methods, so that the hot path has no frame before the system call.
    @property
    def write(self) -> Callable[[int, Buffer], int]: ...  # at the end of the file; may be short
    @property
    def pread(self) -> Callable[[int, int, int], bytes]: ...  # length, position; short at the end

    def open(self, path: str, flags: int) -> int: ...
    def close(self, descriptor: int) -> None: ...
    def read_into(self, descriptor: int, buffer: memoryview, position: int) -> int: ...
    def truncate(self, descriptor: int, length: int) -> None: ...
    def size(self, descriptor: int) -> int: ...
    def map(self, descriptor: int) -> Mapping: ...  # the file must not be empty
    def sync(self, descriptor: int) -> None: ...  # data and size are durable
    def sync_directory(self, path: str) -> None: ...  # names in this folder are durable
    def list(self, path: str) -> list[DirectoryEntry]: ...
    def size_of(self, path: str) -> int: ...
    def exists(self, path: str) -> bool: ...
    def make_directory(self, path: str) -> None: ...  # its parent exists
    def remove_directory(self, path: str) -> None: ...  # empty
    def rename(self, source: str, target: str) -> None: ...  # replaces the target
    def unlink(self, path: str) -> None: ...
    def try_lock(self, descriptor: int) -> bool: ...  # held until the descriptor closes


def advise(error: BaseException) -> str:
    """Advice for the operator after a failed write."""
    is_full = isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT)
    return "make room on that disk" if is_full else "repair or replace the disk"


class RealDisk:
    """The real file system."""

    write = staticmethod(os.write)
    pread = staticmethod(os.pread)

    def open(self, path: str, flags: int) -> int:
        # Without O_NONBLOCK opening a fifo blocks until it has a peer; regular files ignore it.
        try:
            descriptor = os.open(path, flags | os.O_NONBLOCK, 0o644)
        except OSError as error:
            if error.errno == ENXIO:  # a socket or a missing device
                raise OSError(EINVAL, _NO_FILE, path) from error
            raise
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a folder fails when it is read
            os.close(descriptor)
            raise OSError(EINVAL, _NO_FILE, path)
        return descriptor

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def read_into(self, descriptor: int, buffer: memoryview, position: int) -> int:
        return os.preadv(descriptor, [buffer], position)

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def map(self, descriptor: int) -> Mapping:
        mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        mapping.madvise(mmap.MADV_RANDOM)
        return mapping

    def sync(self, descriptor: int) -> None:
        if sys.platform == "darwin":
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(descriptor)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def list(self, path: str) -> list[DirectoryEntry]:
        with os.scandir(path) as entries:
            return [DirectoryEntry(e.name, e.is_dir(follow_symlinks=False)) for e in entries]

    def size_of(self, path: str) -> int:
        return os.stat(path, follow_symlinks=False).st_size

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def make_directory(self, path: str) -> None:
        os.mkdir(path, 0o755)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def try_lock(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Replace a small file atomically: a crash leaves the old content or the new one."""
    temporary = path + ".tmp"
    descriptor = disk.open(temporary, REPLACE)
    try:
        write_fully(disk, descriptor, content)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    disk.rename(temporary, path)
    disk.sync_directory(os.path.dirname(path))


def read_file(disk: Disk, path: str) -> bytes | None:
    """The content of a small file, or None if it does not exist."""
    try:
        descriptor = disk.open(path, READ)
    except FileNotFoundError:
        return None
    try:
        return read_fully(disk, descriptor, disk.size(descriptor), 0)
    finally:
        disk.close(descriptor)


def write_fully(disk: Disk, descriptor: int, content: Buffer) -> None:
    view = memoryview(content)
    while view:
        view = view[disk.write(descriptor, view) :]


def read_fully(disk: Disk, descriptor: int, length: int, position: int) -> bytes:
    """`length` bytes, or fewer at the end of the file."""
    chunks: list[bytes] = []
    while length > 0:
        chunk = disk.pread(descriptor, length, position)
        if not chunk:
            break
        chunks.append(chunk)
        length -= len(chunk)
        position += len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
