"""The server: listeners, connections, and their end. Knows no API: a request is a frame.

One owner, the event loop; a connection that fails takes nobody with it.
"""

import asyncio
import socket
from collections.abc import Callable

from penstock.network.acceptor import Accepted, Acceptor, plain_host
from penstock.network.bounded_report import BoundedReport
from penstock.network.connection import ClientConnection, ConnectionDependencies
from penstock.network.in_flight_request import InFlightRequest
from penstock.network.limits import NetworkLimits
from penstock.network.receive_memory import ReceiveMemory
from penstock.network.send_queue import SendPath
from penstock.network.statistics import Counters, NetworkStatistics
from penstock.purgatory.loop_timers import LoopTimers
from penstock.security.principal import ANONYMOUS, Caller

__all__ = ["NetworkLimits", "NetworkStatistics", "SendPath", "Server"]


class Server:
    """Bind, start, close. Requests go to `on_request`, one call each, from the loop."""

    def __init__(
        self,
        *,
        on_request: Callable[[InFlightRequest], None],
        timers: LoopTimers,
        limits: NetworkLimits,
        send_path: SendPath = SendPath.SENDFILE,
        report: Callable[[str], None],
    ) -> None:
        self._on_request = on_request
        self._timers = timers
        self._limits = limits
        self._send_path = send_path
        self._report = report
        self._counters = Counters()
        self._memory = ReceiveMemory(
            total_bytes=limits.receive_budget_bytes, max_request_bytes=limits.max_request_bytes
        )
        self._connections: dict[ClientConnection, None] = {}
        self._door = Acceptor(
            timers=timers,
            limits=limits,
            counters=self._counters,
            admit=self._admit,
            report=report,
        )
        self._around: ConnectionDependencies | None = None  # None: not started
        self._all_gone: asyncio.Event | None = None  # None: not closing

    def bind(self, name: str, host: str, port: int) -> tuple[str, int]:
        """Listen; nobody is served before `start`. Returns the address, with the port chosen."""
        return self._door.bind(name, host, port)

    def start(self) -> None:
        """Accept and serve, from the running loop on."""
        loop = asyncio.get_running_loop()
        self._around = ConnectionDependencies(
            loop=loop,
            timers=self._timers,
            limits=self._limits,
            memory=self._memory,
            counters=self._counters,
            send_path=self._send_path,
            on_request=self._on_request,
            report=BoundedReport(self._report, self._timers.now_ms),
            forget=self._forget,
        )
        self._door.open(loop)

    def stop_requests(self) -> None:
        """Accept nobody and begin no request any more; replies still leave."""
        self._door.close()
        for connection in tuple(self._connections):
            connection.drain()

    async def close(self, drain_ms: int) -> None:
        """Let the requests that have begun be answered and their replies leave, then end all.

        Who is not through after the time is cut off. To be quick, answer what is parked first,
        between `stop_requests` and this.
        """
        self._all_gone = asyncio.Event()
        self.stop_requests()
        if self._connections:
            try:
                async with asyncio.timeout(drain_ms / 1000):
                    await self._all_gone.wait()
            except TimeoutError:
                self._report(f"{len(self._connections)} connections were cut off at the end")
        for connection in tuple(self._connections):
            connection.end()

    def statistics(self) -> NetworkStatistics:
        counters = self._counters
        return NetworkStatistics(
            connections=len(self._connections),
            receive_buffer_bytes=self._memory.held_bytes,
            waiting_for_memory=self._memory.waiting_count,
            **{name: getattr(counters, name) for name in Counters.__slots__},
        )

    def _admit(self, accepted: Accepted) -> None:
        assert self._around is not None, "the door opens with `start`"
        sock = accepted.sock
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        local = sock.getsockname()
        connection = ClientConnection(
            self._around,
            sock,
            number=self._counters.accepted,
            caller=Caller(ANONYMOUS, accepted.host, accepted.listener),
            local_host=plain_host(local[0]),
            local_port=local[1],
        )
        self._connections[connection] = None
        connection.start()

    def _forget(self, connection: ClientConnection) -> None:
        del self._connections[connection]
        self._door.left(connection.caller.host)
        if self._all_gone is not None and not self._connections:
            self._all_gone.set()
