"""Muted connections, and connections above the creation rate of their address."""

import asyncio
import socket
import sys

import pytest
from tests.unit.network.harness import LOOPS, NetworkHarness, echo, framed, serve

from penstock.model.quotas import DEFAULT_ENTITY, QuotaEntity, QuotaKey
from penstock.network.in_flight_request import InFlightRequest
from penstock.network.limits import NetworkLimits
from penstock.security.quotas.client_quotas import ClientQuotas, QuotaWindows
from penstock.security.quotas.rates import RateWindow

LARGE = bytes(2_000_000)
LIMITS = NetworkLimits()
MUTED_MS = 600_000  # longer than a test may take
A_WHILE_S = 0.05  # in which a connection that is not muted would have answered many times


def throttle(request: InFlightRequest) -> None:
    """Mutes after the response to a request that asks for it."""
    if bytes(request.frame).startswith(b"mute"):
        request.mute(MUTED_MS)
    echo(request)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_muted_connection_answers_reads_nothing_and_goes_on_after_its_time(loop: str) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client, other = await serving.connect(), await serving.connect()
        assert await client.ask(b"mute") == b"mute"  # the response leaves at once
        asking = asyncio.create_task(client.ask(b"next"))
        assert await other.ask(b"x") == b"x"  # others are served
        await asyncio.sleep(A_WHILE_S)
        assert not asking.done()
        assert serving.server.statistics().requests == 2
        serving.pass_time(MUTED_MS)
        assert await asking == b"next"

    serve(scenario, on_request=throttle, loop=loop)


def test_a_muted_client_that_sends_on_costs_no_memory() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.ask(b"mute")
        received = serving.server.statistics().received_bytes
        sending = asyncio.create_task(client.send(framed(bytes(5_000_000))))
        await asyncio.sleep(A_WHILE_S)
        assert serving.server.statistics().received_bytes == received
        serving.pass_time(MUTED_MS)
        await sending
        assert await client.read_frame() == bytes(5_000_000)

    serve(scenario, on_request=throttle)


def test_requests_that_came_with_the_muting_one_wait_in_order() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(framed(b"mute 1") + framed(b"2") + framed(b"mute 3") + framed(b"4"))
        assert await client.read_frame() == b"mute 1"
        assert serving.server.statistics().requests == 1
        serving.pass_time(MUTED_MS)
        assert [await client.read_frame() for _ in range(2)] == [b"2", b"mute 3"]
        assert serving.server.statistics().requests == 3
        serving.pass_time(MUTED_MS)
        assert await client.read_frame() == b"4"

    serve(scenario, on_request=throttle)


def test_a_muted_connection_is_not_idle_and_ends_with_the_server() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.ask(b"mute")
        serving.pass_time(MUTED_MS // 2)
        await asyncio.sleep(A_WHILE_S)
        assert serving.server.statistics().connections == 1
        await serving.server.close(0)
        assert await client.is_cut_off()

    serve(scenario, on_request=throttle, limits=NetworkLimits(max_idle_ms=1_000))


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell")
def test_a_muted_client_that_leaves_keeps_no_descriptor() -> None:
    """It may have left requests behind, so that the end of its stream cannot be read."""

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.ask(b"mute")
        await client.send_frame(bytes(100))
        client.sock.shutdown(socket.SHUT_WR)
        for _ in range(2):  # until it is looked for, and then the time of a half-closed client
            serving.pass_time(LIMITS.started_frame_ms + LIMITS.half_closed_ms)
            await asyncio.sleep(A_WHILE_S)
        await serving.until(lambda: serving.server.statistics().connections == 0)
        assert await client.is_cut_off()

    serve(scenario, on_request=throttle, limits=LIMITS)


def test_a_muted_client_that_all_wait_for_may_finish_its_request() -> None:
    muting: list[InFlightRequest] = []

    def start(request: InFlightRequest) -> None:
        if bytes(request.frame[:4]) != b"mute":
            echo(request)
            return
        request.let_next_start()
        muting.append(request)

    async def scenario(serving: NetworkHarness) -> None:
        client, other = await serving.connect(), await serving.connect()
        await client.send(framed(b"mute"))
        await client.send(framed(LARGE)[:-1])  # more than the budget has
        await serving.until(lambda: serving.server.statistics().received_bytes > len(LARGE))
        asking = asyncio.create_task(other.ask(LARGE))
        await serving.until(lambda: serving.server.statistics().waiting_for_memory > 0)
        [request] = muting
        request.reply([framed(b"muted")])
        request.mute(MUTED_MS)
        await client.send(LARGE[-1:])
        assert await client.read_frame() == b"muted"
        assert await client.read_frame() == LARGE
        assert await asking == LARGE
        asking = asyncio.create_task(client.ask(b"next"))
        await asyncio.sleep(A_WHILE_S)
        assert not asking.done(), "it is still muted"
        asking.cancel()

    limits = NetworkLimits(receive_budget_bytes=1, max_request_bytes=len(LARGE))
    serve(scenario, on_request=start, limits=limits)


SAMPLE_MS = 1_000_000  # longer than a test may take


def two_in_two_samples() -> ClientQuotas:
    quotas = ClientQuotas(QuotaWindows(client=RateWindow(samples=2, sample_ms=SAMPLE_MS)))
    everywhere = QuotaEntity(ip=DEFAULT_ENTITY)
    quotas.replace({everywhere: {QuotaKey.CONNECTION_CREATION_RATE: 1000 / SAMPLE_MS}})
    return quotas


def test_connections_above_the_rate_of_their_address_wait_and_are_served_then() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        clients = [await serving.connect() for _ in range(3)]  # a window has room for two
        asking = [asyncio.create_task(client.ask(b"x")) for client in clients]
        assert [await task for task in asking[:2]] == [b"x"] * 2
        await serving.until(lambda: serving.server.statistics().accepted == 3)
        await asyncio.sleep(A_WHILE_S)
        assert not asking[2].done()
        serving.pass_time(SAMPLE_MS)
        assert await asking[2] == b"x"

    serve(scenario, quotas=two_in_two_samples())


def test_a_connection_that_would_wait_longer_than_a_window_is_closed() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        clients = [await serving.connect() for _ in range(5)]
        await serving.until(lambda: serving.server.statistics().refused == 1)
        assert await clients[4].is_cut_off()
        serving.pass_time(2 * SAMPLE_MS)
        assert [await client.ask(b"x") for client in clients[2:4]] == [b"x"] * 2

    serve(scenario, quotas=two_in_two_samples())


def test_connections_that_wait_are_closed_with_the_server() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        clients = [await serving.connect() for _ in range(3)]
        await serving.until(lambda: serving.server.statistics().accepted == 3)
        await serving.server.close(0)
        for client in clients:
            assert await client.is_cut_off()

    serve(scenario, quotas=two_in_two_samples())
