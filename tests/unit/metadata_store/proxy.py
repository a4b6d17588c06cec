"""A proxy that a test can cut, block and restore, and servers that a test scripts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Self

from penstock.testing.tcp_listener import TcpListener

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handle: Handle) -> AsyncIterator[str]:
    """Yield the server's address.

    Connections end when they are handled, or at the end of the block.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            try:
                await handle(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Proxy:
    """Forwards bytes both ways.

    An asynchronous context manager; `address` is where it listens.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))  # of new connections
        self._is_cut = False
        self._flows = asyncio.Event()
        self._answers_flow = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows.set()
        self._answers_flow.set()
        self._accepted = asyncio.Event()
        self.address = ""

    def cut(self) -> None:
        """Close all connections, and accept no more."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def block(self) -> None:
        """Stop forwarding, with connections left open."""
        self._flows.clear()

    def block_responses(self) -> None:
        """Stop forwarding responses; requests still pass."""
        self._answers_flow.clear()

    def mend(self) -> None:
        self._is_cut = False
        self._flows.set()
        self._answers_flow.set()

    async def break_once(self) -> None:
        """Close all connections, and return when a client has reconnected."""
        self.cut()
        self.mend()
        self._accepted.clear()
        await self._accepted.wait()

    async def __aenter__(self) -> Self:
        self._listening = TcpListener(self._serve, "127.0.0.1")
        self.address = f"127.0.0.1:{self._listening.port}"
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._listening.close()
        self.cut()
        for task in self._listening.tasks:
            task.cancel()
        await self._listening.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            return
        self._accepted.set()
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except OSError:
            return
        self._writers |= {writer, far_writer}
        try:
            if not self._is_cut:  # cut while connecting
                await asyncio.gather(
                    self._pass(reader, far_writer, self._flows),
                    self._pass(far_reader, writer, self._answers_flow),
                )
        finally:
            far_writer.transport.abort()
            self._writers -= {writer, far_writer}

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, flows: asyncio.Event
    ) -> None:
        with suppress(ConnectionError):
            while chunk := await source.read(65536):
                await self._flows.wait()
                await flows.wait()
                sink.write(chunk)
        sink.close()
        self._writers.discard(sink)
