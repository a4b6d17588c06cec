"""Requests start and responses are sent in order per connection; connections are independent."""

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.network.harness import LOOPS, Lease, NetworkHarness, framed, serve

from penstock.network.in_flight_request import InFlightRequest
from penstock.network.limits import NetworkLimits


class DelayedHandler:
    """A handler that responds when a test lets it. A frame `p...` lets the next one start."""

    def __init__(self) -> None:
        self.parked: dict[bytes, InFlightRequest] = {}
        self.begun: list[bytes] = []

    def on_request(self, request: InFlightRequest) -> None:
        body = bytes(request.frame)
        self.begun.append(body)
        self.parked[body] = request
        if body.startswith(b"p"):
            request.let_next_start()

    def answer(self, body: bytes) -> None:
        self.parked.pop(body).reply([framed(body)])

    def has(self, *bodies: bytes) -> Callable[[], bool]:
        return lambda: self.begun == list(bodies)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_next_request_waits_for_the_response_while_other_connections_continue(
    loop: str,
) -> None:
    handler = DelayedHandler()

    async def scenario(serving: NetworkHarness) -> None:
        first, second = await serving.connect(), await serving.connect()
        await first.send(framed(b"1a") + framed(b"1b"))
        await serving.until(handler.has(b"1a"))
        await second.send_frame(b"2a")
        await serving.until(handler.has(b"1a", b"2a"))
        handler.answer(b"2a")
        assert await second.read_frame() == b"2a"
        assert handler.begun == [b"1a", b"2a"]
        handler.answer(b"1a")
        assert await first.read_frame() == b"1a"
        await serving.until(handler.has(b"1a", b"2a", b"1b"))
        handler.answer(b"1b")
        assert await first.read_frame() == b"1b"

    serve(scenario, loop=loop, on_request=handler.on_request)


@pytest.mark.parametrize("loop", LOOPS)
def test_responses_are_in_order_if_requests_let_the_next_start(loop: str) -> None:
    handler = DelayedHandler()
    bodies = [b"p1", b"p2", b"p3", b"4", b"p5"]

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(b"".join(map(framed, bodies)))
        await serving.until(handler.has(*bodies[:4]))  # the fourth blocks the fifth
        for body in (b"4", b"p3", b"p2"):
            handler.answer(body)
        await serving.until(handler.has(*bodies))
        assert serving.server.statistics().sent_bytes == 0  # all responses wait for the first
        handler.answer(b"p1")
        assert [await client.read_frame() for _ in range(4)] == bodies[:4]
        handler.answer(b"p5")
        assert await client.read_frame() == b"p5"

    serve(scenario, loop=loop, on_request=handler.on_request)


def test_a_request_may_let_the_next_start_later() -> None:
    handler = DelayedHandler()

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(framed(b"a") + framed(b"b"))
        await serving.until(handler.has(b"a"))
        handler.parked[b"a"].let_next_start()
        handler.parked[b"a"].let_next_start()  # a second call is harmless
        await serving.until(handler.has(b"a", b"b"))
        handler.answer(b"b")
        handler.answer(b"a")
        assert [await client.read_frame() for _ in range(2)] == [b"a", b"b"]

    serve(scenario, on_request=handler.on_request)


def test_in_flight_requests_are_bounded() -> None:
    handler = DelayedHandler()
    bodies = [b"p%03d" % number for number in range(20)]

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(b"".join(map(framed, bodies)))
        await serving.until(handler.has(*bodies[:5]))
        for body in bodies:
            await serving.until(lambda body=body: body in handler.parked)  # type: ignore[misc]
            assert len(handler.parked) <= 5
            handler.answer(body)
            assert await client.read_frame() == body

    serve(scenario, on_request=handler.on_request, limits=NetworkLimits(max_unanswered=5))


def test_a_request_without_a_response_lets_the_next_one_start() -> None:
    def on_request(request: InFlightRequest) -> None:
        body = bytes(request.frame)
        if body == b"silent":
            request.reply_nothing()
        else:
            request.reply([framed(body)])

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(framed(b"silent") * 3 + framed(b"loud"))
        assert await client.read_frame() == b"loud"

    serve(scenario, on_request=on_request)


def test_a_request_may_complete_while_another_starts() -> None:
    """A produce completes the delayed fetch of its own connection and of another."""
    parked: list[InFlightRequest] = []

    def on_request(request: InFlightRequest) -> None:
        body = bytes(request.frame)
        if body == b"wait":
            parked.append(request)
            request.let_next_start()
            return
        request.reply([framed(body)])
        while parked:
            parked.pop().reply([framed(b"woken")])

    async def scenario(serving: NetworkHarness) -> None:
        one, other = await serving.connect(), await serving.connect()
        await one.send_frame(b"wait")
        await serving.until(lambda: len(parked) == 1)
        await other.send(framed(b"wait") + framed(b"go"))
        assert await one.read_frame() == b"woken"
        assert [await other.read_frame() for _ in range(2)] == [b"woken", b"go"]

    serve(scenario, on_request=on_request)


def test_many_small_requests_do_not_starve_other_connections() -> None:
    """An iteration starts 32 requests, so another connection does not wait for all 5,000."""
    order: list[bytes] = []

    def on_request(request: InFlightRequest) -> None:
        order.append(bytes(request.frame))
        request.reply([framed(b"")])

    async def scenario(serving: NetworkHarness) -> None:
        crowd, single = await serving.connect(), await serving.connect()
        await crowd.send(framed(b"crowd") * 5000)
        await single.send_frame(b"single")
        await single.read(4)
        assert order.index(b"single") < 4000
        await crowd.read(4 * 5000)
        assert len(order) == 5001

    serve(scenario, on_request=on_request)


