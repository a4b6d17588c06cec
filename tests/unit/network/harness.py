"""A server on loopback with clients on the same event loop, and a clock that tests can advance."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from penstock.logs.event_logger import message_logger
from penstock.network.handshake import ListenerTls
from penstock.network.in_flight_request import InFlightRequest
from penstock.network.server import NetworkLimits, SendPath, Server
from penstock.purgatory.loop_timers import LoopTimers, monotonic_ms
from penstock.security.principal import Caller
from penstock.security.quotas.client_quotas import NO_QUOTAS, ClientQuotas
from penstock.security.sasl.login import SaslListener

LOOPS = ["asyncio", "uvloop"]
TIMEOUT_S = 180  # a scenario that takes longer hangs


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def echo(request: InFlightRequest) -> None:
    request.reply([framed(bytes(request.frame))])


class Clock:
    """The machine's time, plus what a test has added."""

    def __init__(self) -> None:
        self.added_ms = 0

    def now_ms(self) -> int:
        return monotonic_ms() + self.added_ms


class Lease:
    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Client:
    """A client's socket, read and written by the scenario."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def send_frame(self, body: bytes) -> None:
        await self.send(framed(body))

    async def read(self, count: int) -> bytes:
        """Read that many bytes, or fewer if the server closes before."""
        received = bytearray()
        while len(received) < count:
            piece = await self._loop.sock_recv(self.sock, count - len(received))
            if not piece:
                break
            received += piece
        return bytes(received)

    async def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.read(4))
        return await self.read(size)

    async def ask(self, body: bytes) -> bytes:
        await self.send_frame(body)
        return await self.read_frame()

    async def is_cut_off(self) -> bool:
        """Wait for the end of the stream; False if bytes come instead."""
        try:
            return await self._loop.sock_recv(self.sock, 1) == b""
        except ConnectionError:
            return True

    def reset(self) -> None:
        """Close so that the server gets RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


async def until(condition: Callable[[], bool]) -> None:
    """Run the loop until the condition holds; the scenario's timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - conditions of every kind
        await asyncio.sleep(0.001)


class NetworkHarness:
    """A running server, its clients and its clock."""

    def __init__(self, server: Server, timers: LoopTimers, clock: Clock) -> None:
        self.server = server
        self.timers = timers
        self.reports: list[str] = []
        self.address = ("", 0)
        self._clock = clock
        self._clients: list[Client] = []

    async def connect(self, *, receive_bytes: int | None = None) -> Client:
        sock = socket.socket()
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setblocking(False)
        client = Client(sock)
        self._clients.append(client)
        await asyncio.get_running_loop().sock_connect(sock, self.address)
        return client

    def pass_time(self, duration_ms: int) -> None:
        """Advance the clock; timers that are due then expire in the loop's next iterations."""
        self._clock.added_ms += duration_ms
        self.timers.add(0, lambda: None)  # overdue, so that the wheel reads the clock now

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition)

    def close_clients(self) -> None:
        for client in self._clients:
            client.sock.close()


Scenario = Callable[[NetworkHarness], Awaitable[None]]


def serve(
    scenario: Scenario,
    *,
    loop: str = "asyncio",
    on_request: Callable[[InFlightRequest], None] = echo,
    check_frame: Callable[[Caller, int, int], None] = lambda caller, api_key, frame_bytes: None,
    limits: NetworkLimits | None = None,
    send_path: SendPath = SendPath.SENDFILE,
    tls: ListenerTls | None = None,
    sasl: SaslListener | None = None,
    on_sasl_request: Callable[[InFlightRequest], None] | None = None,
    quotas: ClientQuotas = NO_QUOTAS,
) -> NetworkHarness:
    """Run the scenario against a server; a callback that raises fails it, too."""
    errors: list[dict[str, Any]] = []

    async def main() -> NetworkHarness:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        clock = Clock()
        timers = LoopTimers(now_ms=clock.now_ms)
        server = Server(
            on_request=on_request,
            on_sasl_request=on_sasl_request,
            check_frame=check_frame,
            timers=timers,
            limits=limits or NetworkLimits(),
            send_path=send_path,
            logger=message_logger(lambda line: serving.reports.append(line)),
            quotas=quotas,
        )
        serving = NetworkHarness(server, timers, clock)
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
            group.create_task(timers.run(), name="timers")
            name = "PLAINTEXT" if tls is None else "SSL"
            serving.address = server.bind(name, "127.0.0.1", 0, tls, sasl)
            server.start()
            try:
                await scenario(serving)
            finally:
                serving.close_clients()
                await server.close(1000)
                timers.stop()
        return serving

    run = uvloop.run if loop == "uvloop" else asyncio.run
    serving = run(main())
    assert not errors, errors
    return serving
