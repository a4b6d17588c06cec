"""Open descriptors and memory maps, bounded: 10,000 partitions share a fixed number of them.

A file opens on first use and may be closed when others need its descriptor, but never while a lease
on it is held. Everything here belongs to the engine's owner thread.
"""

from collections import deque

from penstock.io.disk import READ, Disk, Mapping, read_fully

COPIED_BYTES = 4096  # up to this size a copy is cheaper than a map, and holds no descriptor


class Handle:
    """A file, open while `descriptor` is not negative. Only `Handles` sets it."""

    __slots__ = ("closing", "descriptor", "flags", "leases", "path", "touched")

    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        self.flags = flags
        self.descriptor = -1
        self.leases = 0  # of readers and running flushes
        self.touched = False  # used since the clock hand last passed
        self.closing = False  # closes when the last lease ends


class MappedFile:
    """A sealed file's bytes while `content` is set: a map, or a copy of at most a page."""

    __slots__ = ("content", "path", "touched")

    def __init__(self, path: str) -> None:
        self.path = path
        self.content: Mapping | bytes | None = None
        self.touched = False


class Lease:
    """Keeps the files of some slices open until `release`, which may be called once."""

    __slots__ = ("_handles", "_held")

    def __init__(self, handles: "Handles", held: tuple[Handle, ...]) -> None:
        self._handles = handles
        self._held = held
        for handle in held:
            handles.begin_lease(handle)

    def release(self) -> None:
        held, self._held = self._held, ()
        for handle in held:
            self._handles.end_lease(handle)


class Handles:
    """Opens files on demand and keeps a bounded number of descriptors and maps.

    Evicts in second-chance (clock) order instead of LRU, because a use then costs one attribute
    store.
    """

    def __init__(
        self, disk: Disk, *, descriptors: int = 1200, maps: int = 600, copies: int = 4096
    ) -> None:
        self._disk = disk
        self.descriptor_capacity = descriptors
        self._leased = 0  # handles with at least one lease
        self._open: deque[Handle] = deque()
        self._mapped: deque[MappedFile] = deque(maxlen=maps)  # one descriptor each
        self._copied: deque[MappedFile] = deque(maxlen=copies)  # at most a page each

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

    def content(self, file: MappedFile) -> Mapping | bytes | None:
        """The file's bytes, or None if it is empty or missing."""
        file.touched = True
        if file.content is None:
            self._load(file)
        return file.content

    def lease(self, *handles: Handle) -> Lease:
        return Lease(self, handles)

    @property
    def has_room(self) -> bool:
        """False while leases hold all descriptors: one more would exceed the bound."""
        return self._leased < self.descriptor_capacity

    def begin_lease(self, handle: Handle) -> None:
        self._leased += not handle.leases
        handle.leases += 1

    def end_lease(self, handle: Handle) -> None:
        handle.leases -= 1
        self._leased -= not handle.leases
        assert handle.leases >= 0, f"lease on {handle.path} ended twice"
        if handle.closing and handle.leases == 0:
            self._close(handle)

    def close(self, handle: Handle) -> None:
        """Close now, or with the last lease; the file may be renamed or removed by then."""
        if handle.descriptor < 0 or handle.closing:
            return
        self._open.remove(handle)
        if handle.leases:
            handle.closing = True
        else:
            self._close(handle)

    def unmap(self, file: MappedFile) -> None:
        if file.content is not None:
            self._cache_of(file).remove(file)
            _drop(file)

    def close_all(self) -> None:
        for handle in tuple(self._open):
            self.close(handle)
        for file in (*self._mapped, *self._copied):
            self.unmap(file)

    def _close(self, handle: Handle) -> None:
        descriptor, handle.descriptor = handle.descriptor, -1
        handle.closing = False
        self._disk.close(descriptor)

    def _make_room(self) -> None:
        # At most two rounds, because the first may only clear marks. If all are leased, exceed the
        # bound.
        turns = 2 * len(self._open)
        while len(self._open) >= self.descriptor_capacity and turns:
            turns -= 1
            handle = self._open.popleft()
            if handle.touched or handle.leases:
                handle.touched = False
                self._open.append(handle)
            else:
                self._close(handle)

    def _load(self, file: MappedFile) -> None:
        try:
            descriptor = self._disk.open(file.path, READ)
        except FileNotFoundError:
            return
        try:
            size = self._disk.size(descriptor)
            if size > COPIED_BYTES:
                file.content = self._disk.map(descriptor)
            elif size:
                file.content = read_fully(self._disk, descriptor, size, 0)
        finally:
            self._disk.close(descriptor)
        if file.content:
            self._keep(file, self._cache_of(file))

    def _cache_of(self, file: MappedFile) -> deque[MappedFile]:
        return self._copied if isinstance(file.content, bytes) else self._mapped

    def _keep(self, file: MappedFile, cache: deque[MappedFile]) -> None:
        """Add to the cache; if it is full, drop the first file not used since the last round."""
        while len(cache) == cache.maxlen:
            oldest = cache.popleft()
            if oldest.touched:
                oldest.touched = False
                cache.append(oldest)
            else:
                _drop(oldest)
        cache.append(file)


def _drop(file: MappedFile) -> None:
    content, file.content = file.content, None
    if content is not None and not isinstance(content, bytes):
        content.close()
