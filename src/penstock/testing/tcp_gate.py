"""A TCP proxy in front of a port on this machine that can be shut, as a network partition does.

While it is shut, open connections are dropped and new ones are refused.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from penstock.testing.tcp_listener import TcpListener

_CHUNK_BYTES = 64 * 1024
_WAIT_S = 10.0
_TARGET_HOST = "127.0.0.1"

Answer = TypeVar("Answer")


class TcpGate:
    """Open from the start until `close`. Runs an event loop in its own thread."""

    def __init__(self, target_port: int, *, host: str = _TARGET_HOST) -> None:
        self._host = host  # where it listens
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._trap: bytes | None = None  # bytes that must not pass
        self._trapped: asyncio.Future[None] = self._loop.create_future()
        self._listener: TcpListener | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._loop.run_forever, name="gate", daemon=True)
        self._thread.start()
        self.open()

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    def open(self) -> Self:
        self._run(self._listen())
        return self

    def shut(self) -> None:
        """Drop all connections; returns when nothing passes any more."""
        self._run(self._cut())

    def shut_before(self, words: bytes) -> None:
        """Shut once, when a client sends these bytes; they do not pass any more."""
        self._trap = words

    def wait_shut(self) -> None:
        """Wait until `shut_before` has taken effect."""
        self._run(asyncio.wait_for(asyncio.shield(self._trapped), _WAIT_S))

    def close(self) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = TcpListener(self._pass, self._host, self.port)
            self.port = self._listener.port

    async def _cut(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        listener.close()
        for writer in list(self._open):
            writer.transport.abort()
        await listener.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            there, back = await asyncio.open_connection(_TARGET_HOST, self._target_port)
        except OSError:
            return
        else:
            self._open.add(back)
            await asyncio.gather(_copy(reader, back, self._admits), _copy(there, writer))
            self._open.discard(back)
        finally:
            self._open.discard(writer)

    def _admits(self, data: bytes) -> bool:
        if self._trap is None or self._trap not in data:
            return True
        self._trap = None
        shutting = self._loop.create_task(self._cut())
        shutting.add_done_callback(lambda done: self._trapped.set_result(done.result()))
        return False


def _admits_all(data: bytes) -> bool:
    return True


async def _copy(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    admits: Callable[[bytes], bool] = _admits_all,
) -> None:
    """Copy until one side ends, then end the other."""
    try:
        while (data := await source.read(_CHUNK_BYTES)) and admits(data):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.transport.abort()
