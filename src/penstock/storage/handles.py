"""Open descriptors and maps, bounded: 10,000 partitions share a fixed number of them.

A handle opens on first use and may be closed behind its owner's back when room is needed, but
never while somebody holds a lease on it. Everything here belongs to the engine's owner thread.
"""

from collections import deque

from penstock.storage.disk import READ, Disk, Mapping


class Handle:
    """A file, open while `descriptor` is not negative. Its owner reads that, `Handles` sets it."""

    __slots__ = ("closing", "descriptor", "flags", "leases", "path", "touched")

    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        self.flags = flags
        self.descriptor = -1
        self.leases = 0  # readers and flushes under way
        self.touched = False  # used since the clock hand last passed
        self.closing = False  # closes when the last lease ends


class MappedFile:
    """A sealed file's bytes, mapped while `mapping` is set."""

    __slots__ = ("mapping", "path", "touched")

    def __init__(self, path: str) -> None:
        self.path = path
        self.mapping: Mapping | None = None
        self.touched = False


class Lease:
    """Keeps the files behind some slices open until `release`, which may be called once."""

    __slots__ = ("_handles", "_held")

    def __init__(self, handles: "Handles", held: tuple[Handle, ...]) -> None:
        self._handles = handles
        self._held = held
        for handle in held:
            handle.leases += 1

    def release(self) -> None:
        held, self._held = self._held, ()
        for handle in held:
            self._handles.end_lease(handle)


class Handles:
    """Opens files on demand and keeps at most `capacity` descriptors and as many maps.

    Second chance (clock) order instead of strict recency: a use costs one attribute store.
    """

    def __init__(self, disk: Disk, *, descriptors: int = 900, maps: int = 900) -> None:
        self._disk = disk
        self._descriptor_capacity = descriptors
        self._map_capacity = maps
        self._open: deque[Handle] = deque()
        self._mapped: deque[MappedFile] = deque()

    @property
    def open_count(self) -> int:
        return len(self._open) + len(self._mapped)

    def descriptor(self, handle: Handle) -> int:
        handle.touched = True
        if handle.descriptor < 0:
            self._make_room()
            handle.descriptor = self._disk.open(handle.path, handle.flags)
            handle.closing = False
            self._open.append(handle)
        return handle.descriptor

    def mapping(self, file: MappedFile) -> Mapping | None:
        """The file's bytes, or None where it is empty or missing."""
        file.touched = True
        if file.mapping is None:
            self._make_room_for_map()
            file.mapping = self._map(file.path)
            if file.mapping is not None:
                self._mapped.append(file)
        return file.mapping

    def lease(self, *handles: Handle) -> Lease:
        return Lease(self, handles)

    def end_lease(self, handle: Handle) -> None:
        handle.leases -= 1
        assert handle.leases >= 0, f"lease on {handle.path} ended twice"
        if handle.closing and handle.leases == 0:
            self._close(handle)

    def close(self, handle: Handle) -> None:
        """Close now, or with the last lease: the file may be renamed or gone by then."""
        if handle.descriptor < 0 or handle.closing:
            return
        self._open.remove(handle)
        if handle.leases:
            handle.closing = True
        else:
            self._close(handle)

    def unmap(self, file: MappedFile) -> None:
        if file.mapping is not None:
            self._mapped.remove(file)
            file.mapping.close()
            file.mapping = None

    def close_all(self) -> None:
        for handle in tuple(self._open):
            self.close(handle)
        for file in tuple(self._mapped):
            self.unmap(file)

    def _close(self, handle: Handle) -> None:
        descriptor, handle.descriptor = handle.descriptor, -1
        handle.closing = False
        self._disk.close(descriptor)

    def _make_room(self) -> None:
        # At most two rounds: the first may only clear marks. All leased: go over the bound.
        turns = 2 * len(self._open)
        while len(self._open) >= self._descriptor_capacity and turns:
            turns -= 1
            handle = self._open.popleft()
            if handle.touched or handle.leases:
                handle.touched = False
                self._open.append(handle)
            else:
                self._close(handle)

    def _make_room_for_map(self) -> None:
        while len(self._mapped) >= self._map_capacity:
            file = self._mapped.popleft()
            if file.touched:
                file.touched = False
                self._mapped.append(file)
            else:
                assert file.mapping is not None
                file.mapping.close()
                file.mapping = None

    def _map(self, path: str) -> Mapping | None:
        try:
            descriptor = self._disk.open(path, READ)
        except FileNotFoundError:
            return None
        try:
            return self._disk.map(descriptor) if self._disk.size(descriptor) else None
        finally:
            self._disk.close(descriptor)
