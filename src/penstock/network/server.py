"""The socket server: listeners, connections and shutdown. It knows no API: a request is a frame.

Owned by the event loop. A failing connection affects no other.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable

from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.network.acceptor import Accepted, Acceptor, plain_host
from penstock.network.connection import ClientConnection, ConnectionDependencies
from penstock.network.handshake import HandshakeDependencies, ListenerTls, TlsHandshake
from penstock.network.in_flight_request import InFlightRequest
from penstock.network.large_requests import LargeRequests
from penstock.network.limits import NetworkLimits
from penstock.network.receive_memory import ReceiveMemory
from penstock.network.send_queue import SendPath
from penstock.network.statistics import (
    COUNTED,
    Counters,
    ListenerStatistics,
    NetworkStatistics,
)
from penstock.network.tls_socket import TlsSocket
from penstock.purgatory.loop_timers import LoopTimers
from penstock.security.audit.trail import NO_AUDIT, AuditTrail
from penstock.security.principal import ANONYMOUS, Caller, Principal
from penstock.security.quotas.client_quotas import NO_QUOTAS, ClientQuotas
from penstock.security.sasl.login import SaslListener, SaslLogin

__all__ = ["NetworkLimits", "NetworkStatistics", "SendPath", "Server"]


def _accept_frame(caller: Caller, api_key: int, frame_bytes: int) -> None:
    """Without limits of APIs."""


class Server:
    """Bind, start, close. Calls `on_request` once per request, from the loop."""

    def __init__(
        self,
        *,
        on_request: Callable[[InFlightRequest], None],
        on_sasl_request: Callable[[InFlightRequest], None] | None = None,
        check_frame: Callable[[Caller, int, int], None] = _accept_frame,
        timers: LoopTimers,
        limits: NetworkLimits,
        send_path: SendPath = SendPath.SENDFILE,
        logger: EventLogger,
        quotas: ClientQuotas = NO_QUOTAS,
        audit: AuditTrail = NO_AUDIT,
    ) -> None:
        self._audit = audit
        self._on_request = on_request
        self._on_sasl_request = on_sasl_request or on_request
        self._check_frame = check_frame
        self._timers = timers
        self._limits = limits
        self._send_path = send_path
        self._logger = logger
        self._counters = Counters()
        self._memory = ReceiveMemory(
            total_bytes=limits.receive_budget_bytes, max_request_bytes=limits.max_request_bytes
        )
        self._connections: dict[ClientConnection, None] = {}
        self._handshakes: dict[TlsHandshake, tuple[str, int]] = {}  # and the local addresses
        self._count = 0  # of all connections that there were
        self._accepted: dict[str, int] = {}  # by listener
        self._tls: dict[str, ListenerTls] = {}  # likewise; listeners without it are plaintext
        self._sasl: dict[str, SaslListener] = {}  # likewise; others ask for no login
        self._acceptor = Acceptor(
            timers=timers,
            limits=limits,
            counters=self._counters,
            admit=self._admit,
            logger=logger,
            quotas=quotas,
        )
        self._dependencies: ConnectionDependencies | None = None  # None: not started
        self._handshake_dependencies: HandshakeDependencies | None = None  # likewise
        self._all_closed: asyncio.Event | None = None  # None: not closing

    def bind(
        self,
        name: str,
        host: str,
        port: int,
        tls: ListenerTls | None = None,
        sasl: SaslListener | None = None,
    ) -> tuple[str, int]:
        """Listen, without serving before `start`. Returns the address with the chosen port."""
        self._accepted[name] = 0
        if tls is not None:
            self._tls[name] = tls
        if sasl is not None:
            assert self._on_sasl_request is not self._on_request, "logins would not be asked for"
            self._sasl[name] = sasl
        return self._acceptor.bind(name, host, port)

    def start(self) -> None:
        """Accept and serve in the running loop."""
        loop = asyncio.get_running_loop()
        logger = RateLimitedLogger(
            self._logger, now_ms=self._timers.now_ms, add_timer=self._timers.add_after
        )
        self._dependencies = ConnectionDependencies(
            loop=loop,
            timers=self._timers,
            limits=self._limits,
            memory=self._memory,
            large_requests=LargeRequests(loop.call_soon),
            counters=self._counters,
            send_path=self._send_path,
            on_request=self._on_request,
            on_sasl_request=self._on_sasl_request,
            check_frame=self._check_frame,
            logger=logger,
            audit=self._audit,
            forget=self._forget,
        )
        self._handshake_dependencies = HandshakeDependencies(
            loop=loop,
            timers=self._timers,
            limit_ms=self._limits.first_frame_ms,
            counters=self._counters,
            logger=logger,
            on_success=self._on_handshake,
            on_failure=self._on_failed_handshake,
            audit=self._audit,
        )
        self._acceptor.open(loop)

    def stop_requests(self) -> None:
        """Accept no more connections and start no more requests; responses are still sent."""
        self._acceptor.close()
        for handshake in tuple(self._handshakes):
            handshake.end()
        for connection in tuple(self._connections):
            connection.drain()

    async def close(self, drain_ms: int) -> None:
        """Wait until started requests are answered and their responses sent, then close all.

        Connections that take longer than `drain_ms` are closed anyway. To be fast, complete delayed
        operations between `stop_requests` and this call.
        """
        self._all_closed = asyncio.Event()
        self.stop_requests()
        if self._connections:
            try:
                async with asyncio.timeout(drain_ms / 1000):
                    await self._all_closed.wait()
            except TimeoutError:
                self._logger.warning(
                    "responses_unsent",
                    f"{len(self._connections)} connections closed with responses unsent at "
                    "shutdown",
                )
        for connection in tuple(self._connections):
            connection.end()

    def statistics(self) -> NetworkStatistics:
        counters = self._counters
        return NetworkStatistics(
            connections=len(self._connections) + len(self._handshakes),
            receive_buffer_bytes=self._memory.held_bytes,
            waiting_for_memory=self._memory.waiting_count,
            listeners=self._listener_statistics(),
            certificates={name: tls.statistics() for name, tls in self._tls.items()},
            **{name: getattr(counters, name) for name in COUNTED},
        )

    def _listener_statistics(self) -> dict[str, ListenerStatistics]:
        open_now = Counter(connection.caller.listener for connection in self._connections)
        return {
            name: ListenerStatistics(connections=open_now[name], accepted=accepted)
            for name, accepted in self._accepted.items()
        }

    def _admit(self, accepted: Accepted) -> None:
        sock = accepted.sock
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        host, port, *_ = sock.getsockname()
        local = plain_host(host), int(port)
        tls = self._tls.get(accepted.listener)
        if tls is None:
            self._connect(accepted, sock, local, ANONYMOUS)
            return
        assert self._handshake_dependencies is not None, "the acceptor opens with `start`"
        handshake = TlsHandshake(self._handshake_dependencies, accepted, tls)
        self._handshakes[handshake] = local
        handshake.start()

    def _on_handshake(self, handshake: TlsHandshake, sock: TlsSocket, principal: Principal) -> None:
        local = self._handshakes.pop(handshake)
        if principal != ANONYMOUS:
            accepted = handshake.accepted
            caller = Caller(principal, accepted.host, accepted.listener)
            self._audit.note_authentication(caller, "TLS")
        self._connect(handshake.accepted, sock, local, principal)

    def _on_failed_handshake(self, handshake: TlsHandshake) -> None:
        del self._handshakes[handshake]
        self._acceptor.on_closed(handshake.accepted.host)
        self._note_closed()

    def _connect(
        self,
        accepted: Accepted,
        sock: socket.socket | TlsSocket,
        local: tuple[str, int],
        principal: Principal,
    ) -> None:
        assert self._dependencies is not None, "the acceptor opens with `start`"
        self._count += 1
        sasl = self._sasl.get(accepted.listener)
        if sasl is not None:
            principal = ANONYMOUS  # until the login, whatever the certificate says
        connection = ClientConnection(
            self._dependencies,
            sock,
            number=self._count,
            caller=Caller(principal, accepted.host, accepted.listener),
            local_host=local[0],
            local_port=local[1],
            login=None if sasl is None else SaslLogin(sasl),
        )
        self._connections[connection] = None
        self._accepted[accepted.listener] += 1
        connection.start()

    def _forget(self, connection: ClientConnection) -> None:
        del self._connections[connection]
        self._acceptor.on_closed(connection.caller.host)
        self._note_closed()

    def _note_closed(self) -> None:
        if self._all_closed is not None and not (self._connections or self._handshakes):
            self._all_closed.set()
