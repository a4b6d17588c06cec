"""Replies on their way out of one connection: bytes and file slices, by one of three paths.

Not the socket's owner, and no order of requests. Invariant: a lease is released exactly once,
when the last byte of its reply has left or when the outbox is cleared.
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

from penstock.model.slices import FileRun, FileSlice, Releasable
from penstock.network.exchange import Part

Buffer = bytes | bytearray | memoryview
Entry = tuple[Buffer | FileSlice, Releasable | None]  # the lease rides on a reply's last entry

GATHERED = 64  # buffers in one system call


class SendPath(Enum):
    """How slices of files become bytes of a socket (bench/zero_copy compares them)."""

    COPY = "copy"  # read into memory of ours, then send it
    MMAP = "mmap"  # map the file's pages, send from there
    SENDFILE = "sendfile"  # the kernel moves the pages


class FileTruncated(Exception):
    """A file ended before the slice that stands in a reply whose size was already promised."""


class Outbox:
    """Owned by its connection."""

    __slots__ = ("_offset", "_send_slice", "entries", "unsent_bytes")

    def __init__(self, path: SendPath) -> None:
        self.entries: deque[Entry] = deque()  # to be read only; a call for its length is dear
        self._offset = 0  # of the first entry, how much has left
        self._send_slice = _find_sender(path)
        self.unsent_bytes = 0  # in memory; without file slices

    def add(self, parts: Sequence[Part], lease: Releasable | None) -> None:
        if lease is None and len(parts) == 1 and type(parts[0]) is bytes and parts[0]:
            self.entries.append((parts[0], None))  # nearly every reply
            self.unsent_bytes += len(parts[0])
            return
        added = False
        for part in _flat(parts):
            self.entries.append((part, None))
            added = True
            if type(part) is not FileSlice:
                self.unsent_bytes += len(part)
        if lease is None:
            return
        if added:
            self.entries[-1] = (self.entries[-1][0], lease)
        else:
            lease.release()

    def send(self, sock: socket.socket, at_most: int) -> int:
        """Send what the socket takes of the next so many bytes; fewer mean that it is full."""
        total = 0
        try:
            while self.entries and total < at_most:
                first = self.entries[0][0]
                if type(first) is FileSlice:
                    sent = self._send_slice(self, sock, first, at_most - total)
                else:
                    sent = self._send_bytes(sock, at_most - total)
                total += sent
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno != errno.EFAULT:
                raise
            raise FileTruncated("a mapped file was cut off while it was being sent") from None
        return total

    def clear(self) -> None:
        """The connection is gone: nothing more leaves."""
        entries, self.entries = self.entries, deque()
        self.unsent_bytes = self._offset = 0
        for _, lease in entries:
            if lease is not None:
                lease.release()

    def replace_first(self, data: Buffer, length: int) -> None:
        """Put these bytes in the place of the next ones of the slice in front."""
        piece, lease = self.entries.popleft()
        assert type(piece) is FileSlice
        length_left = piece.length - self._offset - length
        if length_left:
            position = piece.position + self._offset + length
            self.entries.appendleft((FileSlice(piece.fd, position, length_left), lease))
            lease = None
        self.entries.appendleft((data, lease))
        self._offset = 0
        self.unsent_bytes += length

    def advance(self, sent: int) -> None:
        """So many bytes have left: drop what is through, release its leases."""
        entries = self.entries
        sent += self._offset
        while entries:
            part, lease = entries[0]
            is_slice = type(part) is FileSlice
            size = part.length if type(part) is FileSlice else len(part)
            if sent < size:
                break
            sent -= size
            entries.popleft()
            if not is_slice:
                self.unsent_bytes -= size
            if lease is not None:
                lease.release()
        self._offset = sent

    @property
    def offset(self) -> int:
        return self._offset

    def _send_bytes(self, sock: socket.socket, at_most: int) -> int:
        entries = self.entries
        if len(entries) == 1:
            data = entries[0][0]
            assert not isinstance(data, FileSlice)
            if self._offset or len(data) > at_most:
                data = memoryview(data)[self._offset : self._offset + at_most]
            sent = sock.send(data)
        else:
            buffers, flags = self._gather(at_most)
            sent = sock.sendmsg(buffers, (), flags)
        self.advance(sent)
        return sent

    def _gather(self, at_most: int) -> tuple[list[Buffer], int]:
        """The buffers in front, up to a slice: that shall share a packet with what precedes it."""
        buffers: list[Buffer] = []
        start = self._offset
        for part, _ in islice(self.entries, GATHERED):
            if isinstance(part, FileSlice):
                return buffers, MSG_MORE
            data = memoryview(part)[start : start + at_most]
            start = 0
            buffers.append(data)
            at_most -= len(data)
            if at_most <= 0:
                break
        return buffers, 0


MSG_MORE: int = getattr(socket, "MSG_MORE", 0)  # Linux

Sender = Callable[[Outbox, socket.socket, FileSlice, int], int]


def _find_sender(path: SendPath) -> Sender:
    if path is SendPath.MMAP:
        return _send_mapped
    if path is SendPath.COPY or sys.platform != "linux":
        return _send_copied  # elsewhere `sendfile` has other rules
    return _send_file


def _send_file(outbox: Outbox, sock: socket.socket, piece: FileSlice, at_most: int) -> int:
    offset = outbox.offset
    count = min(piece.length - offset, at_most)
    sent = os.sendfile(sock.fileno(), piece.fd, piece.position + offset, count)
    if sent == 0:
        raise _truncated(piece)
    outbox.advance(sent)
    return sent


def _send_copied(outbox: Outbox, sock: socket.socket, piece: FileSlice, at_most: int) -> int:
    """What was read and not sent yet stays in memory: no byte is read twice."""
    offset = outbox.offset
    data = os.pread(piece.fd, min(piece.length - offset, at_most), piece.position + offset)
    if not data:
        raise _truncated(piece)
    outbox.replace_first(data, len(data))
    sent = sock.send(data)
    outbox.advance(sent)
    return sent


def _send_mapped(outbox: Outbox, sock: socket.socket, piece: FileSlice, at_most: int) -> int:
    """The map lives as long as the view of it: until its bytes have left, or the connection."""
    start = piece.position % mmap.ALLOCATIONGRANULARITY
    try:
        mapped = mmap.mmap(
            piece.fd, piece.length + start, prot=mmap.PROT_READ, offset=piece.position - start
        )
    except ValueError:  # the map would be longer than the file
        raise _truncated(piece) from None
    view = memoryview(mapped)[start:]
    outbox.replace_first(view, piece.length)
    sent = sock.send(view[:at_most])
    outbox.advance(sent)
    return sent


def _truncated(piece: FileSlice) -> FileTruncated:
    return FileTruncated(
        f"file {piece.fd} ends before position {piece.position + piece.length}: it was cut off "
        "after its slice was promised to a client"
    )


def _flat(parts: Sequence[Part]) -> list[Buffer | FileSlice]:
    flat: list[Buffer | FileSlice] = []
    for part in parts:
        if isinstance(part, FileRun):
            flat += [piece for piece in part.slices if piece.length]
        elif len(part):
            flat.append(part)
    return flat
