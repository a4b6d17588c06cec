"""One TCP connection to one ZooKeeper server, from its handshake to its end.

Not the session, which outlives it. Requests are sent in the order of `send`; answers and events
share one stream and are passed on in the order in which they arrive.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from penstock.metadata_store.zookeeper.messages import (
    CLOSE,
    EVENT_XID,
    PING,
    PING_XID,
    Hello,
    ZooKeeperReply,
    decode_hello,
    decode_reply,
)

MAX_FRAME_BYTES = 64 << 20  # a znode's children in one answer; ZooKeeper sends no more
_LENGTH = struct.Struct("!i")
_HEADER = struct.Struct("!ii")
_LAST_XID = 2**31 - 1

Answered = Callable[[ZooKeeperReply | None], None]  # None: connection lost, outcome unknown


class ConnectionOwner(Protocol):
    """The owner of a connection; called on the event loop, must not raise."""

    def on_event(self, connection: "ZooKeeperConnection", body: bytes) -> None: ...
    def on_lost(self, connection: "ZooKeeperConnection", reason: str) -> None:
        """Called after every unanswered request was completed; only if it was established."""


class _Unanswered(NamedTuple):
    xid: int
    length: int
    answered: Answered
    sent_ms: float


class ZooKeeperConnection(asyncio.Protocol):
    """Created by `loop.create_connection`; usable once `established` is done."""

    def __init__(self, owner: ConnectionOwner, hello: bytes) -> None:
        self._owner = owner
        self._hello = hello
        self._loop = asyncio.get_running_loop()
        self.established: asyncio.Future[Hello] = self._loop.create_future()
        self.lost = asyncio.Event()
        self.heard_ms = self.sent_ms = self._now_ms()
        # When the last answered request or ping was sent: the server had the session after that.
        self.confirmed_ms = self.sent_ms
        self._pings_sent_ms: deque[float] = deque()  # unanswered
        self.unanswered_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._unanswered: deque[_Unanswered] = deque()
        self._xid = 0
        self._reason = "ZooKeeper closed the connection"
        self._is_dropped = False

    @property
    def unanswered(self) -> int:
        return len(self._unanswered)

    def send(self, kind: int, body: bytes, answered: Answered) -> None:
        self._xid = self._xid % _LAST_XID + 1
        self._unanswered.append(_Unanswered(self._xid, len(body), answered, self._now_ms()))
        self.unanswered_bytes += len(body)
        self._write(_HEADER.pack(self._xid, kind) + body)

    def ping(self) -> None:
        self._pings_sent_ms.append(self._now_ms())
        self._write(_HEADER.pack(PING_XID, PING))

    def send_close(self, answered: Answered) -> None:
        """Close the session; the server answers and closes the connection."""
        self.send(CLOSE, b"", answered)

    def drop(self, reason: str) -> None:
        """Close at once, without notifying the server: the session stays until it expires."""
        self._reason = reason
        self._is_dropped = True  # received data is ignored
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's is one only in what it does
        self.confirmed_ms = self._now_ms()  # of the handshake, once it is answered
        self._write(self._hello)

    def data_received(self, data: bytes) -> None:
        self.heard_ms = self._now_ms()
        self._received += data
        start = 0
        while len(self._received) - start >= _LENGTH.size and not self._is_dropped:
            (length,) = _LENGTH.unpack_from(self._received, start)
            if not 0 <= length <= MAX_FRAME_BYTES:
                self.drop(f"received a frame of {length} bytes, which ZooKeeper does not send")
                return
            end = start + _LENGTH.size + length
            if len(self._received) < end:
                break
            self._take(bytes(self._received[start + _LENGTH.size : end]))
            start = end
        del self._received[:start]

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()
        reason = self._describe_end(error)
        while self._unanswered:
            self._unanswered.popleft().answered(None)
        if not self.established.done():
            self.established.set_exception(ConnectionError(reason))
        elif not self.established.cancelled():
            self._owner.on_lost(self, reason)

    def _describe_end(self, error: Exception | None) -> str:
        if error is not None:
            return f"{self._reason} ({error})"
        is_plaintext = (
            self._transport is not None and self._transport.get_extra_info("ssl_object") is None
        )
        if self._is_dropped or self.established.done() or not is_plaintext:
            return self._reason
        return f"{self._reason}; if that port uses TLS, set zookeeper.ssl.client.enable"

    def _take(self, frame: bytes) -> None:
        try:
            if not self.established.done():
                self.established.set_result(decode_hello(frame))
            else:
                self._take_reply(decode_reply(frame))
        except (struct.error, UnicodeDecodeError) as error:
            self.drop(f"an answer cannot be read ({error})")

    def _take_reply(self, reply: ZooKeeperReply) -> None:
        if reply.xid == EVENT_XID:
            self._owner.on_event(self, reply.body)
        elif reply.xid == PING_XID:
            if self._pings_sent_ms:
                self._confirm(self._pings_sent_ms.popleft())
        else:
            if not self._unanswered or self._unanswered[0].xid != reply.xid:
                self.drop(f"answer {reply.xid} arrived out of order")
                return
            first = self._unanswered.popleft()
            self.unanswered_bytes -= first.length
            self._confirm(first.sent_ms)
            first.answered(reply)

    def _confirm(self, sent_ms: float) -> None:
        self.confirmed_ms = max(self.confirmed_ms, sent_ms)

    def _write(self, payload: bytes) -> None:
        assert self._transport is not None
        self.sent_ms = self._now_ms()
        self._transport.write(_LENGTH.pack(len(payload)) + payload)

    def _now_ms(self) -> float:
        return self._loop.time() * 1000
