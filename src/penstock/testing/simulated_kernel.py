"""System calls on files in memory, with the results and errors of Linux, under one lock.

Faults are planned elsewhere: the FaultPlan admits every change of a file or a name first.
"""

import mmap
import os
import sys
import threading
from collections.abc import Callable
from errno import (
    EACCES,
    EBADF,
    EBUSY,
    EEXIST,
    EINVAL,
    EISDIR,
    ENODEV,
    ENOENT,
    ENOSPC,
    ENOTDIR,
    ENOTEMPTY,
)
from typing import NamedTuple

from penstock.io.disk import Buffer, DirectoryEntry, Mapping
from penstock.testing.simulated_faults import (
    DiskOperation,
    FaultPlan,
    OperationKind,
    WriteFault,
    os_error,
)
from penstock.testing.simulated_files import Directory, Edit, File, Namespace, Node, files_below
from penstock.testing.simulated_paths import PathLookup, check_rename, locate

_KNOWN_FLAGS = (
    os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_TRUNC
) | os.O_CLOEXEC
_DIRECTORY_BYTES = 4096
_FIRST_DESCRIPTOR = 1_000_000  # never a real one, so that mixing them up is EBADF on both sides


class _Descriptor(NamedTuple):
    node: Node
    path: str  # as it was opened
    readable: bool
    writable: bool


