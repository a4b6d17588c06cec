"""The metrics listener's HTTP: only short, timely GETs are answered."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from http import HTTPStatus

import pytest

from penstock.logs.event_logger import message_logger
from penstock.metrics.http_server import (
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    HttpRequest,
    HttpResponse,
    HttpServer,
    Respond,
)

Ask = Callable[[bytes], Coroutine[None, None, bytes]]


async def chunks() -> AsyncIterator[bytes]:
    for number in range(3):
        yield f"{number}\n".encode()


async def respond(request: HttpRequest) -> HttpResponse:
    if request.path == "/fails":
        raise RuntimeError("a bug")
    if request.path == "/chunks":
        return HttpResponse(body=chunks())
    return HttpResponse(body=f"{request.path} {request.query}".encode())


def run(
    scenario: Callable[[HttpServer, Ask], Awaitable[None]], responder: Respond = respond
) -> list[str]:
    reports: list[str] = []

    async def main() -> None:
        server = HttpServer(responder, logger=message_logger(reports.append))
        host, port = await server.open("127.0.0.1", 0)
        assert host == "127.0.0.1"

        async def ask(sent: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(sent)
            writer.write_eof()
            received = await reader.read()
            writer.close()
            return received

        try:
            await scenario(server, ask)
        finally:
            await server.close()

    asyncio.run(main())
    return reports


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_a_get_is_answered_with_path_and_query() -> None:
    async def scenario(server: HttpServer, ask: Ask) -> None:
        received = await ask(get("/metrics?dialect=B&x=1"))
        assert received.startswith(b"HTTP/1.1 200 OK\r\n")
        assert received.endswith(b"\r\n\r\n/metrics {'dialect': 'B', 'x': '1'}")

    assert run(scenario) == []


def test_a_body_of_unknown_length_comes_in_chunks() -> None:
    async def scenario(server: HttpServer, ask: Ask) -> None:
        head, _, body = (await ask(get("/chunks"))).partition(b"\r\n\r\n")
        assert b"Content-Length" not in head
        assert b"Transfer-Encoding: chunked" in head
        assert body == b"2\r\n0\n\r\n2\r\n1\n\r\n2\r\n2\n\r\n0\r\n\r\n"

    run(scenario)


def test_a_body_of_unknown_length_ends_with_the_connection_in_http_1_0() -> None:
    async def scenario(server: HttpServer, ask: Ask) -> None:
        head, _, body = (await ask(b"GET /chunks HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
        assert b"Transfer-Encoding" not in head
        assert body == b"0\n1\n2\n"

    run(scenario)


def test_a_body_that_fails_is_reported_and_does_not_look_complete() -> None:
    async def fail_later() -> AsyncIterator[bytes]:
        yield b"0\n"
        raise RuntimeError("a bug")

    async def respond_partly(request: HttpRequest) -> HttpResponse:
        return HttpResponse(body=fail_later())

    async def scenario(server: HttpServer, ask: Ask) -> None:
        try:
            received = await ask(get("/"))
        except ConnectionResetError:
            return
        assert not received.endswith(b"0\r\n\r\n")

    (report,) = run(scenario, respond_partly)
    assert "a bug" in report


def test_a_response_without_content_has_no_length() -> None:
    async def respond_nothing(request: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.NO_CONTENT)

    async def scenario(server: HttpServer, ask: Ask) -> None:
        received = await ask(get("/"))
        assert received.startswith(b"HTTP/1.1 204 ")
        assert b"Content-Length" not in received

    assert run(scenario, respond_nothing) == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"GET /metrics\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"\x16\x03\x01\x02\x00\x01", HTTPStatus.BAD_REQUEST),  # TLS
        (b"GET / HTTP/1.1\r\nnever ends", HTTPStatus.BAD_REQUEST),
        (b"GET /?" + b"a=1&" * 99 + b" HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (
            b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES + b"\r\n\r\n",
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        ),
    ],
)
def test_anything_else_gets_an_error_and_a_closed_connection(
    sent: bytes, status: HTTPStatus
) -> None:
    async def scenario(server: HttpServer, ask: Ask) -> None:
        try:
            received = await ask(sent)
        except ConnectionResetError:  # closed with bytes unread
            return
        assert received.startswith(f"HTTP/1.1 {status.value} ".encode()) or not received

    assert run(scenario) == []


def test_a_refused_method_is_told_which_are_allowed() -> None:
    async def scenario(server: HttpServer, ask: Ask) -> None:
        assert b"\r\nAllow: GET, HEAD\r\n" in await ask(b"POST / HTTP/1.1\r\n\r\n")

    assert run(scenario) == []


@pytest.mark.parametrize("path", ["/live", "/chunks"])
def test_head_is_answered_as_get_is_but_without_the_body(path: str) -> None:
    async def scenario(server: HttpServer, ask: Ask) -> None:
        answered = await ask(get(path))
        head, _, body = answered.partition(b"\r\n\r\n")
        assert body
        assert await ask(f"HEAD {path} HTTP/1.1\r\n\r\n".encode()) == head + b"\r\n\r\n"

    assert run(scenario) == []


def test_a_bug_is_reported_and_answered() -> None:
    async def scenario(server: HttpServer, ask: Ask) -> None:
        assert (await ask(get("/fails"))).startswith(b"HTTP/1.1 500 ")

    (report,) = run(scenario)
    assert "a bug" in report


def test_beyond_the_limit_of_connections_a_client_is_sent_away() -> None:
    served, is_full, is_released = [0], asyncio.Event(), asyncio.Event()

    async def wait(request: HttpRequest) -> HttpResponse:
        served[0] += 1
        if served[0] == MAX_CONNECTIONS:
            is_full.set()
        await is_released.wait()
        return HttpResponse()

    async def scenario(server: HttpServer, ask: Ask) -> None:
        busy = [asyncio.create_task(ask(get("/"))) for _ in range(MAX_CONNECTIONS)]
        await is_full.wait()
        assert (await ask(get("/live"))).startswith(b"HTTP/1.1 503 ")
        is_released.set()
        responses = await asyncio.gather(*busy)
        assert all(response.startswith(b"HTTP/1.1 200 ") for response in responses)
        assert (await ask(get("/live"))).startswith(b"HTTP/1.1 200 ")

    run(scenario, wait)
