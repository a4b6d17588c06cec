"""The directory of a local cluster: locked while it runs, and as before after a failed start.

Knows paths, no processes. Invariant: only paths that did not exist when this process locked the
directory are removed, and none if a broker holds a partition by then.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.io.disk import RealDisk
from penstock.server.new_directories import find_missing

_DISK = RealDisk()
_SEGMENTS = "*/*.log"  # below the folder of a broker


class DirectoryInUse(Exception):
    """Another cluster runs in this directory."""


class ClusterDirectory:
    """`open`, then `keep` once the cluster serves, or `remove_new`; `close` at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1
        self._missing: list[str] = []  # the directory and parents that `open` has made
        self._new: list[Path] = []  # paths that the start creates

    def open(self, paths: Iterable[Path]) -> None:
        """Create and lock it; `paths` are what the start will create. DirectoryInUse if another
        process has locked it: two ZooKeeper servers must not share their data."""
        missing = find_missing(_DISK, [str(self.path)])
        self.path.mkdir(parents=True, exist_ok=True)
        # A lock on the directory itself needs no file, and ends with this process.
        lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        if not _DISK.try_lock(lock):
            os.close(lock)
            raise DirectoryInUse(
                f"another cluster runs in {self.path}; stop it, or name another directory with "
                f"--data"
            )
        self._lock, self._missing = lock, missing
        self._new = [path for path in paths if not path.exists()]

    def keep(self) -> None:
        self._missing, self._new = [], []

    def remove_new(self, report: Callable[[str], None]) -> None:
        """Undo a failed start whose processes have ended."""
        missing, new = self._missing, self._new
        self.keep()
        if any(any(path.glob(_SEGMENTS)) for path in new):
            report(f"{self.path} is kept, because a client has created partitions there meanwhile")
            return
        try:
            for path in new:
                _remove(path)
            for directory in missing:
                if not _DISK.list(directory):
                    _DISK.remove_directory(directory)
        except OSError as error:
            report(f"{self.path} has files of the failed start that cannot be removed: {error}")

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
