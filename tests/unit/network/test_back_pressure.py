"""Clients that do not read, or that fill the memory: bounded, and no client waits forever."""

import asyncio
import random
import socket
import struct

import pytest
from tests.unit.network.harness import LOOPS, Client, Lease, NetworkHarness, echo, framed, serve

from penstock.network.in_flight_request import InFlightRequest
from penstock.network.limits import MIB, NetworkLimits

ROOM_BYTES = 128 * 1024  # size prefixes, and buffers rounded up


async def send_until_blocked(client: Client, data: bytes) -> int:
    """Send until the server stops reading, as nobody reads its responses; return the rest."""
    sent = 0
    still = 0
    while sent < len(data) and still < 30:
        try:
            sent += client.sock.send(data[sent : sent + 65_536])
            still = 0
        except BlockingIOError:
            still += 1
        await asyncio.sleep(0.001 if still else 0)
    return sent


@pytest.mark.parametrize("loop", LOOPS)
def test_unread_responses_stop_reading_of_requests(loop: str) -> None:
    begun = 0
    reply = framed(bytes(2_000))

    def on_request(request: InFlightRequest) -> None:
        nonlocal begun
        begun += 1
        request.reply([reply])

    async def scenario(serving: NetworkHarness) -> None:
        neighbour = await serving.connect()
        client = await serving.connect(receive_bytes=4096)
        stream = framed(bytes(500)) * 10_000
        sent = await send_until_blocked(client, stream)
        assert sent < len(stream)
        limits = NetworkLimits()
        socket_bytes = 4 * 1024 * 1024  # more than the system keeps for both sockets
        assert begun * len(reply) < limits.max_unsent_bytes + limits.send_turn_bytes + socket_bytes
        assert serving.server.statistics().receive_buffer_bytes <= 2 * MIB
        assert len(await neighbour.ask(b"x")) == 2_000
        async with asyncio.TaskGroup() as group:
            group.create_task(client.send(stream[sent:]))
            assert await client.read(10_000 * len(reply)) == reply * 10_000

    serve(scenario, loop=loop, on_request=on_request)


def test_small_unsent_responses_are_counted_too() -> None:
    begun = 0

    def on_request(request: InFlightRequest) -> None:
        nonlocal begun
        begun += 1
        request.reply([b"x"])

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        await client.send(framed(b"request") * 1000)
        assert await client.read(1000) == b"x" * 1000
        assert begun == 1000

    serve(scenario, on_request=on_request, limits=NetworkLimits(max_unsent_replies=3))


def test_read_ahead_behind_a_delayed_request_is_bounded() -> None:
    parked: list[InFlightRequest] = []

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send_frame(b"parked")
        await serving.until(lambda: len(parked) == 1)
        stream = framed(bytes(1000)) * 5000
        sent = await send_until_blocked(client, stream)
        assert sent < len(stream)
        assert len(parked) == 1
        assert serving.server.statistics().receive_buffer_bytes <= MIB
        # It is not read any more, but its close is still noticed.
        client.reset()
        serving.pass_time(30_000)
        await serving.until(lambda: serving.server.statistics().connections == 0)

    serve(scenario, on_request=parked.append)


def test_receive_memory_is_bounded_and_every_client_is_served() -> None:
    """Forty clients send forty times the memory at once."""
    limits = NetworkLimits(max_request_bytes=MIB, receive_budget_bytes=3 * MIB)
    body = random.Random(3).randbytes(MIB)

    async def scenario(serving: NetworkHarness) -> None:
        clients = [await serving.connect() for _ in range(40)]
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, serving.server.statistics().receive_buffer_bytes)
                await asyncio.sleep(0)

        async def ask(client: Client) -> None:
            for _ in range(3):
                assert await client.ask(body) == body

        watcher = asyncio.create_task(watch())
        await asyncio.gather(*map(ask, clients))
        watcher.cancel()
        assert MIB < most <= limits.receive_budget_bytes + 40 * 4096

    serve(scenario, limits=limits)


