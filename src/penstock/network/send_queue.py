"""The responses that one connection has to send: bytes and file slices, by one of three paths.

It neither owns the socket nor orders requests. Invariant: a lease is released exactly once, when
the last byte of its response was sent or when the queue is cleared.
"""

import errno
import mmap
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import islice
from typing import Final

from penstock.model.slices import FileRun, FileSlice, Releasable
from penstock.network.buffers import Buffer
from penstock.network.in_flight_request import Part
from penstock.network.small_slices import (
    COPIED_BYTES,
    SMALL_BYTES,
    FileTruncated,
    InFile,
    Maps,
    SmallSlices,
    grouped,
    truncated,
)
from penstock.network.tls_socket import TlsSocket

Entry = tuple[Buffer | InFile, Releasable | None]  # the lease is on a response's last entry

GATHERED: Final = 64  # buffers per system call


class SendPath(Enum):
    """How file slices are sent (bench/zero_copy compares the paths)."""

    COPY = "copy"  # read into memory, then send
    MMAP = "mmap"  # send from a memory map
    SENDFILE = "sendfile"  # the kernel moves the pages; small slices are copied


class SendQueue:
    """Owned by its connection."""

    __slots__ = ("_load", "_loaded_bytes", "_may_map", "_offset", "entries", "unsent_bytes")

    def __init__(self, path: SendPath) -> None:
        self.entries: deque[Entry] = (
            deque()
        )  # read only; public because a call for its length is slow
        self._offset = 0  # bytes of the first entry that were sent
        self._load, self._loaded_bytes = _find_loader(path)  # larger slices go to sendfile
        self._may_map = self._loaded_bytes < sys.maxsize  # the kernel takes the bytes
        self.unsent_bytes = 0  # in memory; without file slices

    def add(self, parts: Sequence[Part], lease: Releasable | None) -> None:
        if lease is None and len(parts) == 1 and type(parts[0]) is bytes and parts[0]:
            self.entries.append((parts[0], None))  # nearly every response
            self.unsent_bytes += len(parts[0])
            return
        flat = _flat(parts, may_map=self._may_map)
        for part in flat:
            self.entries.append((part, None))
            if type(part) is bytes or not isinstance(part, InFile):
                self.unsent_bytes += len(part)
        if lease is None:
            return
        if flat:
            self.entries[-1] = (self.entries[-1][0], lease)
        else:
            lease.release()

    def send(self, sock: socket.socket | TlsSocket, at_most: int) -> int:
        """Send up to `at_most` bytes; returns the count taken, fewer if the socket is full."""
        total = 0
        try:
            while self.entries and total < at_most:
                first = self.entries[0][0]
                if type(first) is not bytes or len(self.entries) > 1:
                    self._load_slices(at_most - total)
                    first = self.entries[0][0]
                if isinstance(first, FileSlice):
                    total += self._send_file(sock, first, at_most - total)
                elif isinstance(first, SmallSlices):
                    total += self._send_mapped(sock, first, at_most - total)
                else:
                    total += self._send_bytes(sock, at_most - total)
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno != errno.EFAULT:
                raise
            raise FileTruncated("a mapped file was truncated while it was being sent") from None
        return total

    def clear(self) -> None:
        """The connection is closed: nothing more is sent."""
        entries, self.entries = self.entries, deque()
        self.unsent_bytes = self._offset = 0
        for _, lease in entries:
            if lease is not None:
                lease.release()

    def _send_file(self, sock: socket.socket | TlsSocket, piece: FileSlice, at_most: int) -> int:
        count = min(piece.length - self._offset, at_most)
        sent = os.sendfile(sock.fileno(), piece.fd, piece.position + self._offset, count)
        if sent == 0:
            raise truncated(piece)
        self._advance(sent)
        return sent

    def _send_mapped(
        self, sock: socket.socket | TlsSocket, pieces: SmallSlices, at_most: int
    ) -> int:
        sent = sock.sendmsg(pieces.views(self._offset, at_most), (), 0)
        self._advance(sent)
        return sent

    def _send_bytes(self, sock: socket.socket | TlsSocket, at_most: int) -> int:
        entries = self.entries
        if len(entries) == 1:
            data = entries[0][0]
            assert type(data) is bytes or not isinstance(data, InFile)
            if self._offset or len(data) > at_most:
                data = memoryview(data)[self._offset : self._offset + at_most]
            sent = sock.send(data)
        else:
            buffers, flags = self._gather(at_most)
            sent = sock.sendmsg(buffers, (), flags)
        self._advance(sent)
        return sent

    def _gather(self, at_most: int) -> tuple[list[Buffer], int]:
        """The leading buffers, up to a slice, which shares a packet with what precedes it."""
        buffers: list[Buffer] = []
        start = self._offset
        for part, _ in islice(self.entries, GATHERED):
            if isinstance(part, InFile):
                return buffers, MSG_MORE
            data = memoryview(part)[start : start + at_most]
            start = 0
            buffers.append(data)
            at_most -= len(data)
            if at_most <= 0:
                break
        return buffers, 0

    def _advance(self, sent: int) -> None:
        """So many bytes were sent: drop completed entries and release their leases."""
        entries = self.entries
        sent += self._offset
        while entries:
            part, lease = entries[0]
            if type(part) is not bytes and isinstance(part, InFile):
                size = part.length
                if sent < size:
                    break
            else:
                size = len(part)
                if sent < size:
                    break
                self.unsent_bytes -= size
            sent -= size
            entries.popleft()
            if lease is not None:
                lease.release()
        self._offset = sent

    def _load_slices(self, at_most: int) -> None:
        """Replace small slices by their bytes, within the next so many bytes and up to the first
        slice that goes to sendfile.

        Bytes that were loaded and not sent stay in the queue, so no byte is loaded twice.
        """
        is_first = isinstance(self.entries[0][0], InFile)
        if not is_first and self.unsent_bytes - self._offset >= COPIED_BYTES:
            return
        index, left = 0, at_most + self._offset
        while left > 0 and index < len(self.entries):
            part, lease = self.entries[index]
            if isinstance(part, SmallSlices):
                if part.mapped is not None:
                    return
                part = part.read()
                self.entries[index] = (part, lease)
                self.unsent_bytes += len(part)
            elif isinstance(part, FileSlice):
                if part.length > self._loaded_bytes:
                    return
                part = self._load(part, left)
                self._replace(index, part)
            left -= len(part)
            index += 1

    def _replace(self, index: int, data: Buffer) -> None:
        """Replace the slice, or its beginning, by its bytes."""
        piece, lease = self.entries[index]
        assert isinstance(piece, FileSlice)
        self.unsent_bytes += len(data)
        rest = piece.length - len(data)
        if not rest:
            self.entries[index] = (data, lease)
            return
        self.entries[index] = (FileSlice(piece.fd, piece.position + len(data), rest), lease)
        self.entries.insert(index, (data, None))


