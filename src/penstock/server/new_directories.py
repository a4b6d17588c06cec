"""Removes what a failed start has put into log directories that were empty or did not exist.

Invariant: a directory counts as new only if it held nothing but its lock right after this process
had locked it, and it is emptied before the lock is released. So no other broker's file is removed.
"""

import os
from collections.abc import Sequence

from penstock.io.disk import Disk
from penstock.logs.event_logger import EventLogger
from penstock.storage.log_directory import LOCK_FILE


def find_missing(disk: Disk, directories: Sequence[str]) -> list[str]:
    """Those directories and parents that do not exist yet, the deepest first."""
    missing: list[str] = []
    for directory in directories:
        path = os.path.abspath(directory)
        while not disk.exists(path) and path not in missing:
            missing.append(path)
            path = os.path.dirname(path)
    return sorted(missing, key=len, reverse=True)


class NewDirectories:
    """`keep` once the broker may be known to others; else `remove` undoes the start."""

    def __init__(self, disk: Disk, locked: Sequence[str], missing: Sequence[str]) -> None:
        """`locked`: log directories that this process has just locked; `missing`: those that
        `find_missing` found before."""
        self._disk = disk
        self._missing = list(missing)
        self._fresh = [
            directory
            for directory in locked
            if [entry.name for entry in disk.list(directory)] == [LOCK_FILE]
        ]

    def keep(self) -> None:
        self._fresh, self._missing = [], []

    def remove(self, logger: EventLogger) -> None:
        fresh, missing = self._fresh, self._missing
        self.keep()
        try:
            for directory in fresh:
                self._empty(directory)
            for directory in missing:
                if not self._disk.list(directory):
                    self._disk.remove_directory(directory)
        except OSError as error:
            logger.warning(
                "directory_not_removed", f"a directory of the failed start was not removed: {error}"
            )

    def _empty(self, directory: str) -> None:
        for entry in self._disk.list(directory):
            path = f"{directory}/{entry.name}"
            if entry.is_directory:
                self._empty(path)
                self._disk.remove_directory(path)
            else:
                self._disk.unlink(path)
