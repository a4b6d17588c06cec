"""Slow, silent and idle clients, under a manual clock."""

import asyncio
import struct

import pytest
from tests.unit.network.harness import Client, NetworkHarness, framed, serve

from penstock.network.in_flight_request import InFlightRequest
from penstock.network.limits import NetworkLimits


async def trickle(serving: NetworkHarness, client: Client, data: bytes) -> int:
    """Send a byte per second until the server closes; return how many were sent."""
    for sent, byte in enumerate(data):
        try:
            client.sock.send(bytes([byte]))
            received = serving.server.statistics().received_bytes
            await serving.until(
                lambda received=received: (  # type: ignore[misc]
                    serving.server.statistics().received_bytes > received
                    or serving.server.statistics().connections == 0
                )
            )
        except ConnectionError:
            return sent
        if serving.server.statistics().connections == 0:
            return sent
        serving.pass_time(1_000)
        for _ in range(3):
            await asyncio.sleep(0)
    return len(data)


def test_a_silent_client_is_closed_after_ten_seconds() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await serving.until(lambda: serving.server.statistics().connections == 1)
        serving.pass_time(5_000)  # real time passes, too: seconds on a busy machine
        await asyncio.sleep(0.01)
        assert serving.server.statistics().connections == 1
        serving.pass_time(5_000)
        assert await client.is_cut_off()
        assert serving.server.statistics().closed_slow == 1

    serve(scenario)


def test_a_first_request_sent_byte_by_byte_has_ten_seconds() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        sent = await trickle(serving, client, framed(bytes(100)))
        assert 9 <= sent <= 11
        assert serving.server.statistics().closed_slow == 1
        assert "time limit" in serving.reports[0]

    serve(scenario)


def test_a_later_request_sent_byte_by_byte_has_thirty_seconds() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        assert await client.ask(b"whole") == b"whole"
        serving.pass_time(100_000)  # time between requests does not count
        sent = await trickle(serving, client, framed(bytes(100)))
        assert 29 <= sent <= 31

    serve(scenario)


def test_slow_requests_that_finish_in_time_may_follow_each_other() -> None:
    """The limit applies to a request, not to the connection."""

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.ask(b"first")
        for _ in range(5):
            assert await trickle(serving, client, framed(bytes(16))) == 20
            assert await client.read_frame() == bytes(16)
        # One piece has the end of a request and the start of the next.
        await client.send(framed(bytes(16))[:15])
        serving.pass_time(20_000)
        await client.send(framed(bytes(16))[15:] + framed(bytes(16))[:10])
        assert await client.read_frame() == bytes(16)
        serving.pass_time(20_000)
        await asyncio.sleep(0.01)
        await client.send(framed(bytes(16))[10:])
        assert await client.read_frame() == bytes(16)
        assert serving.server.statistics().closed_slow == 0

    serve(scenario)


def test_an_idle_connection_is_closed_in_time_and_not_before() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client, busy = await serving.connect(), await serving.connect()
        await client.ask(b"x")
        await busy.ask(b"x")
        for _ in range(4):
            serving.pass_time(14_900)
            assert await busy.ask(b"x") == b"x"
        assert serving.server.statistics().connections == 2
        serving.pass_time(1_000)
        assert await client.is_cut_off()
        assert await busy.ask(b"x") == b"x"
        assert serving.server.statistics().closed_idle == 1
        assert serving.reports == []

    serve(scenario, limits=NetworkLimits(max_idle_ms=60_000))


def test_a_connection_without_an_idle_limit_stays() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.ask(b"x")
        serving.pass_time(10**10)
        await asyncio.sleep(0.01)
        assert await client.ask(b"x") == b"x"

    serve(scenario, limits=NetworkLimits(max_idle_ms=-1))


def test_a_client_with_a_delayed_request_is_not_idle() -> None:
    parked: list[InFlightRequest] = []

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send_frame(b"x")
        await serving.until(lambda: len(parked) == 1)
        for _ in range(10):
            serving.pass_time(30_000)
            await asyncio.sleep(0.002)
        assert serving.server.statistics().connections == 1
        parked[0].reply([framed(b"late")])
        assert await client.read_frame() == b"late"
        # After the response it is as idle as any other.
        serving.pass_time(59_000)
        await asyncio.sleep(0.01)
        assert serving.server.statistics().connections == 1
        serving.pass_time(1_001)
        assert await client.is_cut_off()

    serve(scenario, on_request=parked.append, limits=NetworkLimits(max_idle_ms=60_000))


def test_a_client_that_does_not_read_its_responses_is_idle() -> None:
    """Though another of its requests is pending: unsent responses hold memory and files."""
    in_flight: list[InFlightRequest] = []

    def on_request(request: InFlightRequest) -> None:
        in_flight.append(request)
        request.let_next_start()
        if len(in_flight) == 1:
            request.reply([bytes(50_000_000)])

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(framed(b"much") + framed(b"parked"))
        await serving.until(lambda: serving.server.statistics().sent_bytes > 0)
        await asyncio.sleep(0.02)
        serving.pass_time(60_100)
        await serving.until(lambda: serving.server.statistics().connections == 0)
        assert serving.server.statistics().closed_idle == 1

    serve(scenario, on_request=on_request, limits=NetworkLimits(max_idle_ms=60_000))


@pytest.mark.parametrize("limit_ms", [0, 1])
def test_tiny_time_limits_do_not_cause_a_busy_loop(limit_ms: int) -> None:
    limits = NetworkLimits(max_idle_ms=limit_ms, first_frame_ms=50, started_frame_ms=limit_ms)

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(struct.pack(">i", 10))
        assert await client.is_cut_off()
        assert serving.timers.statistics().added < 200

    serve(scenario, limits=limits)
