"""A TLS handshake of an accepted connection, which becomes a `ClientConnection` when it succeeds.

Invariant: nothing of a request is read before the handshake has succeeded. It ends within a time
limit, and a client that fails costs one line of the log, which is limited.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.logs.rate_limit import RateLimitedLogger
from penstock.network.acceptor import Accepted
from penstock.network.statistics import Counters
from penstock.network.tls_socket import TlsSocket
from penstock.purgatory.loop_timers import LoopTimers
from penstock.purgatory.timing_wheel import Timer
from penstock.security.audit.trail import AuditTrail
from penstock.security.principal import ANONYMOUS, Caller, Principal
from penstock.security.tls_statistics import TlsStatistics

DISCARDED_BYTES = 64 * 1024
_HANDSHAKE_RECORD = 0x16  # the first byte of a client that speaks TLS
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate, and "
    "ssl.client.auth=required",
    "UNSUPPORTED_PROTOCOL": "the client offers no version of TLS that is in ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "the client offers no cipher suite that is served",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust this broker's certificate: its "
    "truststore lacks the authority",
    "UNEXPECTED_EOF_WHILE_READING": "the client gave up; perhaps it does not trust this broker's "
    "certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses this broker's certificate: its "
    "truststore lacks the authority, or the certificate lacks the host name that it connects to",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client refuses this broker's certificate: it expired",
}


class ListenerTls(Protocol):
    """The TLS of a listener, as of now: certificates may be replaced."""

    @property
    def context(self) -> ssl.SSLContext: ...

    def find_principal(self, certificate: bytes | None) -> Principal | None:
        """None: the name in a verified certificate maps to nobody."""

    def statistics(self) -> TlsStatistics: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeDependencies:
    loop: asyncio.AbstractEventLoop
    timers: LoopTimers
    limit_ms: int
    counters: Counters
    logger: RateLimitedLogger
    # Exactly one of them is called, once.
    on_success: Callable[["TlsHandshake", TlsSocket, Principal], None]
    on_failure: Callable[["TlsHandshake"], None]
    audit: AuditTrail


class TlsHandshake:
    """Owned by the event loop. `start` once; it ends by itself."""

    __slots__ = (
        "_dependencies",
        "_fd",
        "_is_reading",
        "_is_writing",
        "_sock",
        "_timer",
        "_tls",
        "accepted",
        "is_ended",
    )

    def __init__(
        self, dependencies: HandshakeDependencies, accepted: Accepted, tls: ListenerTls
    ) -> None:
        self.accepted = accepted
        self.is_ended = False
        self._dependencies = dependencies
        self._tls = tls
        self._fd = accepted.sock.fileno()
        self._sock: ssl.SSLSocket | None = None  # None: the client has sent nothing yet
        self._is_reading = False
        self._is_writing = False
        self._timer: Timer[Callable[[], None]] | None = None

    def start(self) -> None:
        timers = self._dependencies.timers
        self._timer = timers.add_after(self._dependencies.limit_ms, self._on_overdue)
        self._watch(reading=True, writing=False)

    def end(self) -> None:
        """Close at once. Idempotent."""
        if self.is_ended:
            return
        self._stop()
        sock = self._sock or self.accepted.sock
        _discard_input(sock)
        sock.close()
        self._dependencies.on_failure(self)

    def _on_first_bytes(self) -> None:
        """A client without TLS is told apart before OpenSSL sees it, for the log."""
        first = self.accepted.sock.recv(1, socket.MSG_PEEK)
        if not first:
            self.end()
        elif first[0] != _HANDSHAKE_RECORD:
            self._fail("the client sends plaintext to a TLS listener; it needs security.protocol")
        else:
            self._sock = self._tls.context.wrap_socket(
                self.accepted.sock, server_side=True, do_handshake_on_connect=False
            )

    def _on_ready(self) -> None:
        try:
            if self._sock is None:
                self._on_first_bytes()
            if self._sock is not None:
                self._sock.do_handshake()
                self._on_done(self._sock)
        except (ssl.SSLWantReadError, BlockingIOError):
            self._watch(reading=True, writing=False)
        except ssl.SSLWantWriteError:
            self._watch(reading=False, writing=True)
        except ssl.SSLError as error:
            self._fail(_describe(error))
        except OSError:
            self.end()  # reset by the client

    def _on_done(self, sock: ssl.SSLSocket) -> None:
        principal = self._tls.find_principal(sock.getpeercert(binary_form=True))
        if principal is None:
            self._fail("no rule of ssl.principal.mapping.rules applies to the client's certificate")
            return
        self._stop()
        self._dependencies.on_success(self, TlsSocket(sock), principal)

    def _on_overdue(self) -> None:
        self._timer = None
        self._dependencies.counters.closed_slow += 1
        self._fail(f"it took longer than {self._dependencies.limit_ms} ms")

    def _fail(self, reason: str) -> None:
        dependencies, accepted = self._dependencies, self.accepted
        dependencies.counters.authentication_failures += 1
        line = reason.encode("unicode_escape").decode()
        dependencies.logger.warning(
            "tls_handshake_failed",
            accepted.host,
            f"{accepted.listener} {accepted.host}: TLS handshake failed: {line}",
            listener=accepted.listener,
            client=accepted.host,
        )
        caller = Caller(ANONYMOUS, accepted.host, accepted.listener)
        dependencies.audit.note_authentication(caller, "TLS", line)
        self.end()

    def _stop(self) -> None:
        self.is_ended = True
        self._watch(reading=False, writing=False)
        if self._timer is not None:
            self._dependencies.timers.cancel(self._timer)
            self._timer = None

    def _watch(self, *, reading: bool, writing: bool) -> None:
        loop = self._dependencies.loop
        if reading is not self._is_reading:
            self._is_reading = reading
            if reading:
                loop.add_reader(self._fd, self._on_ready)
            else:
                loop.remove_reader(self._fd)
        if writing is not self._is_writing:
            self._is_writing = writing
            if writing:
                loop.add_writer(self._fd, self._on_ready)
            else:
                loop.remove_writer(self._fd)


def _discard_input(sock: socket.socket) -> None:
    """Closing with unread bytes resets the connection, and the client misses the TLS alert."""
    try:
        socket.socket.recv(sock, DISCARDED_BYTES)
    except OSError:
        return


def _describe(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    reason = error.reason or str(error)
    return _REASONS.get(reason, f"OpenSSL says {reason.replace('_', ' ').lower()}")