class SimulatedKernel:
    """A `Disk` in memory; descriptor numbers are never reused."""

    def __init__(self, *, capacity_bytes: int | None, failed_sync_loses_data: bool) -> None:
        self.capacity_bytes = capacity_bytes  # of all files together; None: unlimited
        self.failed_sync_loses_data = failed_sync_loses_data  # as Linux does: dropped as if clean
        self.write: Callable[[int, Buffer], int] = self._write
        self.pread: Callable[[int, int, int], bytes] = self._pread
        self._lock = threading.RLock()
        self._faults = FaultPlan()
        self._namespace = Namespace()
        self._descriptors: dict[int, _Descriptor] = {}
        self._next_descriptor = _FIRST_DESCRIPTOR

    def open(self, path: str, flags: int) -> int:
        _check_flags(flags)
        writable = bool(flags & (os.O_WRONLY | os.O_RDWR))
        with self._lock:
            node = self._opened_node(path, flags, writable)
            descriptor = self._next_descriptor
            self._next_descriptor += 1
            readable = not flags & os.O_WRONLY
            self._descriptors[descriptor] = _Descriptor(node, path, readable, writable)
            return descriptor

    def close(self, descriptor: int) -> None:
        with self._lock:
            node = self._get(descriptor).node
            del self._descriptors[descriptor]
            if node.locked_by == descriptor:
                node.locked_by = None

    def read_into(self, descriptor: int, buffer: memoryview, position: int) -> int:
        with self._lock:
            if not buffer.nbytes and isinstance(self._get(descriptor).node, Directory):
                return 0  # the kernel checks nothing for an empty read
            content = self._readable_content(descriptor, position)
            with memoryview(content) as whole, whole[position : position + buffer.nbytes] as part:
                buffer.cast("B")[: len(part)] = part
                return len(part)

    def truncate(self, descriptor: int, length: int) -> None:
        with self._lock:
            node, path, _, writable = self._get(descriptor)
            if length < 0 or not writable or not isinstance(node, File):
                raise os_error(EINVAL, path)
            self._faults.admit(DiskOperation(OperationKind.TRUNCATE, path, length=length))
            node.truncate(length)

    def size(self, descriptor: int) -> int:
        with self._lock:
            node = self._get(descriptor).node
            return len(node.content) if isinstance(node, File) else _DIRECTORY_BYTES

    def map(self, descriptor: int) -> Mapping:
        with self._lock:
            node, path, readable, _ = self._get(descriptor)
            if not isinstance(node, File):
                raise os_error(ENODEV, path)
            if not node.content:
                raise ValueError("cannot mmap an empty file")
            if not readable:
                raise os_error(EACCES, path)
            self._faults.check_path(OperationKind.READ, path)
            return _read_only_copy(node.content)

    def sync(self, descriptor: int) -> None:
        with self._lock:
            node, path, _, _ = self._get(descriptor)
            if isinstance(node, Directory):
                return self._sync_names(node, path)
            try:
                self._faults.admit(DiskOperation(OperationKind.SYNC, path))
            except OSError:
                if self.failed_sync_loses_data:
                    node.lose_pending()
                raise
            return node.sync()

    def sync_directory(self, path: str) -> None:
        with self._lock:
            self._sync_names(self._get_directory(path), path)

    def list(self, path: str) -> list[DirectoryEntry]:
        with self._lock:
            directory = self._get_directory(path)
            self._faults.check_path(OperationKind.READ, path)
            names = sorted(directory.names.items())
            return [DirectoryEntry(name, isinstance(node, Directory)) for name, node in names]

    def size_of(self, path: str) -> int:
        with self._lock:
            node = self._get_node(path)
            self._faults.check_path(OperationKind.READ, path)
            return len(node.content) if isinstance(node, File) else _DIRECTORY_BYTES

    def exists(self, path: str) -> bool:
        with self._lock:
            try:
                return self._locate(path).node is not None
            except OSError:
                return False

    def make_directory(self, path: str) -> None:
        with self._lock:
            location = self._locate(path)
            if location.node is not None:
                raise os_error(EEXIST, path)
            self._faults.admit(DiskOperation(OperationKind.MAKE_DIRECTORY, path))
            self._namespace.change([Edit(location.parent, location.name, Directory())])

    def remove_directory(self, path: str) -> None:
        with self._lock:
            directory = self._get_directory(path)
            if directory is self._namespace.root:
                raise os_error(EBUSY, path)
            if directory.names:
                raise os_error(ENOTEMPTY, path)
            self._faults.admit(DiskOperation(OperationKind.REMOVE_DIRECTORY, path))
            location = self._locate(path)
            self._namespace.change([Edit(location.parent, location.name, None)])

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            old, new = self._locate(source), self._locate(target)
            check_rename(old, new, source)
            self._faults.admit(DiskOperation(OperationKind.RENAME, source, target))
            edits = [Edit(old.parent, old.name, None), Edit(new.parent, new.name, old.node)]
            # A file moved to another directory must not be lost with a new directory on its path,
            # nor with the old one if that is removed next.
            apart = old.parent is not new.parent
            self._namespace.change(edits, [*old.ancestors, *new.ancestors] if apart else [])

    def unlink(self, path: str) -> None:
        with self._lock:
            location = self._locate(path)
            if location.node is None:
                raise os_error(ENOENT, path)
            if isinstance(location.node, Directory):
                raise os_error(EISDIR, path)
            self._faults.admit(DiskOperation(OperationKind.UNLINK, path))
            self._namespace.change([Edit(location.parent, location.name, None)])

    def try_lock(self, descriptor: int) -> bool:
        with self._lock:
            node = self._get(descriptor).node
            if node.locked_by not in (None, descriptor):
                return False
            node.locked_by = descriptor
            return True

    def _write(self, descriptor: int, buffer: Buffer) -> int:
        with self._lock:
            node, path, _, writable = self._get(descriptor)
            if not writable or not isinstance(node, File):
                raise os_error(EBADF, path)
            data = bytes(buffer)
            fault = self._faults.admit(DiskOperation(OperationKind.WRITE, path, length=len(data)))
            if fault is None and self.capacity_bytes is None and not self._faults.late_errors:
                node.append(data)
                return len(data)
            return self._write_with_faults(node, path, data, fault)

    def _write_with_faults(
        self, file: File, path: str, data: bytes, fault: WriteFault | None
    ) -> int:
        if file in self._faults.late_errors:
            raise os_error(self._faults.late_errors.pop(file), path)
        landed = data if fault is None else data[: fault.keep_bytes]
        landed = landed[: self._free_bytes(len(landed))]
        if landed or fault is not None or not data:
            file.append(landed)
        else:
            raise os_error(ENOSPC, path)
        if fault is not None and fault.crashes:
            self._faults.crash()
        if fault is not None and fault.errno:
            self._faults.late_errors[file] = fault.errno
        return len(landed)

    def _free_bytes(self, wanted: int) -> int:
        if self.capacity_bytes is None:
            return wanted
        files = {id(file): file for _, file in files_below(self._namespace.root, "")}
        # An unlinked file keeps its blocks until its last descriptor closes.
        for node, *_ in self._descriptors.values():
            if isinstance(node, File):
                files[id(node)] = node
        used = sum(len(file.content) for file in files.values())
        return max(0, self.capacity_bytes - used)

    def _pread(self, descriptor: int, length: int, position: int) -> bytes:
        with self._lock:
            content = self._readable_content(descriptor, position)
            if length < 0:
                raise os_error(EINVAL, self._get(descriptor).path)
            with memoryview(content) as whole:
                return bytes(whole[position : position + length])

    def _readable_content(self, descriptor: int, position: int) -> bytearray:
        node, path, readable, _ = self._get(descriptor)
        if not readable:
            raise os_error(EBADF, path)
        if position < 0:
            raise os_error(EINVAL, path)
        if not isinstance(node, File):
            raise os_error(EISDIR, path)
        if self._faults.broken_paths:
            self._faults.check_path(OperationKind.READ, path)
        return node.content

    def _opened_node(self, path: str, flags: int, writable: bool) -> Node:
        location = self._locate(path)
        if location.node is None:
            return self._create(location, path, flags)
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise os_error(EEXIST, path)
        if isinstance(location.node, Directory):
            if writable or flags & os.O_CREAT:
                raise os_error(EISDIR, path)
        elif flags & os.O_TRUNC:
            self._faults.admit(DiskOperation(OperationKind.TRUNCATE, path))
            location.node.truncate(0)
        self._faults.check_path(OperationKind.READ, path)
        return location.node

    def _create(self, location: PathLookup, path: str, flags: int) -> File:
        if not flags & os.O_CREAT:
            raise os_error(ENOENT, path)
        self._faults.admit(DiskOperation(OperationKind.CREATE, path))
        file = File()
        self._namespace.change([Edit(location.parent, location.name, file)])
        return file

    def _sync_names(self, directory: Directory, path: str) -> None:
        self._faults.admit(DiskOperation(OperationKind.SYNC_DIRECTORY, path))
        self._namespace.sync(directory)

    def _get(self, descriptor: int) -> _Descriptor:
        self._faults.check_alive()
        try:
            return self._descriptors[descriptor]
        except KeyError:
            raise os_error(EBADF, f"descriptor {descriptor}") from None

    def _locate(self, path: str) -> PathLookup:
        self._faults.check_alive()
        return locate(self._namespace.root, path)

    def _get_node(self, path: str) -> Node:
        node = self._locate(path).node
        if node is None:
            raise os_error(ENOENT, path)
        return node

    def _get_directory(self, path: str) -> Directory:
        node = self._get_node(path)
        if not isinstance(node, Directory):
            raise os_error(ENOTDIR, path)
        return node

    def _get_file(self, path: str) -> File:
        node = self._get_node(path)
        if not isinstance(node, File):
            raise os_error(EISDIR, path)
        return node


def _check_flags(flags: int) -> None:
    writable = flags & (os.O_WRONLY | os.O_RDWR)
    if flags & ~_KNOWN_FLAGS or (writable and not flags & os.O_APPEND):
        raise ValueError(
            f"flags {flags:#o} are not simulated: write with APPEND, CREATE or REPLACE"
        )


def _read_only_copy(content: bytearray) -> Mapping:
    if sys.platform != "linux":
        mapping = mmap.mmap(-1, len(content))
        mapping[:] = bytes(content)
        return mapping
    # A memfd can be mapped read-only; anonymous memory cannot.
    descriptor = os.memfd_create("simulated")
    try:
        os.pwrite(descriptor, content, 0)
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
