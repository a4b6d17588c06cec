"""One client's connection: frames in, requests started in order, responses out in the same order.

Not the list of connections, and no API. Invariants: one request of a connection runs at a time
unless it lets the next one start. A slow client affects only its own connection. On close, every
file lease is released and every in-flight request's close callback runs exactly once.
"""

import asyncio
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Final

from penstock.logs.rate_limit import RateLimitedLogger
from penstock.network.in_flight_request import InFlightRequest, RequestObserver
from penstock.network.large_requests import LARGE_BYTES, LIGHT_S, LargeRequests, kind_of
from penstock.network.limits import NetworkLimits
from penstock.network.receive_buffer import ReceiveBuffer
from penstock.network.receive_memory import Kept, ReceiveMemory
from penstock.network.send_queue import SendPath, SendQueue
from penstock.network.small_slices import FileTruncated
from penstock.network.statistics import Counters
from penstock.network.tls_socket import TlsSocket
from penstock.protocol.malformed import MalformedMessage, RequestOverLimit
from penstock.purgatory.loop_timers import LoopTimers
from penstock.purgatory.timing_wheel import Timer
from penstock.security.audit.trail import AuditTrail
from penstock.security.principal import Caller, Principal
from penstock.security.sasl.login import SaslLogin

SPARE_IDLE_MS: Final = 5_000  # idle time after which the spare buffer is dropped
DISCARDED_BYTES: Final = 64 * 1024
DISCARDED_READS: Final = 16  # of unread input, before the socket is closed
_PARKED: Final = 1  # its next request is large and waits for its turn
_MUTED: Final = 2  # a quota is exceeded: until a timer nothing is read and no request starts
_HAS_TCP_STATE: Final = sys.platform == "linux"  # as the first byte of TCP_INFO
_CLOSE_WAIT: Final = 8
MAX_TIMED: Final = 64  # unsent responses whose time until they are sent is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionDependencies:
    """Dependencies that the connections of a server share."""

    loop: asyncio.AbstractEventLoop
    timers: LoopTimers
    limits: NetworkLimits
    memory: ReceiveMemory
    large_requests: LargeRequests
    counters: Counters
    send_path: SendPath
    on_request: Callable[[InFlightRequest], None]
    on_sasl_request: Callable[[InFlightRequest], None]  # on listeners with SASL
    check_frame: Callable[[Caller, int, int], None]  # API key and size; raises RequestOverLimit
    logger: RateLimitedLogger
    audit: AuditTrail
    forget: Callable[["ClientConnection"], None]


