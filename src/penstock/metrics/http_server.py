"""A minimal HTTP/1.1 server for GET and HEAD: one request a connection, everything bounded.

It knows no path: `respond` does. Anything that is not a short, timely GET or HEAD ends with an
error and a closed connection. Invariant: it listens on the one address that it was given.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs

from penstock.logs.event_logger import EventLogger

MAX_HEAD_BYTES = 8 * 1024
MAX_CONNECTIONS = 32
HEAD_TIMEOUT_S = 5.0
SEND_TIMEOUT_S = 10.0  # for one chunk that the client does not read
METHODS = ("GET", "HEAD")
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


class HttpRequest(NamedTuple):
    path: str
    query: dict[str, str]  # the first value of each name
    takes_chunks: bool = True  # not of HTTP/1.0
    wants_body: bool = True  # not of HEAD


class HttpResponse(NamedTuple):
    status: HTTPStatus = HTTPStatus.OK
    body: bytes | AsyncIterator[bytes] = b""
    content_type: str = TEXT


Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]


class _Refused(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class HttpServer:
    """`open`, then `close`. Owned by the event loop."""

    def __init__(self, respond: Respond, *, logger: EventLogger) -> None:
        self._respond = respond
        self._logger = logger
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Returns the address with the chosen port. OSError if it cannot be bound."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = await asyncio.start_server(
            self._on_connection, host, port, family=family, limit=MAX_HEAD_BYTES
        )
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    def abandon(self) -> None:
        """Stop listening and drop all connections, without waiting for their tasks."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.cancel()

    async def close(self) -> None:
        self.abandon()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the client is gone or too slow, or the broker stops
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        takes_chunks = wants_body = True
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE)
            request = await _read_request(reader)
            takes_chunks, wants_body = request.takes_chunks, request.wants_body
            response = await self._respond(request)
        except _Refused as refused:
            body = f"{refused.status.phrase}\n".encode()
            response = HttpResponse(refused.status, body)
        except Exception as error:
            self._log_failed(error)
            response = HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR)
        try:
            await _send(writer, response, takes_chunks=takes_chunks, wants_body=wants_body)
        except (OSError, TimeoutError):
            raise
        except Exception as error:
            self._log_failed(error)
            writer.transport.abort()  # so that what was sent does not look complete

    def _log_failed(self, error: Exception) -> None:
        self._logger.error(
            "metrics_request_failed", f"a request to the metrics listener failed: {error!r}"
        )


async def _read_request(reader: asyncio.StreamReader) -> HttpRequest:
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
    except asyncio.IncompleteReadError:
        raise _Refused(HTTPStatus.BAD_REQUEST) from None
    except TimeoutError:
        raise _Refused(HTTPStatus.REQUEST_TIMEOUT) from None
    return parse_head(head)


def parse_head(head: bytes) -> HttpRequest:
    parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    if parts[0] not in METHODS:
        raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED)
    path, _, query = parts[1].partition("?")
    try:
        values = parse_qs(query, max_num_fields=16)
    except ValueError:
        raise _Refused(HTTPStatus.BAD_REQUEST) from None
    first_values = {name: texts[0] for name, texts in values.items()}
    return HttpRequest(
        path,
        first_values,
        takes_chunks=parts[2] != "HTTP/1.0",
        wants_body=parts[0] != "HEAD",
    )


async def _send(
    writer: asyncio.StreamWriter,
    response: HttpResponse,
    *,
    takes_chunks: bool,
    wants_body: bool,
) -> None:
    """A body of unknown length comes in chunks, and ends with the connection in HTTP/1.0."""
    status, body, content_type = response
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
    if not isinstance(body, bytes):
        head += "Transfer-Encoding: chunked\r\n" if takes_chunks else ""
    elif status is not HTTPStatus.NO_CONTENT:
        head += f"Content-Length: {len(body)}\r\n"
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        head += f"Allow: {', '.join(METHODS)}\r\n"
    head += "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    writer.write(head.encode("latin-1"))
    if wants_body:
        await _write_body(writer, body, takes_chunks=takes_chunks)
    await _drain(writer)
    with suppress(OSError, RuntimeError):
        writer.write_eof()


async def _write_body(
    writer: asyncio.StreamWriter, body: bytes | AsyncIterator[bytes], *, takes_chunks: bool
) -> None:
    if isinstance(body, bytes):
        writer.write(body)
        return
    async for chunk in body:
        if chunk:  # an empty one would be the last
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if takes_chunks else chunk)
            await _drain(writer)
    if takes_chunks:
        writer.write(b"0\r\n\r\n")


async def _drain(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await writer.drain()