def test_clients_that_hold_the_memory_cannot_stop_the_others() -> None:
    """Half requests fill the memory; whole requests pass, large ones by the reserve."""
    limits = NetworkLimits(max_request_bytes=MIB, receive_budget_bytes=4 * MIB)
    half = struct.pack(">i", MIB) + bytes(500_000)

    async def scenario(serving: NetworkHarness) -> None:
        holders = [await serving.connect() for _ in range(20)]
        stuck = [asyncio.create_task(holder.send(half)) for holder in holders]
        await serving.until(lambda: serving.server.statistics().waiting_for_memory > 0)
        honest = await serving.connect()
        assert await honest.ask(b"small") == b"small"
        large = asyncio.create_task(honest.ask(bytes(MIB)))
        # The half requests time out, one after another, by the reserve as well.
        while not large.done():
            assert serving.server.statistics().receive_buffer_bytes <= 4 * MIB + 21 * 4096
            serving.pass_time(1_000)
            await asyncio.sleep(0.002)
        assert await large == bytes(MIB)
        assert serving.server.statistics().closed_slow >= 1
        await asyncio.gather(*stuck, return_exceptions=True)

    serve(scenario, limits=limits)


def test_waiting_for_memory_does_not_count_toward_a_clients_time_limit() -> None:
    """Its request is late because we did not read it; its time starts when we do."""
    limits = NetworkLimits(max_request_bytes=MIB, receive_budget_bytes=MIB)
    half = struct.pack(">i", MIB) + bytes(MIB // 2)

    async def scenario(serving: NetworkHarness) -> None:
        first, second, third = [await serving.connect() for _ in range(3)]
        for client in (first, second, third):
            assert await client.ask(b"hello") == b"hello"
        await first.send(half)  # takes the reserve
        await serving.until(lambda: serving.server.statistics().received_bytes >= MIB // 2)
        halfway = asyncio.create_task(second.send(half))
        await serving.until(lambda: serving.server.statistics().waiting_for_memory == 1)
        whole = asyncio.create_task(third.ask(bytes(MIB)))
        await serving.until(lambda: serving.server.statistics().waiting_for_memory == 2)
        serving.pass_time(29_000)
        await first.send(bytes(MIB // 2))
        assert await first.read_frame() == bytes(MIB)
        await halfway
        serving.pass_time(29_000)
        await second.send(bytes(MIB // 2))
        assert await second.read_frame() == bytes(MIB)
        assert await whole == bytes(MIB)
        assert serving.server.statistics().closed_slow == 0

    serve(scenario, limits=limits)


def test_spare_buffers_of_idle_connections_are_dropped() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.ask(bytes(MIB))
        assert serving.server.statistics().receive_buffer_bytes >= MIB
        serving.pass_time(60_000)
        await serving.until(lambda: serving.server.statistics().receive_buffer_bytes == 0)
        assert await client.ask(b"still here") == b"still here"

    serve(scenario)


def test_responses_behind_an_unanswered_request_release_their_leases() -> None:
    parked: list[InFlightRequest] = []
    lease = Lease()

    def on_request(request: InFlightRequest) -> None:
        parked.append(request)
        request.let_next_start()

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(framed(b"1") + framed(b"2"))
        await serving.until(lambda: len(parked) == 2)
        parked[1].reply([b"never leaves"], lease)
        assert lease.released == 0
        client.reset()
        await serving.until(lambda: serving.server.statistics().connections == 0)
        assert lease.released == 1

    serve(scenario, on_request=on_request)


def test_two_thousand_connections_are_served_without_buffers() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        clients = [await serving.connect() for _ in range(2000)]
        for round_ in range(2):
            for client in clients:
                await client.send_frame(b"%d" % round_)
            for client in clients:
                assert await client.read_frame() == b"%d" % round_
        statistics = serving.server.statistics()
        assert (statistics.connections, statistics.requests) == (2000, 4000)
        assert statistics.receive_buffer_bytes == 0

    serve(scenario, on_request=echo)
