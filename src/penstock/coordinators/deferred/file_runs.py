"""Runs of due messages as files, one per hour, in a folder of one shard.

They save memory, not messages: the log has everything, and a shard that loads begins with an empty
folder. So nothing is synced, and what a crash leaves is removed.
"""

from penstock.io.disk import CREATE, Disk, read_file, write_fully

_SUFFIX = ".run"


class FileRuns:
    """A `RunStore`. Owned by its shard's state."""

    def __init__(self, disk: Disk, folder: str) -> None:
        """The folder's parent exists; its own content is removed."""
        self._disk = disk
        self._folder = folder
        if not disk.exists(folder):
            disk.make_directory(folder)
        for entry in disk.list(folder):
            if entry.name.endswith(_SUFFIX):
                disk.unlink(f"{folder}/{entry.name}")

    def append(self, hour: int, data: bytes) -> None:
        descriptor = self._disk.open(self._path(hour), CREATE)
        try:
            write_fully(self._disk, descriptor, data)
        finally:
            self._disk.close(descriptor)

    def take(self, hour: int) -> bytes:
        path = self._path(hour)
        data = read_file(self._disk, path)
        if data is None:
            return b""
        self._disk.unlink(path)
        return data

    def _path(self, hour: int) -> str:
        return f"{self._folder}/{hour}{_SUFFIX}"