class ClientConnection:
    """Owned by the event loop. Closes itself; then `forget` is called."""

    __slots__ = (
        "_active_ms",
        "_dependencies",
        "_disconnect_callbacks",
        "_eof_ms",
        "_fd",
        "_frame_started_ms",
        "_gate",
        "_has_backlog",
        "_has_sent",
        "_holds",
        "_in_flight",
        "_is_draining",
        "_is_first",
        "_is_in_turn",
        "_is_read_scheduled",
        "_is_reading",
        "_is_scheduled",
        "_is_writing",
        "_last_large_s",
        "_left_ms",
        "_limits",
        "_login_timer",
        "_muted_until_ms",
        "_now_ms",
        "_on_request",
        "_receive_buffer",
        "_send_queue",
        "_sock",
        "_timer",
        "_tls",
        "_turn_ms",
        "_unmute_timer",
        "_unsent",
        "caller",
        "is_closed",
        "local_host",
        "local_port",
        "login",
        "number",
    )

    def __init__(
        self,
        dependencies: ConnectionDependencies,
        sock: socket.socket | TlsSocket,
        *,
        number: int,
        caller: Caller,
        local_host: str,
        local_port: int,
        login: SaslLogin | None = None,
    ) -> None:
        self.login = login  # None: its listener has no SASL
        self.number = number
        self.caller = caller
        self.local_host = local_host
        self.local_port = local_port
        self.is_closed = False
        self._dependencies = dependencies
        self._limits = dependencies.limits
        self._now_ms = dependencies.timers.now_ms
        self._sock = sock
        self._tls = sock if isinstance(sock, TlsSocket) else None
        self._fd = sock.fileno()
        has_sasl = login is not None
        self._on_request = dependencies.on_sasl_request if has_sasl else dependencies.on_request
        self._receive_buffer = ReceiveBuffer(
            dependencies.memory,
            host=caller.host,
            max_frame_bytes=_max_first_bytes(dependencies.limits, login),
            check_frame=self._check_frame,
            on_memory=self._schedule,
        )
        # Only bytes in memory can be encrypted.
        path = dependencies.send_path if self._tls is None else SendPath.COPY
        self._send_queue = SendQueue(path)
        self._in_flight: deque[InFlightRequest] = deque()  # started, not yet queued to send
        self._unsent: list[tuple[RequestObserver, float]] = []  # and when they were answered
        self._disconnect_callbacks: tuple[Callable[[], None], ...] = ()
        self._gate: InFlightRequest | None = None  # the request that the next one waits for
        self._is_in_turn = False
        self._holds = 0  # why no request may start: _PARKED, _MUTED or both
        self._muted_until_ms = 0
        self._last_large_s: float | None = None  # processor time of a large request; None: unknown
        self._is_scheduled = False
        self._has_backlog = False  # complete requests wait for the next turn only
        self._has_sent = False  # since the last read
        self._is_reading = False
        self._is_read_scheduled = False  # bytes are decrypted that the loop does not see
        self._is_writing = False
        self._is_draining = False
        self._is_first = True  # no request was received yet
        self._eof_ms: int | None = None  # None: the client may send more
        self._left_ms: int | None = None  # since when a muted client is known to have gone
        self._turn_ms = self._active_ms = self._now_ms()
        self._frame_started_ms: int | None = self._turn_ms  # None: no request is partly received
        self._timer: Timer[Callable[[], None]] | None = None
        self._login_timer: Timer[Callable[[], None]] | None = None  # None: no login is awaited
        self._unmute_timer: Timer[Callable[[], None]] | None = None  # None: not muted

    def start(self) -> None:
        self._dependencies.loop.add_reader(self._fd, self._on_readable)
        self._is_reading = True
        self._set_timer(self._turn_ms)
        if self.login is not None:
            timers = self._dependencies.timers
            self._login_timer = timers.add_after(self._limits.login_ms, self._on_login_overdue)

    def take_answer(self, request: InFlightRequest) -> None:
        """Queue the response once those of all earlier requests are queued."""
        if self.is_closed:
            if request.lease is not None:
                request.lease.release()
            return
        if self._gate is request:
            self._gate = None
        in_flight = self._in_flight
        while in_flight and in_flight[0].is_answered:
            answered = in_flight.popleft()
            self._send_queue.add(answered.parts, answered.lease)
            observer = answered.observer
            if observer is not None and answered.parts and len(self._unsent) < MAX_TIMED:
                self._unsent.append((observer, answered.answered_s))
        if not self._is_in_turn:
            self._schedule()

    def let_next_start(self, request: InFlightRequest) -> None:
        if self._gate is request:
            self._gate = None
            if not self._is_in_turn and not self.is_closed:
                self._schedule()

    def try_keep(self, count: int) -> Kept | None:
        return self._dependencies.memory.try_keep(self.caller.host, count)

    def on_disconnect(self, call: Callable[[], None]) -> None:
        self._disconnect_callbacks += (call,)

    def mute(self, duration_ms: int) -> None:
        """Read nothing and start no request for so long; queued responses are sent. The client is
        held back by the kernel's buffers, so it costs no memory meanwhile."""
        timers = self._dependencies.timers
        until_ms = timers.now_ms() + duration_ms
        if self.is_closed or until_ms <= self._muted_until_ms:
            return
        if self._unmute_timer is not None:
            timers.cancel(self._unmute_timer)
        self._muted_until_ms = until_ms
        self._holds |= _MUTED
        self._unmute_timer = timers.add_after(duration_ms, self._on_unmute)
        if not self._is_waited_for():
            self._watch_readable(False)

    def close(self, reason: str, *, is_logged: bool = True) -> None:
        """The client violated the protocol. Earlier responses are sent as far as the socket
        takes."""
        if self.is_closed:
            return
        self._dependencies.counters.closed_malformed += 1
        self._close_because("request_refused", reason, is_logged=is_logged)

    def fail(self, what: str) -> None:
        """A bug in a handler closes this connection; it is counted, and reported in full."""
        self._dependencies.counters.unexpected_errors += 1
        self._dependencies.logger.error(
            "request_failed",
            self.caller.host,
            f"{self._prefix}{what} failed unexpectedly: {traceback.format_exc()}",
            **self._log_fields(),
        )
        self.end()

    def complete_login(self, principal: Principal) -> None:
        """Later requests are this principal's."""
        self._dependencies.counters.authentications += 1
        self.caller = self.caller._replace(principal=principal)
        self._dependencies.audit.note_authentication(self.caller, self._mechanism())
        self._receive_buffer.limit(self._limits.max_request_bytes)
        self._cancel_login_timer()

    def note_failed_login(self, reason: str) -> None:
        """The response and the end of the connection are the handler's to choose."""
        self._dependencies.counters.authentication_failures += 1
        self._dependencies.audit.note_authentication(self.caller, self._mechanism(), reason)
        self._log_closed("authentication_failed", f"authentication failed: {reason}")

    def _mechanism(self) -> str:
        assert self.login is not None, "the listener has no SASL"
        return self.login.mechanism

    def note_expired_session(self) -> None:
        self._dependencies.counters.closed_expired += 1

    def drain(self) -> None:
        """Start no more requests; close when the responses to the others have been sent."""
        self._is_draining = True
        if not self.is_closed:
            self._schedule()

    def end(self) -> None:
        """Close at once, whatever is unfinished. Idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        self._stop_watching()
        self._discard_input()
        self._sock.close()
        self._receive_buffer.close()
        self._send_queue.clear()
        self._abandon_in_flight()
        self._dependencies.forget(self)

    # Called by the event loop and the timers.

    def _on_readable(self) -> None:
        if self._has_backlog:
            if self._is_reset():
                self.end()
            return
        try:
            count = self._receive_buffer.receive(self._sock)
        except BlockingIOError:
            return
        except OSError:
            self.end()
            return
        self._turn_ms = self._now_ms()
        if count == 0:
            self._on_end_of_stream()
            return
        self._active_ms = self._turn_ms
        self._dependencies.counters.received_bytes += count
        self._has_sent = False
        if not self._receive_buffer.is_filling:
            self._turn()
        if not self._has_sent and not self.is_closed and self._is_reset():
            self.end()

    def _on_decrypted(self) -> None:
        self._is_read_scheduled = False
        if self._is_reading:
            self._on_readable()

    def _on_writable(self) -> None:
        self._turn_ms = self._now_ms()
        if self._send() and (self._receive_buffer.size or not self._is_reading):
            self._turn()

    def _on_schedule(self) -> None:
        self._is_scheduled = self._has_backlog = False
        if not self.is_closed:
            self._turn_ms = self._now_ms()
            self._turn()

    def _on_large_turn(self) -> None:
        self._holds &= ~_PARKED
        if not self.is_closed:
            self._turn_ms = self._now_ms()
            self._turn()

    def _on_unmute(self) -> None:
        self._unmute_timer = self._left_ms = None
        self._holds &= ~_MUTED
        self._active_ms = self._now_ms()  # the client was kept from being active
        self._schedule()

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        if now_ms - self._active_ms >= SPARE_IDLE_MS:
            self._receive_buffer.drop_spare()
        if self._holds & _MUTED and self._left_ms is None and self._has_client_left():
            self._left_ms = now_ms
        if not self._is_reading and self._is_reset():
            self.end()  # without a reader nothing else notices a reset
        elif not self._end_if_overdue(now_ms):
            self._set_timer(now_ms)

    def _on_login_overdue(self) -> None:
        self._login_timer = None
        self._dependencies.counters.closed_slow += 1
        self.note_failed_login(f"the login took longer than {self._limits.login_ms} ms")
        self.end()

    # A turn: start requests, send responses, decide whether to read.

    def _turn(self) -> None:
        served = self._start_requests()
        if self.is_closed:
            return
        if not self._is_writing and self._send_queue.entries and not self._send():
            return
        if served and self._is_reading and self._receive_buffer.is_clear and not self._is_draining:
            self._is_first = False  # nearly always: one complete request and nothing else
            self._frame_started_ms = None
        else:
            self._finish_turn(served)
        if self._tls is not None and self._is_reading and self._tls.has_decrypted():
            self._schedule_read()

    def _start_requests(self) -> int:
        served = 0
        self._is_in_turn = True
        receive_buffer, on_request = self._receive_buffer, self._on_request
        try:
            while served < self._limits.requests_a_turn and not self._is_blocked():
                frame = receive_buffer.take_frame()
                if frame is None:
                    break
                is_large = len(frame) > LARGE_BYTES
                if is_large and self._must_wait(len(frame)):
                    self._holds |= _PARKED
                    receive_buffer.put_back(frame)
                    break
                served += 1
                self._gate = request = InFlightRequest(self, frame, self._turn_ms)
                self._in_flight.append(request)
                if is_large:
                    self._serve_large(request)
                else:
                    on_request(request)
                frame.release()
                if not receive_buffer.size:  # nearly always: clients wait for a response
                    break
        except RequestOverLimit as error:
            self._dependencies.counters.closed_over_limit += 1
            self._close_because(
                "request_over_limit",
                str(error),
                is_logged=error.is_logged,
                api=error.api,
                client_id=error.client_id,
            )
        except MalformedMessage as error:
            self.close(str(error), is_logged=error.is_logged)
        except Exception:
            self.fail("a request")
        finally:
            self._is_in_turn = False
        self._dependencies.counters.requests += served
        return served

    def _must_wait(self, frame_bytes: int) -> bool:
        """Not with memory that all others wait for."""
        dependencies = self._dependencies
        if not dependencies.large_requests.is_used_up:
            return False
        if dependencies.memory.is_favoured(self._receive_buffer):
            return False
        return dependencies.large_requests.must_wait(
            self.caller.host,
            self._on_large_turn,
            kind_of(frame_bytes, self._last_large_s),
        )

    def _serve_large(self, request: InFlightRequest) -> None:
        """Reading processor time takes two system calls, which is too much for every batch: it is
        read until a request was light, and again once one has taken long by the clock."""
        receive_buffer = self._receive_buffer
        is_light = receive_buffer.is_proven
        started_s, started_cpu_s = perf_counter(), 0.0 if is_light else thread_time()
        try:
            self._on_request(request)
        finally:
            elapsed_s = perf_counter() - started_s
            if not is_light:
                self._last_large_s = cpu_s = thread_time() - started_cpu_s
                receive_buffer.is_proven = cpu_s < LIGHT_S
            elif elapsed_s >= LIGHT_S:
                self._last_large_s, receive_buffer.is_proven = None, False
            self._dependencies.large_requests.note(started_s, elapsed_s)

    def _is_blocked(self) -> bool:
        """Whether the next request has to wait."""
        limits, send_queue = self._limits, self._send_queue
        return (
            self._gate is not None
            or (self._holds != 0 and not self._is_waited_for())
            or self.is_closed
            or len(self._in_flight) >= limits.max_unanswered
            or len(send_queue.entries) >= limits.max_unsent_replies
            or send_queue.unsent_bytes >= limits.max_unsent_bytes
            or self._is_draining
        )

    def _is_waited_for(self) -> bool:
        """All who need memory wait for the rest of its request, so it is received and served, even
        if the connection is muted. One that is parked never is in this state."""
        buffer = self._receive_buffer
        return buffer.size > 0 and self._dependencies.memory.is_favoured(buffer)

    def _send(self) -> bool:
        """Send one turn's worth. False: the connection was closed."""
        try:
            sent = self._send_queue.send(self._sock, self._limits.send_turn_bytes)
        except FileTruncated as error:
            self._dependencies.counters.truncated_files += 1
            self._log_closed("file_truncated", str(error))
            self.end()
            return False
        except OSError as error:
            if not isinstance(error, ConnectionError | TimeoutError):
                self._log_closed("send_failed", f"sending failed: {error}")
            self.end()
            return False
        if sent:
            self._has_sent = True
            self._active_ms = self._turn_ms
            self._dependencies.counters.sent_bytes += sent
        has_more = bool(self._send_queue.entries)
        if self._unsent and not has_more:
            self._note_sent()
        if has_more is not self._is_writing:
            self._watch_writable(has_more)
        return True

    def _note_sent(self) -> None:
        """Called when the queue is empty: a response behind others counts until all are sent."""
        now_s = perf_counter()
        unsent = self._unsent
        while unsent:
            observer, answered_s = unsent.pop()
            observer.on_sent(now_s - answered_s)

    def _finish_turn(self, served: int) -> None:
        """Keep what was received beyond this turn's requests; decide whether to read more."""
        receive_buffer = self._receive_buffer
        is_blocked = self._is_blocked()
        has_backlog = receive_buffer.has_frame and not is_blocked
        if has_backlog:
            self._has_backlog = True
            self._schedule()
        elif self._is_at_end():
            self.end()
            return
        wants_more = (
            self._eof_ms is None
            and not has_backlog
            and not self._is_draining
            and not (self._holds & _MUTED and not self._is_waited_for())
            and not (is_blocked and receive_buffer.size >= self._limits.read_ahead_bytes)
        )
        can_read = receive_buffer.finish_turn(wants_more=wants_more, may_wait=not is_blocked)
        if not has_backlog:
            self._watch_readable(wants_more and can_read)
        self._note_frame(served)

    def _is_at_end(self) -> bool:
        return (
            (self._is_draining or (self._eof_ms is not None and not self._receive_buffer.has_frame))
            and not self._in_flight
            and not self._send_queue.entries
        )

    def _note_frame(self, served: int) -> None:
        """The time limit runs while a request is partly received and we are reading."""
        if served:
            self._is_first = False
            self._frame_started_ms = None
        receive_buffer = self._receive_buffer
        is_due = self._is_first or (receive_buffer.size and not receive_buffer.has_frame)
        is_timed = is_due and self._is_reading
        if not is_timed and not self._dependencies.memory.is_favoured(receive_buffer):
            self._frame_started_ms = None
        elif self._frame_started_ms is None:
            self._frame_started_ms = self._turn_ms

    def _on_end_of_stream(self) -> None:
        """The client half-closed: it sends no more, but may wait for responses."""
        self._eof_ms = self._turn_ms
        self._watch_readable(False)
        if self._timer is not None:
            self._dependencies.timers.cancel(self._timer)
        self._set_timer(self._turn_ms)
        self._turn()

    # Time limits.

    def _end_if_overdue(self, now_ms: int) -> bool:
        counters = self._dependencies.counters
        frame_ms, half_closed_ms, idle_ms = self._deadlines()
        if frame_ms is not None and now_ms >= frame_ms:
            counters.closed_slow += 1
            self._log_closed("request_too_slow", "no whole request arrived within its time limit")
        elif half_closed_ms is not None and now_ms >= half_closed_ms:
            pass  # the client is most likely gone
        elif idle_ms is not None and now_ms >= idle_ms:
            counters.closed_idle += 1
        else:
            return False
        self.end()
        return True

    def _deadlines(self) -> tuple[int | None, int | None, int | None]:
        """Deadlines of the partly received request, of the half-closed stream, and of idleness."""
        limits = self._limits
        frame_ms = half_closed_ms = idle_ms = None
        if self._frame_started_ms is not None:
            limit_ms = limits.first_frame_ms if self._is_first else limits.started_frame_ms
            frame_ms = self._frame_started_ms + limit_ms
        eof_ms = self._left_ms if self._eof_ms is None else self._eof_ms
        if eof_ms is not None:
            half_closed_ms = eof_ms + limits.half_closed_ms
        # A client with a request in flight is not idle, unless it does not read its responses.
        # Nor is a muted one.
        is_waiting = self._in_flight or self._holds & _MUTED
        if limits.max_idle_ms >= 0 and (self._send_queue.entries or not is_waiting):
            idle_ms = self._active_ms + limits.max_idle_ms
        return frame_ms, half_closed_ms, idle_ms

    def _set_timer(self, now_ms: int) -> None:
        """Set it to the next deadline, or before any that may start meanwhile can expire."""
        limits = self._limits
        due_ms = now_ms + limits.started_frame_ms
        if limits.max_idle_ms >= 0:
            due_ms = min(due_ms, now_ms + limits.max_idle_ms)
        for deadline_ms in self._deadlines():
            if deadline_ms is not None and deadline_ms < due_ms:
                due_ms = deadline_ms
        # A tick ahead at least, so that a limit of 0 does not keep the timers busy.
        self._timer = self._dependencies.timers.add(max(due_ms, now_ms + 1), self._on_timer)

    # Helpers.

    def _check_frame(self, api_key: int, frame_bytes: int) -> None:
        self._dependencies.check_frame(self.caller, api_key, frame_bytes)

    def _close_because(self, event: str, reason: str, *, is_logged: bool, **fields: object) -> None:
        if self.is_closed:
            return
        if is_logged:
            self._log_closed(event, reason, **fields)
        self._send()
        self.end()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._dependencies.loop.call_soon(self._on_schedule)

    def _schedule_read(self) -> None:
        if not self._is_read_scheduled:
            self._is_read_scheduled = True
            self._dependencies.loop.call_soon(self._on_decrypted)

    def _watch_readable(self, wanted: bool) -> None:
        if wanted is self._is_reading:
            return
        self._is_reading = wanted
        if wanted:
            self._dependencies.loop.add_reader(self._fd, self._on_readable)
        else:
            self._dependencies.loop.remove_reader(self._fd)

    def _watch_writable(self, wanted: bool) -> None:
        if wanted is self._is_writing:
            return
        self._is_writing = wanted
        if wanted:
            self._dependencies.loop.add_writer(self._fd, self._on_writable)
        else:
            self._dependencies.loop.remove_writer(self._fd)

    def _stop_watching(self) -> None:
        self._watch_readable(False)
        self._watch_writable(False)
        if self._timer is not None:
            self._dependencies.timers.cancel(self._timer)
            self._timer = None
        self._cancel_login_timer()
        if self._unmute_timer is not None:
            self._dependencies.timers.cancel(self._unmute_timer)
            self._unmute_timer = None

    def _cancel_login_timer(self) -> None:
        if self._login_timer is not None:
            self._dependencies.timers.cancel(self._login_timer)
            self._login_timer = None

    def _is_reset(self) -> bool:
        """Checked at every read that is not followed by a send, which fails after a reset: uvloop
        (libuv) signals a socket error only once, though bytes or the error itself may be left to
        receive."""
        return self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def _has_client_left(self) -> bool:
        """Whether it has closed its side, which no read finds while the connection is muted: a
        client that comes again and again would leave a descriptor behind each time."""
        if not _HAS_TCP_STATE:
            return False  # the end of the stream is read once the connection is not muted
        info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO)
        return info.to_bytes(4, sys.byteorder, signed=True)[0] == _CLOSE_WAIT

    def _discard_input(self) -> None:
        """Closing with unread bytes resets the connection and loses responses in transit."""
        try:
            for _ in range(DISCARDED_READS):
                if not self._sock.recv(DISCARDED_BYTES):
                    return
        except OSError:
            return

    def _abandon_in_flight(self) -> None:
        in_flight, self._in_flight = self._in_flight, deque()
        self._gate = None
        for request in in_flight:
            if request.is_answered:
                if request.lease is not None:
                    request.lease.release()
                continue
            self._call(request.take_close_callbacks(), "the end of a request")
        callbacks, self._disconnect_callbacks = self._disconnect_callbacks, ()
        self._call(callbacks, "the end of a connection")

    def _call(self, callbacks: Sequence[Callable[[], None]], what: str) -> None:
        for call in callbacks:
            try:
                call()
            except Exception:
                self.fail(what)

    def _log_closed(self, event: str, reason: str, **fields: object) -> None:
        """One line per event: input of a client cannot forge another line."""
        line = reason.encode("unicode_escape").decode()
        present = {name: value for name, value in fields.items() if value is not None}
        self._dependencies.logger.warning(
            event, self.caller.host, f"{self._prefix}{line}", **self._log_fields(), **present
        )

    @property
    def _prefix(self) -> str:
        return f"{self.caller.listener} {self.caller.host}: connection closed: "

    def _log_fields(self) -> dict[str, object]:
        return {"listener": self.caller.listener, "client": self.caller.host}


def _max_first_bytes(limits: NetworkLimits, login: SaslLogin | None) -> int:
    """Of a request on a new connection: a stranger may send little."""
    if login is None:
        return limits.max_request_bytes
    return min(limits.max_request_bytes, login.listener.max_receive_bytes)
