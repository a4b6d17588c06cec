"""A TCP proxy in front of a broker that can delay requests of one API.

Delaying a request closes the connection of its sender, as a broken network does, so that the sender
retries; the test delivers the request later, on the connection to the broker on which it arrived.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from penstock.protocol.api_keys import ApiKey, find_api_key
from penstock.protocol.headers import read_response_header
from penstock.protocol.messages import decode_response
from penstock.testing.tcp_listener import TcpListener

HOST = "127.0.0.1"
WAIT_S = 180.0
_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")  # key, version, correlation id

Answer = TypeVar("Answer")


class _Delayed(NamedTuple):
    """A request and its connection to the broker."""

    request: bytes
    there: asyncio.StreamWriter
    back: asyncio.Queue[bytes]


class DelayingProxy:
    """A context manager with its own thread and event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._target_port: int | None = None
        self._holds: ApiKey | None = None
        self._late: asyncio.Queue[_Delayed] = asyncio.Queue()
        self._thread = threading.Thread(target=self._loop.run_forever, name="late", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening = self._run(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    @property
    def address(self) -> str:
        return f"{HOST}:{self._listening.port}"

    def forward_to(self, bootstrap_servers: str) -> None:
        self._target_port = int(bootstrap_servers.rpartition(":")[2])

    def hold(self, key: ApiKey) -> None:
        """Delays requests of this API from now until `let_pass`."""
        self._holds = key

    def let_pass(self) -> None:
        """Stops delaying; requests that are delayed already stay so until they are delivered."""
        self._holds = None

    def wait_held(self) -> DelayedRequest:
        """The next delayed request."""
        return DelayedRequest(self, self._run(self._late.get()))

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    async def _listen(self) -> TcpListener:
        return TcpListener(self._pass, HOST)

    async def _shut(self) -> None:
        self._listening.close()
        for task in self._listening.tasks:
            task.cancel()
        await self._listening.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(HOST, self._target_port)
        except OSError:
            return
        held: asyncio.Queue[bytes] = asyncio.Queue()
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_requests(reader, writer, to_broker, held))
                both.create_task(_pass_responses(from_broker, writer, held))
        finally:
            to_broker.transport.abort()

    async def _pass_requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_broker: asyncio.StreamWriter,
        held: asyncio.Queue[bytes],
    ) -> None:
        while (request := await _find_frame(reader)) is not None:
            if _HEAD.unpack_from(request)[0] == self._holds:
                writer.transport.abort()
                self._late.put_nowait(_Delayed(request, to_broker, held))
                return
            to_broker.write(_SIZE.pack(len(request)) + request)
        to_broker.transport.abort()


class DelayedRequest:
    """A request that the broker has not received yet."""

    def __init__(self, proxy: DelayingProxy, late: _Delayed) -> None:
        self._proxy = proxy
        self._late = late

    def deliver(self) -> Any:
        """Delivers it and returns the broker's response, which its sender no longer waits for."""
        number, version, correlation_id = _HEAD.unpack_from(self._late.request)
        key = find_api_key(number)
        assert key is not None
        response = self._proxy._run(self._exchange(correlation_id))
        _, body = read_response_header(response, key, version)
        return decode_response(key, version, body)

    async def _exchange(self, correlation_id: int) -> bytes:
        request, there, back = self._late
        there.write(_SIZE.pack(len(request)) + request)
        while True:
            response = await back.get()
            if _SIZE.unpack_from(response)[0] == correlation_id:
                there.transport.abort()
                return response


async def _pass_responses(
    from_broker: asyncio.StreamReader, writer: asyncio.StreamWriter, held: asyncio.Queue[bytes]
) -> None:
    """Forwards responses, or keeps them if the sender is gone: one belongs to a delayed request."""
    while (response := await _find_frame(from_broker)) is not None:
        if writer.is_closing():
            held.put_nowait(response)
        else:
            writer.write(_SIZE.pack(len(response)) + response)
    writer.transport.abort()


async def _find_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame; None at the end of the connection."""
    try:
        (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, OSError):
        return None
