"""One request in flight and its response: the interface between connections and handlers.

No sockets here. Each request is answered at most once, and responses are sent in request order.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.model.slices import FileRun, Releasable
from penstock.network.receive_memory import SMALL_BYTES
from penstock.security.principal import Caller, Principal
from penstock.security.sasl.login import SaslLogin

Part = bytes | bytearray | memoryview | FileRun
Call = Callable[[], None]


class RequestConnection(Protocol):
    """A request's dependencies on its connection."""

    caller: Caller
    local_host: str
    local_port: int
    number: int  # higher than that of every connection before it
    is_closed: bool
    login: SaslLogin | None  # None: its listener has no SASL

    def take_answer(self, request: "InFlightRequest") -> None: ...

    def let_next_start(self, request: "InFlightRequest") -> None: ...

    def try_keep(self, count: int) -> Releasable | None: ...

    def close(self, reason: str, *, is_logged: bool = True) -> None: ...

    def fail(self, what: str) -> None: ...

    def complete_login(self, principal: Principal) -> None: ...

    def note_failed_login(self, reason: str) -> None: ...

    def note_expired_session(self) -> None: ...

    def drain(self) -> None: ...

    def on_disconnect(self, call: Call) -> None: ...

    def mute(self, duration_ms: int) -> None: ...


class RequestObserver(Protocol):
    """Counts and times requests; the dispatcher sets it."""

    def on_answered(self, request: "InFlightRequest") -> None:
        """Its `parts` are about to be queued, and may be replaced."""

    def on_sent(self, elapsed_s: float) -> None:
        """The response's last byte is in the socket, so long after the response."""

    def count_error(self, code: int, request: "InFlightRequest") -> None: ...


class InFlightRequest:
    """Owned by the event loop. One that is never answered blocks its connection for ever."""

    __slots__ = (
        "_close_callbacks",
        "_connection",
        "_held",
        "answered_s",
        "caller",
        "frame",
        "is_answered",
        "lease",
        "local_host",
        "local_port",
        "local_s",
        "observer",
        "parts",
        "received_ms",
        "started_s",
    )

    def __init__(self, connection: RequestConnection, frame: memoryview, received_ms: int) -> None:
        self._connection = connection
        self.caller = connection.caller
        self.local_host = connection.local_host  # the address that the client connected to
        self.local_port = connection.local_port
        # The request without its size, writable; invalid once `on_request` has returned.
        self.frame = frame
        self.received_ms = received_ms  # monotonic
        self.is_answered = False
        self.parts: Sequence[Part] = ()
        self.lease: Releasable | None = None
        self._close_callbacks: list[Call] | None = None  # None: no callbacks
        self._held: Releasable | None = None  # memory until the response
        self.observer: RequestObserver | None = None  # None: refused before it was counted
        self.started_s = 0.0  # `perf_counter`, set with the observer
        self.local_s = 0.0  # in the handler; 0 until a handler returns without a response
        self.answered_s = 0.0  # `perf_counter`

    @property
    def is_closed(self) -> bool:
        """The connection is closed: no response can be sent."""
        return self._connection.is_closed

    @property
    def connection(self) -> int:
        """The connection's number; later connections have higher ones."""
        return self._connection.number

    @property
    def login(self) -> SaslLogin | None:
        """The connection's SASL login; None: its listener has no SASL."""
        return self._connection.login

    def complete_login(self, principal: Principal) -> None:
        """The connection's next requests are this principal's."""
        self._connection.complete_login(principal)

    def note_failed_login(self, reason: str) -> None:
        """Count and log it; the reason is not sent."""
        self._connection.note_failed_login(reason)

    def note_expired_session(self) -> None:
        """Count it; `close` follows."""
        self._connection.note_expired_session()

    def close_once_answered(self) -> None:
        """Start no more of the connection's requests; close it when all responses are sent."""
        self._connection.drain()

    def let_next_start(self) -> None:
        """Let the connection's next request start before this one is answered."""
        self._connection.let_next_start(self)

    def try_keep(self, count: int) -> Releasable | None:
        """Memory for a copy of so many of the frame's bytes until it is released, even after the
        connection has closed. None: there is none now, and the client has to retry."""
        return self._connection.try_keep(count)

    def try_hold(self, count: int) -> bool:
        """Count so many bytes as held by this request until it is answered or its connection
        closes; at most once. False: there is no memory, so it must not wait."""
        if count <= SMALL_BYTES:
            return True
        self._held = self._connection.try_keep(count)
        return self._held is not None

    def reply(self, parts: Sequence[Part], lease: Releasable | None = None) -> None:
        """Respond once, now or later. The lease is released when the parts were sent or never can
        be.

        On a closed connection this only releases the lease.
        """
        if self.is_answered:
            if lease is not None:
                lease.release()
            raise AssertionError(f"a request of {self.caller.host} was answered twice")
        self.is_answered = True
        self._close_callbacks = None
        if self._held is not None:
            self._release_held()
        self.parts = parts
        self.lease = lease
        if self.observer is not None:
            self.observer.on_answered(self)
        self._connection.take_answer(self)

    def reply_nothing(self) -> None:
        """The client expects no response (acks=0), but its next request may start."""
        self.reply(())

    def mute(self, duration_ms: int) -> None:
        """Have the connection read and start nothing for so long. Responses are still sent."""
        self._connection.mute(duration_ms)

    def close(self, reason: str, *, is_logged: bool = True) -> None:
        """Close the connection because of a protocol violation; earlier responses may still be
        sent. `is_logged`: false for what the log has said before."""
        self._connection.close(reason, is_logged=is_logged)

    def fail(self, what: str) -> None:
        """Close the connection because `what` raised an error that nobody foresaw; called where it
        is handled. A handler that fails before it returns needs no call: the connection sees it."""
        self._connection.fail(what)

    def on_close(self, call: Call) -> None:
        """Call this if the connection closes before the response, to cancel what waits for it."""
        if self.is_answered:
            return
        if self._connection.is_closed:
            call()
        elif self._close_callbacks is None:
            self._close_callbacks = [call]
        else:
            self._close_callbacks.append(call)

    def on_disconnect(self, call: Call) -> None:
        """Call this once when the connection closes, even after the response. Callers limit their
        calls to a few for each connection: it keeps them until then."""
        if self._connection.is_closed:
            call()
        else:
            self._connection.on_disconnect(call)

    def take_close_callbacks(self) -> Sequence[Call]:
        """The close callbacks, for the connection that ends; handed over once."""
        self._release_held()
        callbacks, self._close_callbacks = self._close_callbacks or (), None
        return callbacks

    def _release_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.release()