@pytest.mark.parametrize("loop", LOOPS)
def test_close_callbacks_run_once_when_the_connection_closes(loop: str) -> None:
    handler = DelayedHandler()
    returned: list[str] = []

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(framed(b"p1") + framed(b"p2"))
        await serving.until(handler.has(b"p1", b"p2"))
        handler.parked[b"p1"].on_close(lambda: returned.append("first"))
        handler.parked[b"p1"].on_close(lambda: returned.append("first again"))
        handler.parked[b"p2"].on_close(lambda: returned.append("second"))
        handler.answer(b"p2")  # cannot be sent before the first
        client.reset()
        await serving.until(lambda: serving.server.statistics().connections == 0)
        assert returned == ["first", "first again"]
        request = handler.parked[b"p1"]
        assert request.is_closed
        request.on_close(lambda: returned.append("late"))
        assert returned == ["first", "first again", "late"]
        lease = Lease()
        request.reply([b"to nobody"], lease)
        assert lease.released == 1

    serve(scenario, loop=loop, on_request=handler.on_request)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("more", [b"", b"part of the next", framed(bytes(500_000))])
def test_a_reset_right_behind_a_request_is_noticed(loop: str, more: bytes) -> None:
    """Also with unread bytes or many requests left."""
    handler = DelayedHandler()

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(framed(b"hello"))
        await serving.until(handler.has(b"hello"))
        handler.answer(b"hello")
        assert await client.read_frame() == b"hello"
        client.sock.setblocking(False)
        client.sock.send(framed(b"p") * 100 + more)
        client.reset()
        await serving.until(lambda: serving.server.statistics().connections == 0)

    serve(scenario, loop=loop, on_request=handler.on_request)


def test_a_failing_close_callback_does_not_stop_the_others() -> None:
    handler = DelayedHandler()
    returned: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError("a bug of ours")

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(framed(b"p1") + framed(b"p2"))
        await serving.until(handler.has(b"p1", b"p2"))
        handler.parked[b"p1"].on_close(fail)
        handler.parked[b"p2"].on_close(lambda: returned.append("second"))
        client.reset()
        await serving.until(lambda: serving.server.statistics().connections == 0)
        assert returned == ["second"]
        assert serving.server.statistics().unexpected_errors == 1
        assert "a bug of ours" in serving.reports[0]

    serve(scenario, on_request=handler.on_request)


def test_a_request_that_fails_later_is_counted_and_closes_its_connection() -> None:
    handler = DelayedHandler()

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send_frame(b"p1")
        await serving.until(handler.has(b"p1"))
        try:
            raise ZeroDivisionError("a bug of ours")
        except ZeroDivisionError:
            handler.parked[b"p1"].fail("Metadata v9")
        assert await client.is_cut_off()
        statistics = serving.server.statistics()
        assert (statistics.unexpected_errors, statistics.closed_malformed) == (1, 0)
        (report,) = serving.reports
        assert "Metadata v9 failed unexpectedly" in report
        assert "a bug of ours" in report

    serve(scenario, on_request=handler.on_request)


def test_closing_a_request_closes_its_connection_after_earlier_responses() -> None:
    def on_request(request: InFlightRequest) -> None:
        body = bytes(request.frame)
        if body == b"bad":
            request.close("acks of 7")
        else:
            request.reply([framed(body)])

    async def scenario(serving: NetworkHarness) -> None:
        neighbour, client = await serving.connect(), await serving.connect()
        await client.send(framed(b"good") + framed(b"bad") + framed(b"never") + bytes(100_000))
        assert await client.read_frame() == b"good"
        assert await client.is_cut_off()
        assert await neighbour.ask(b"still here") == b"still here"
        assert serving.server.statistics().requests == 3
        assert "acks of 7" in serving.reports[0]

    serve(scenario, on_request=on_request)


def test_a_second_response_is_a_bug_and_releases_its_lease() -> None:
    lease = Lease()

    def on_request(request: InFlightRequest) -> None:
        request.reply([framed(b"one")])
        request.reply([framed(b"two")], lease)

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send_frame(b"x")
        await serving.until(lambda: serving.server.statistics().connections == 0)
        assert serving.server.statistics().unexpected_errors == 1
        assert lease.released == 1

    serve(scenario, on_request=on_request)


def test_a_half_closed_client_still_gets_its_responses() -> None:
    handler = DelayedHandler()

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(framed(b"a") + framed(b"b"))
        client.sock.shutdown(1)
        await serving.until(handler.has(b"a"))
        await asyncio.sleep(0.01)
        handler.answer(b"a")
        await serving.until(handler.has(b"a", b"b"))
        handler.answer(b"b")
        assert [await client.read_frame() for _ in range(2)] == [b"a", b"b"]
        assert await client.is_cut_off()

    serve(scenario, on_request=handler.on_request)


def test_a_half_closed_client_is_closed_after_its_time_limit() -> None:
    handler = DelayedHandler()
    returned: list[str] = []

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send_frame(b"a")
        await serving.until(handler.has(b"a"))
        handler.parked[b"a"].on_close(lambda: returned.append("gone"))
        client.sock.close()
        await asyncio.sleep(0.02)  # the server sees the end of the stream, and waits
        serving.pass_time(5_001)
        await serving.until(lambda: returned == ["gone"])
        assert serving.server.statistics().connections == 0

    serve(scenario, on_request=handler.on_request)
