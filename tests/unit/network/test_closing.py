"""Server shutdown: responses are sent, no new client is served, nothing stays open."""

import asyncio

import pytest
from tests.unit.network.harness import LOOPS, Lease, NetworkHarness, framed, serve, until

from penstock.logs.event_logger import message_logger
from penstock.network.in_flight_request import InFlightRequest
from penstock.network.server import NetworkLimits, Server
from penstock.purgatory.loop_timers import LoopTimers


@pytest.mark.parametrize("loop", LOOPS)
def test_closing_sends_large_responses(loop: str) -> None:
    reply = framed(bytes(20_000_000))

    async def scenario(serving: NetworkHarness) -> None:
        client, idle = await serving.connect(), await serving.connect()
        assert len(await idle.ask(b"x")) == 20_000_000
        await client.send_frame(b"x")
        await serving.until(lambda: serving.server.statistics().sent_bytes > len(reply))
        closing = asyncio.create_task(serving.server.close(10_000))
        assert await client.read(len(reply)) == reply
        assert await client.is_cut_off()
        assert await idle.is_cut_off()
        await closing
        assert serving.server.statistics().connections == 0

    serve(scenario, loop=loop, on_request=lambda request: request.reply([reply]))


def test_closing_waits_for_started_requests_and_starts_no_more() -> None:
    parked: list[InFlightRequest] = []

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(framed(b"begun") + framed(b"not begun"))
        await serving.until(lambda: len(parked) == 1)
        serving.server.stop_requests()
        closing = asyncio.create_task(serving.server.close(10_000))
        await asyncio.sleep(0.01)
        assert not closing.done()
        parked[0].reply([framed(b"answer")])
        assert await client.read_frame() == b"answer"
        assert await client.is_cut_off()
        await closing
        assert len(parked) == 1

    serve(scenario, on_request=parked.append)


def test_closing_aborts_connections_after_the_drain_time() -> None:
    lease = Lease()
    parked: list[InFlightRequest] = []
    returned: list[str] = []

    def on_request(request: InFlightRequest) -> None:
        if bytes(request.frame) == b"large":
            request.reply([bytes(50_000_000)], lease)
        else:
            request.on_close(lambda: returned.append("given up"))
            parked.append(request)

    async def scenario(serving: NetworkHarness) -> None:
        one, other = await serving.connect(), await serving.connect()
        await one.send_frame(b"large")
        await other.send_frame(b"parked")
        await serving.until(lambda: bool(parked))
        await serving.server.close(20)
        assert serving.server.statistics().connections == 0
        assert lease.released == 1
        assert returned == ["given up"]
        assert "2 connections" in serving.reports[-1]

    serve(scenario, on_request=on_request)


def test_a_disconnect_callback_runs_once_even_after_the_response() -> None:
    ended: list[str] = []

    def on_request(request: InFlightRequest) -> None:
        request.on_disconnect(lambda: ended.append("closed"))
        request.reply([b"\0\0\0\0"])

    async def scenario(serving: NetworkHarness) -> None:
        one, other = await serving.connect(), await serving.connect()
        await one.ask(b"one")
        await other.ask(b"other")
        one.sock.close()
        await serving.until(lambda: bool(ended))
        assert serving.server.statistics().connections == 1
        assert len(ended) == 1

    serve(scenario, on_request=on_request)
    assert len(ended) == 2


def test_no_client_connects_after_close() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        await (await serving.connect()).ask(b"x")
        await serving.server.close(1000)
        with pytest.raises(ConnectionRefusedError):
            await serving.connect()
        await serving.server.close(1000)  # a second close is harmless

    serve(scenario)


def test_no_client_is_served_before_start() -> None:
    async def main() -> None:
        served: list[InFlightRequest] = []
        server = Server(
            on_request=served.append,
            timers=LoopTimers(),
            limits=NetworkLimits(),
            logger=message_logger(print),
        )
        host, port = server.bind("PLAINTEXT", "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(host, port)
        writer.write(framed(b"early"))
        await asyncio.sleep(0.01)
        assert served == []
        server.start()
        await until(lambda: len(served) == 1)
        served[0].reply([b"answer"])
        writer.close()
        await server.close(1000)

    asyncio.run(main())
