"""The planned faults of a simulated disk, by the ordinal of an operation.

Not the disk's state. Every mutation is admitted here first; its ordinal is its index in `trace`.
"""

import os
from collections.abc import Set
from enum import StrEnum
from typing import NamedTuple


class SimulatedCrash(BaseException):
    """The process or the machine stopped here. No Exception, so that none handles it."""


class OperationKind(StrEnum):
    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    SYNC_DIRECTORY = "sync_directory"
    MAKE_DIRECTORY = "make_directory"
    REMOVE_DIRECTORY = "remove_directory"
    RENAME = "rename"
    UNLINK = "unlink"
    READ = "read"  # never traced; can fail by path


MUTATIONS = frozenset(OperationKind) - {OperationKind.READ}


class DiskOperation(NamedTuple):
    """A requested mutation; for a descriptor, the path is the one it was opened with."""

    kind: OperationKind
    path: str
    target: str = ""  # of a rename
    length: int = 0  # bytes of a write, or the size of a truncation


class WriteFault(NamedTuple):
    """Only the first `keep_bytes` are written; then a crash, an error or just a short count."""

    keep_bytes: int
    crashes: bool = False
    errno: int = 0  # raised by the next write, because the kernel reports the short count first


class FaultPlan:
    """Owned by one SimulatedDisk and called under its lock."""

    def __init__(self) -> None:
        self.trace: list[DiskOperation] = []
        self.crashed = False
        self.crash_ordinal: int | None = None
        self.errors: dict[int, int] = {}  # by ordinal
        self.write_faults: dict[int, WriteFault] = {}  # by ordinal
        self.late_errors: dict[object, int] = {}  # of a file's next write, after a short one
        self.broken_paths: list[tuple[str, int, Set[OperationKind]]] = []

    def admit(self, operation: DiskOperation) -> WriteFault | None:
        """Number the operation; raise its planned crash or error, or return its write fault."""
        ordinal = len(self.trace)
        self.trace.append(operation)
        if ordinal == self.crash_ordinal:
            self.crash()
        if ordinal in self.errors:
            raise os_error(self.errors.pop(ordinal), operation.path)
        if self.broken_paths:
            self.check_path(operation.kind, operation.path, operation.target)
        if ordinal in self.write_faults:
            return self._cut(ordinal, operation)
        return None

    def check_alive(self) -> None:
        if self.crashed:
            raise SimulatedCrash(
                f"the disk crashed at operation {len(self.trace) - 1}; continue on a survivor of it"
            )

    def check_path(self, kind: OperationKind, *paths: str) -> None:
        for substring, errno, kinds in self.broken_paths:
            if kind in kinds and any(substring in path for path in paths):
                raise os_error(errno, paths[0])

    def crash(self) -> None:
        self.crashed = True
        self.check_alive()

    def _cut(self, ordinal: int, operation: DiskOperation) -> WriteFault:
        if operation.kind is not OperationKind.WRITE:
            raise ValueError(
                f"operation {ordinal} is a {operation.kind} of {operation.path}, which cannot be "
                "cut in the middle; plan crash_before or fail_at without bytes"
            )
        return self.write_faults.pop(ordinal)


def os_error(errno: int, path: str) -> OSError:
    return OSError(errno, os.strerror(errno), path)
