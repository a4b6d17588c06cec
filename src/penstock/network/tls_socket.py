"""A TLS socket with the calls and errors of a plain non-blocking one, for `ClientConnection`.

Not the handshake. Invariant: a record that OpenSSL has begun to write is written again with the
same bytes, because a connection never drops what it has queued.
"""

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress

from penstock.network.buffers import Buffer

RECORD_BYTES = 16 * 1024  # the most that one TLS record carries
READ_BYTES = 16 * RECORD_BYTES  # at once, so that other connections have their turn
# Records of one `sendmsg`: more would be copied again if the socket is full.
JOINED_BYTES = 8 * RECORD_BYTES


class TlsSocket:
    """Owned by its connection."""

    __slots__ = ("_pending", "_sock")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._pending = b""  # a record that OpenSSL must write before any other

    def fileno(self) -> int:
        return self._sock.fileno()

    def getsockopt(self, level: int, option: int) -> int:
        return self._sock.getsockopt(level, option)

    def has_decrypted(self) -> bool:
        """Whether bytes are left that the event loop does not see, because the kernel has given
        them to OpenSSL."""
        return self._sock.pending() > 0

    def recv_into(self, buffer: memoryview, count: int = 0) -> int:
        """As many full records as arrived and fit; BlockingIOError if there is nothing."""
        return self._receive(buffer[:count] if count else buffer, RECORD_BYTES)

    def recv_rest(self, buffer: memoryview) -> int:
        """Of a frame that goes on: also short records, of which librdkafka writes one for each
        message."""
        return self._receive(buffer, 1)

    def _receive(self, buffer: memoryview, least: int) -> int:
        """Until a record has fewer bytes than `least`: it was the last one, or with 0 bytes the
        end of the stream. Stops between records, so that none is left in OpenSSL unless the buffer
        is full."""
        size, total = len(buffer), 0
        while total < size:
            try:
                received = self._sock.recv_into(buffer[total:])
            except ssl.SSLWantReadError:
                if total:
                    break
                raise BlockingIOError from None
            total += received
            if received < least or total >= READ_BYTES:
                break
        return total

    def send(self, data: Buffer) -> int:
        """Whole records, as the socket takes them; BlockingIOError if it takes none."""
        if self._pending:
            return self._send_pending()
        view = memoryview(data)
        size = len(view)
        total = 0
        while total < size:
            record = view[total : total + RECORD_BYTES]
            try:
                total += self._write(record)
            except ssl.SSLWantWriteError:
                self._pending = bytes(record)
                if total:
                    break
                raise BlockingIOError from None
        return total

    def sendmsg(self, buffers: Sequence[Buffer], ancillary: Sequence[object], flags: int) -> int:
        """Buffers share records, as they would share packets."""
        if self._pending:
            return self._send_pending()
        joined: list[Buffer] = []
        left = JOINED_BYTES
        for buffer in buffers:
            joined.append(memoryview(buffer)[:left])
            left -= len(joined[-1])
            if left <= 0:
                break
        return self.send(b"".join(joined))

    def recv(self, count: int) -> bytes:
        """Bytes as they come, not decrypted: what a connection that closes throws away."""
        return socket.socket.recv(self._sock, count)

    def close(self) -> None:
        """Tell the client that the stream ends here and was not cut off."""
        with suppress(OSError, ValueError):  # nobody waits for the client's own close_notify
            self._sock.unwrap()
        self._sock.close()

    def _write(self, record: Buffer) -> int:
        """BrokenPipeError if the client has left, as by a plain socket."""
        try:
            return self._sock.send(record)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise BrokenPipeError(*error.args) from None

    def _send_pending(self) -> int:
        try:
            sent = self._write(self._pending)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        self._pending = b""
        return sent
