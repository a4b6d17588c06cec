"""One request and its reply: the seam between connections and handlers. No sockets here.

Each exchange is answered at most once, and replies leave in the order of their requests.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.model.slices import FileRun, Releasable
from penstock.security.principal import Caller

Part = bytes | bytearray | memoryview | FileRun
Call = Callable[[], None]


class RequestConnection(Protocol):
    """What an exchange needs of its connection."""

    caller: Caller
    local_host: str
    local_port: int
    number: int  # higher than that of every connection before it
    is_closed: bool

    def take_answer(self, request: "InFlightRequest") -> None: ...

    def let_next_start(self, request: "InFlightRequest") -> None: ...

    def try_keep(self, count: int) -> Releasable | None: ...

    def close(self, reason: str) -> None: ...


class InFlightRequest:
    """Owned by the event loop. Dropping one unanswered holds up its connection for ever."""

    __slots__ = (
        "_closings",
        "_connection",
        "caller",
        "frame",
        "is_answered",
        "lease",
        "local_host",
        "local_port",
        "parts",
        "received_ms",
    )

    def __init__(self, connection: RequestConnection, frame: memoryview, received_ms: int) -> None:
        self._connection = connection
        self.caller = connection.caller
        self.local_host = connection.local_host  # the address that the client connected to
        self.local_port = connection.local_port
        # The request without its four size bytes, writable; dead when `on_request` has returned.
        self.frame = frame
        self.received_ms = received_ms  # monotonic
        self.is_answered = False
        self.parts: Sequence[Part] = ()
        self.lease: Releasable | None = None
        self._closings: list[Call] | None = None  # None: nobody asked

    @property
    def is_closed(self) -> bool:
        """The connection is gone: nobody waits for an answer."""
        return self._connection.is_closed

    @property
    def connection(self) -> int:
        """Its number: of two connections the one that was made later has the higher."""
        return self._connection.number

    def let_next_start(self) -> None:
        """Let the connection's next request begin before this one is answered."""
        self._connection.let_next_start(self)

    def try_keep(self, count: int) -> Releasable | None:
        """Room for a copy of so many of the frame's bytes, until it is released: also after the
        connection's end. None: there is none now, and the client has to ask again."""
        return self._connection.try_keep(count)

    def reply(self, parts: Sequence[Part], lease: Releasable | None = None) -> None:
        """Answer, now or later, once. The lease is released when the parts have left or never can.

        After the connection's end this only releases.
        """
        if self.is_answered:
            if lease is not None:
                lease.release()
            raise AssertionError(f"a request of {self.caller.host} was answered twice")
        self.is_answered = True
        self._closings = None
        self.parts = parts
        self.lease = lease
        self._connection.take_answer(self)

    def reply_nothing(self) -> None:
        """The client expects no reply (acks=0), but its next request may begin."""
        self.reply(())

    def close(self, reason: str) -> None:
        """The client broke a rule: what was answered before may still leave, then it is cut off."""
        self._connection.close(reason)

    def on_close(self, call: Call) -> None:
        """Call this if the connection ends before the reply, to give up what waits for it."""
        if self.is_answered:
            return
        if self._connection.is_closed:
            call()
        elif self._closings is None:
            self._closings = [call]
        else:
            self._closings.append(call)

    def take_closings(self) -> Sequence[Call]:
        """For the connection: what to call at its end, handed over once."""
        closings, self._closings = self._closings or (), None
        return closings
