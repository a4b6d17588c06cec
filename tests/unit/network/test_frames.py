"""Frames of every size, split at every position, over real sockets."""

import asyncio
import random
import struct

import pytest
from tests.profile import scaled
from tests.unit.network.harness import LOOPS, Client, NetworkHarness, echo, framed, serve

from penstock.network.in_flight_request import InFlightRequest
from penstock.network.limits import NetworkLimits
from penstock.protocol.malformed import MalformedRequest, RequestOverLimit
from penstock.security.principal import Caller

LIMIT = 100_000


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("size", [1, 2, LIMIT - 1, LIMIT])
def test_frames_up_to_the_limit_arrive_as_they_were_sent(loop: str, size: int) -> None:
    body = random.Random(size).randbytes(size)

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        for _ in range(3):
            assert await client.ask(body) == body

    serve(scenario, loop=loop, limits=NetworkLimits(max_request_bytes=LIMIT))


@pytest.mark.parametrize("size", [-(2**31), -1, 0, LIMIT + 1, 2**31 - 1])
def test_an_invalid_size_closes_its_own_connection_only(size: int) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        neighbour, bad = await serving.connect(), await serving.connect()
        assert await neighbour.ask(b"before") == b"before"
        await bad.send(struct.pack(">i", size) + b"more")
        assert await bad.is_cut_off()
        assert await neighbour.ask(b"after") == b"after"
        statistics = serving.server.statistics()
        assert (statistics.connections, statistics.closed_malformed) == (1, 1)
        assert statistics.receive_buffer_bytes == 0
        assert len(serving.reports) == 1
        assert str(size) in serving.reports[0]

    serve(scenario, limits=NetworkLimits(max_request_bytes=LIMIT))


@pytest.mark.parametrize("split", [False, True])
def test_a_frame_above_the_limit_of_its_api_is_refused_from_its_first_bytes(split: bool) -> None:
    def check(caller: Caller, api_key: int, frame_bytes: int) -> None:
        assert caller.host == "127.0.0.1"
        if api_key == 7 and frame_bytes > 80_000:
            raise RequestOverLimit(f"API {api_key}: {frame_bytes} bytes", is_logged=split)

    async def scenario(serving: NetworkHarness) -> None:
        neighbour, bad = await serving.connect(), await serving.connect()
        large = b"\0\x08" + bytes(80_000)
        assert await neighbour.ask(large) == large, "another API has no such limit"
        head = struct.pack(">ih", 80_001, 7)
        if split:
            await bad.send(head[:5])
            assert await neighbour.ask(b"meanwhile") == b"meanwhile"
            await bad.send(head[5:])
        else:
            await bad.send(head)
        assert await bad.is_cut_off()
        statistics = serving.server.statistics()
        assert (statistics.closed_over_limit, statistics.closed_malformed) == (1, 0)
        assert [line.endswith("API 7: 80001 bytes") for line in serving.reports] == [True] * split

    serve(scenario, check_frame=check)


def test_good_requests_before_a_bad_one_get_responses() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(framed(b"one") + framed(b"two") + struct.pack(">i", -5))
        assert await client.read_frame() == b"one"
        assert await client.read_frame() == b"two"
        assert await client.is_cut_off()

    serve(scenario)


@pytest.mark.parametrize("sent", [1, 3, 4, 5, 50_000])
def test_a_close_within_a_frame_is_not_an_error(sent: int) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send((struct.pack(">i", LIMIT) + bytes(LIMIT))[:sent])
        await serving.until(lambda: serving.server.statistics().received_bytes == sent)
        client.sock.close()
        await serving.until(lambda: serving.server.statistics().connections == 0)
        assert serving.server.statistics().requests == 0
        assert serving.server.statistics().receive_buffer_bytes == 0
        assert serving.reports == []

    serve(scenario)


def test_a_claimed_length_takes_no_memory_before_the_bytes_arrive() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(struct.pack(">i", 100 * 2**20) + bytes(10_000))
        await serving.until(lambda: serving.server.statistics().received_bytes == 10_004)
        await asyncio.sleep(0)
        assert serving.server.statistics().receive_buffer_bytes <= 2 * 10_004

    serve(scenario)


