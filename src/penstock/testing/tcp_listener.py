"""A TCP listener whose connections have a task each from the moment they are accepted.

asyncio's own server loses a connection that arrives while it is closed, and leaves its socket open.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class TcpListener:
    """Owned by the running loop that created it. A connection ends with its task."""

    def __init__(self, serve: Serve, host: str, port: int = 0) -> None:
        self._serve = serve
        self._loop = asyncio.get_running_loop()
        self._listener = socket.create_server((host, port))
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self.tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Accept no more connections; open ones stay."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._listener)
            self._listener.close()

    async def wait_closed(self) -> None:
        """Wait until all connections and their sockets are closed."""
        while self.tasks:
            await asyncio.wait(self.tasks)
        await asyncio.sleep(0)  # a transport closes its socket in the next iteration

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        task = self._loop.create_task(self._handle(connection))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(lambda _: connection.close())  # also if the task never ran

    async def _handle(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            if not self._is_closed:  # meanwhile
                await self._serve(reader, writer)
        finally:
            writer.transport.abort()
