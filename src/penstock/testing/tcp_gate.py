"""A way between two processes on this machine that can be shut: one TCP port in front of another.

Shut, it drops what is open and refuses what comes, as a network does that was cut.
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
    """Open from the start, until `close`. Has a thread and an event loop of its own."""

    def __init__(self, target_port: int, *, host: str = _TARGET_HOST) -> None:
        self._host = host  # where it listens
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._trap: bytes | None = None  # what must not pass
        self._trapped: asyncio.Future[None] = self._loop.create_future()
        self._listening: TcpListener | None = None
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
        """Returns when nothing passes any more."""
        self._run(self._cut())

    def shut_before(self, words: bytes) -> None:
        """By itself, when a client sends these: they do not pass any more. Once."""
        self._trap = words

    def wait_shut(self) -> None:
        """Until it has shut by itself."""
        self._run(asyncio.wait_for(asyncio.shield(self._trapped), _WAIT_S))

    def close(self) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    async def _listen(self) -> None:
        if self._listening is None:
            self._listening = TcpListener(self._pass, self._host, self.port)
            self.port = self._listening.port

    async def _cut(self) -> None:
        listening, self._listening = self._listening, None
        if listening is None:
            return
        listening.close()
        for writer in list(self._open):
            writer.transport.abort()
        await listening.wait_left()

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
    """Until one side ends; then the other is ended too."""
    try:
        while (data := await source.read(_CHUNK_BYTES)) and admits(data):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.transport.abort()