MSG_MORE: int = getattr(socket, "MSG_MORE", 0)  # Linux

Loader = Callable[[FileSlice, int], Buffer]


def _find_loader(path: SendPath) -> tuple[Loader, int]:
    """The loader of slices, and the largest size that it loads."""
    if path is SendPath.MMAP:
        return _map, sys.maxsize
    if path is SendPath.COPY or sys.platform != "linux":
        return _copy, sys.maxsize  # elsewhere `sendfile` has other rules
    return _copy, SMALL_BYTES


def _copy(piece: FileSlice, at_most: int) -> Buffer:
    data = os.pread(piece.fd, min(piece.length, at_most, COPIED_BYTES), piece.position)
    if not data:
        raise truncated(piece)
    return data


def _map(piece: FileSlice, _: int) -> Buffer:
    """The whole slice. The map lives as long as its view: until it was sent, or the queue
    cleared."""
    start = piece.position % mmap.ALLOCATIONGRANULARITY
    try:
        mapped = mmap.mmap(
            piece.fd, piece.length + start, prot=mmap.PROT_READ, offset=piece.position - start
        )
    except ValueError:  # the map would be longer than the file
        raise truncated(piece) from None
    return memoryview(mapped)[start:]


def _flat(parts: Sequence[Part], *, may_map: bool) -> list[Buffer | InFile]:
    flat: list[Buffer | InFile] = []
    maps: Maps | None = None
    for part in parts:
        if isinstance(part, FileRun):
            if len(part.slices) == 1:  # nearly always
                flat += [piece for piece in part.slices if piece.length]
                continue
            if maps is None and may_map:
                maps = Maps(run.slices for run in parts if isinstance(run, FileRun))
            flat += grouped(part.slices, maps)
        elif len(part):
            flat.append(part)
    return flat
