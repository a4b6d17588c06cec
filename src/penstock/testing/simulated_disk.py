"""A `Disk` in memory, with planned faults, crashes and power cuts.

Does not model speed. Synced data survives everything but tampering. Thread-safe.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from penstock.testing.crash_states import (
    CrashChoice,
    KeepEverything,
    LoseEverything,
    SeededChoice,
    after_power_cut,
    every_choice,
)
from penstock.testing.simulated_faults import (
    MUTATIONS,
    DiskOperation,
    FaultPlan,
    OperationKind,
    SimulatedCrash,
    WriteFault,
)
from penstock.testing.simulated_files import Directory, Edit, Namespace, files_below
from penstock.testing.simulated_kernel import SimulatedKernel
from penstock.testing.simulated_paths import step_into

__all__ = [
    "MUTATIONS",
    "CrashChoice",
    "DiskOperation",
    "KeepEverything",
    "LoseEverything",
    "OperationKind",
    "SeededChoice",
    "SimulatedCrash",
    "SimulatedDisk",
    "every_choice",
]


class SimulatedDisk(SimulatedKernel):
    """A `Disk` that starts with the given directories, synced.

    Plan faults by the ordinal of an operation, its index in `trace`. After a crash, continue on a
    survivor. Paths are absolute, or relative to the root.
    """

    def __init__(
        self,
        *directories: str,
        capacity_bytes: int | None = None,
        failed_sync_loses_data: bool = True,
    ) -> None:
        super().__init__(
            capacity_bytes=capacity_bytes, failed_sync_loses_data=failed_sync_loses_data
        )
        for path in directories:
            self._install_directories(path)

    # Planned faults.

    @property
    def trace(self) -> Sequence[DiskOperation]:
        """Every valid mutation that was requested, including those that a fault hit."""
        return self._faults.trace

    def crash_before(self, ordinal: int) -> None:
        """Raise SimulatedCrash instead of this operation, and in every later call."""
        self._faults.crash_ordinal = ordinal

    def crash_during(self, ordinal: int, keep_bytes: int) -> None:
        """Write only the first bytes of this write, then crash."""
        self._faults.write_faults[ordinal] = WriteFault(keep_bytes, crashes=True)

    def crash(self) -> None:
        """Stop here: every later call raises SimulatedCrash."""
        with self._lock:
            self._faults.crashed = True

    def fail_at(self, ordinal: int, errno: int, partial_bytes: int = 0) -> None:
        """Fail this operation once; with bytes it is a short write, and the next write fails."""
        if partial_bytes:
            self._faults.write_faults[ordinal] = WriteFault(partial_bytes, errno=errno)
        else:
            self._faults.errors[ordinal] = errno

    def shorten_write(self, ordinal: int, length: int) -> None:
        """Make this write short, as the kernel may at any time."""
        self._faults.write_faults[ordinal] = WriteFault(length)

    def fail_path(self, substring: str, errno: int, kinds: Set[OperationKind] = MUTATIONS) -> None:
        """Fail these kinds of calls on all paths that contain the substring, until `heal`."""
        with self._lock:
            self._faults.broken_paths.append((substring, errno, kinds))

    def heal(self) -> None:
        """Remove every planned fault; a crashed disk stays crashed."""
        with self._lock:
            trace, crashed = self._faults.trace, self._faults.crashed
            self._faults = FaultPlan()
            self._faults.trace, self._faults.crashed = trace, crashed

    # The state after a crash, and access for tests.

    def survivor_of_kill(self) -> SimulatedDisk:
        """The process is killed, the machine keeps running: the page cache stays, unsynced."""
        return self.copy()

    def survivor_of_power_cut(self, choose: CrashChoice) -> SimulatedDisk:
        """The machine reboots: one legal outcome for everything that was not synced."""
        with self._lock:
            return self._copy_of(after_power_cut(self._namespace.copy(), choose))

    def copy(self) -> SimulatedDisk:
        """The same files, synced and unsynced; no descriptor, lock, fault or trace."""
        with self._lock:
            return self._copy_of(self._namespace.copy())

    def files(self) -> dict[str, bytes]:
        """Every file's bytes as a read sees them, also after a crash."""
        with self._lock:
            root = self._namespace.root
            return {path: bytes(file.content) for path, file in files_below(root, "")}

    @property
    def open_descriptors(self) -> int:
        return len(self._descriptors)

    def overwrite(self, path: str, position: int, data: bytes) -> None:
        """Damage a file in place; this and the rest of the file count as synced."""
        with self._lock:
            file = self._get_file(path)
            if position < 0 or position + len(data) > len(file.content):
                raise ValueError(
                    f"{path} has {len(file.content)} bytes; {len(data)} at {position} do not fit"
                )
            file.tamper(position, data)

    def flip_bit(self, path: str, bit_index: int) -> None:
        with self._lock:
            position, bit = divmod(bit_index, 8)
            byte = self._get_file(path).content[position]
            self.overwrite(path, position, bytes([byte ^ 1 << bit]))

    def cut(self, path: str, length: int) -> None:
        """Keep only the first bytes of a file, synced."""
        with self._lock:
            file = self._get_file(path)
            file.truncate(min(length, len(file.content)))
            file.sync()

    def remove(self, path: str) -> None:
        """Remove a file, synced."""
        with self._lock:
            self._get_file(path)
            location = self._locate(path)
            self._namespace.change([Edit(location.parent, location.name, None)])
            self._namespace.sync(location.parent)

    def _install_directories(self, path: str) -> None:
        directory = self._namespace.root
        for name in filter(None, path.split("/")):
            directory.names.setdefault(name, Directory())
            directory.durable = dict(directory.names)
            directory = step_into(directory, name, path)

    def _copy_of(self, namespace: Namespace) -> SimulatedDisk:
        copy = SimulatedDisk(
            capacity_bytes=self.capacity_bytes, failed_sync_loses_data=self.failed_sync_loses_data
        )
        copy._namespace = namespace
        return copy