async def send_in_pieces(client: Client, stream: bytes, source: random.Random) -> None:
    start = 0
    while start < len(stream):
        size = source.choice((1, 4, 5, 1000, 65_536, 1_000_000))
        await client.send(stream[start : start + size])
        start += size
        if source.random() < 0.3:
            await asyncio.sleep(0)


@pytest.mark.parametrize("loop", LOOPS)
def test_frames_survive_every_split(loop: str) -> None:
    """Random sizes in random pieces, some with a pause; each response echoes its request."""
    source = random.Random(7)
    sizes = (1, 3, 100, 4091, 4092, 4093, 70_000, 131_072, 300_000)

    async def scenario(serving: NetworkHarness) -> None:
        for _ in range(scaled(test=15, verify=150, release=1000)):
            bodies = [source.randbytes(source.choice(sizes)) for _ in range(source.randint(1, 8))]
            stream = b"".join(map(framed, bodies))
            client = await serving.connect()

            async with asyncio.TaskGroup() as group:
                group.create_task(send_in_pieces(client, stream, source))
                for body in bodies:
                    assert await client.read_frame() == body
            client.sock.close()

    serve(scenario, loop=loop)


def test_a_frame_is_writable_in_place() -> None:
    def write_in_place(request: InFlightRequest) -> None:
        request.frame[:2] = b"OK"
        echo(request)

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        for body in (b"..small", b"." * 500_000):
            assert await client.ask(body) == b"OK" + body[2:]

    serve(scenario, on_request=write_in_place)


def test_a_frame_is_invalid_after_its_request_has_started() -> None:
    """A handler that keeps it would read another request's bytes, so an access raises."""
    kept: list[InFlightRequest] = []

    def keep(request: InFlightRequest) -> None:
        kept.append(request)
        echo(request)

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.ask(b"request")
        with pytest.raises(ValueError, match="released"):
            bytes(kept[0].frame)

    serve(scenario, on_request=keep)


def test_a_handler_may_reject_a_request_as_malformed() -> None:
    def refuse(request: InFlightRequest) -> None:
        if request.frame[0] == 0:
            raise MalformedRequest("no such api\nFORGED LINE")
        echo(request)

    async def scenario(serving: NetworkHarness) -> None:
        neighbour, bad = await serving.connect(), await serving.connect()
        await bad.send_frame(b"\0")
        assert await bad.is_cut_off()
        assert await neighbour.ask(b"fine") == b"fine"
        assert serving.server.statistics().closed_malformed == 1
        assert serving.server.statistics().unexpected_errors == 0
        (line,) = serving.reports
        assert "no such api" in line
        assert "\n" not in line

    serve(scenario, on_request=refuse)


def test_an_unexpected_handler_error_closes_one_connection_and_is_reported() -> None:
    def fail(request: InFlightRequest) -> None:
        if request.frame[0] == 0:
            raise ZeroDivisionError("a bug of ours")
        echo(request)

    async def scenario(serving: NetworkHarness) -> None:
        neighbour, unlucky = await serving.connect(), await serving.connect()
        await unlucky.send_frame(b"\0")
        assert await unlucky.is_cut_off()
        assert await neighbour.ask(b"fine") == b"fine"
        assert serving.server.statistics().unexpected_errors == 1
        assert "Traceback" in serving.reports[0]
        assert "a bug of ours" in serving.reports[0]

    serve(scenario, on_request=fail)


def test_requests_have_their_caller_and_local_address() -> None:
    seen: list[InFlightRequest] = []

    def note(request: InFlightRequest) -> None:
        seen.append(request)
        echo(request)

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        before_ms = serving.timers.now_ms()
        await client.ask(b"hello")
        (request,) = seen
        assert str(request.caller.principal) == "User:ANONYMOUS"
        assert request.caller.host == "127.0.0.1"
        assert request.caller.listener == "PLAINTEXT"
        assert (request.local_host, request.local_port) == serving.address
        assert before_ms <= request.received_ms <= serving.timers.now_ms()

    serve(scenario, on_request=note)
