"""Large requests take turns: those that take long delay a small one only by one of them."""

from collections.abc import Callable
from functools import partial
from time import perf_counter

import pytest
from tests.unit.network.harness import LOOPS, NetworkHarness, framed, serve

from penstock.network.in_flight_request import InFlightRequest
from penstock.network.large_requests import (
    BRIEF_S,
    LARGE_BYTES,
    LIGHT_BYTES,
    LIGHT_S,
    TURN_S,
    WINDOW_S,
    Kind,
    LargeRequests,
    kind_of,
)

CLIENTS = 20
LARGE = b"large".ljust(LARGE_BYTES + 1)
NO_TIME = partial(float, 0)  # a clock: resuming takes no time


@pytest.mark.parametrize("loop", LOOPS)
def test_a_small_request_is_served_between_large_ones(loop: str) -> None:
    served: list[bytes] = []

    def on_request(request: InFlightRequest) -> None:
        body = bytes(request.frame)
        served.append(body[:5])
        if body == LARGE:
            work_until = perf_counter() + TURN_S
            while perf_counter() < work_until:
                pass
        request.reply([framed(body)])

    async def scenario(serving: NetworkHarness) -> None:
        clients = [await serving.connect() for _ in range(CLIENTS)]
        neighbour = await serving.connect()
        for client in (*clients, neighbour):
            assert await client.ask(b"hello") == b"hello"  # all are accepted
        served.clear()
        for client in clients:
            await client.send_frame(LARGE)
            await client.send_frame(LARGE)
        assert await neighbour.ask(b"small") == b"small"
        assert served.index(b"small") <= 3, "most of the others come later"
        for client in clients:
            assert [await client.read_frame(), await client.read_frame()] == [LARGE, LARGE]
        assert served.count(b"large") == 2 * CLIENTS

    serve(scenario, loop=loop, on_request=on_request)


def test_a_connection_that_closes_while_it_waits_holds_up_nobody() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        clients = [await serving.connect() for _ in range(CLIENTS)]
        for client in clients:
            await client.send_frame(LARGE)
        for client in clients[1::2]:
            client.reset()
        for client in clients[::2]:
            assert await client.read_frame() == LARGE

    def on_request(request: InFlightRequest) -> None:
        work_until = perf_counter() + TURN_S
        while perf_counter() < work_until:
            pass
        request.reply([framed(bytes(request.frame))])

    serve(scenario, on_request=on_request)


def test_quick_requests_do_not_wait_however_large_they_are() -> None:
    turns: list[Callable[[], None]] = []
    large = LargeRequests(turns.append, NO_TIME)
    resumed: list[int] = []
    for _ in range(3):
        assert not large.must_wait("a", lambda: resumed.append(0), Kind.HEAVY)
        large.note(0.0, TURN_S / 4)
    assert not turns, "the loop is asked for a turn only where one has to wait"
    large.note(WINDOW_S / 2, TURN_S / 2)
    assert len(turns) == 1

    def resume(number: int) -> None:
        resumed.append(number)
        large.note(WINDOW_S / 2, TURN_S)

    for number, host in enumerate("aaab"):
        assert large.must_wait(host, partial(resume, number), Kind.HEAVY)
    for left in (3, 2, 1, 0):
        turns.pop()()
        assert large.waiting_count == left
    assert resumed == [0, 3, 1, 2], "the other address comes second"
    turns.pop()()
    assert not turns
    assert not large.must_wait("a", partial(resume, 4), Kind.HEAVY)


def test_brief_requests_use_up_nothing_however_many_there_are() -> None:
    large = LargeRequests(lambda _: pytest.fail("nobody has to wait"), NO_TIME)
    for _ in range(100):
        large.note(0.0, BRIEF_S * 0.9)
        assert not large.must_wait("a", lambda: None, Kind.LIGHT)


def test_many_brief_requests_that_waited_are_resumed_over_several_turns() -> None:
    turns: list[Callable[[], None]] = []
    now_s = 0.0
    large = LargeRequests(turns.append, lambda: now_s)
    resumed: list[int] = []

    def resume(number: int) -> None:
        nonlocal now_s
        resumed.append(number)
        now_s += TURN_S / 4
        large.note(now_s, BRIEF_S / 2)

    large.note(0.0, TURN_S)
    for number in range(10):
        assert large.must_wait("a", partial(resume, number), Kind.LIGHT)
    for count in (4, 8, 10):
        turns.pop()()
        assert len(resumed) == count
    assert large.waiting_count == 0


def test_each_window_has_its_share() -> None:
    large = LargeRequests(lambda _: pytest.fail("nobody has to wait"), NO_TIME)
    for number in range(10):
        large.note(number * 2 * WINDOW_S, TURN_S * 0.9)
        assert not large.must_wait("a", lambda: None, Kind.HEAVY)


def test_what_is_used_up_stays_so_until_the_next_turn_of_the_loop() -> None:
    turns: list[Callable[[], None]] = []
    large = LargeRequests(turns.append, NO_TIME)
    large.note(0.0, 10 * TURN_S)
    large.note(20 * TURN_S, TURN_S / 4)
    resumed: list[str] = []
    assert large.must_wait("a", lambda: resumed.append("a"), Kind.HEAVY)
    turns.pop()()
    assert resumed == ["a"]
    assert not large.must_wait("a", lambda: None, Kind.HEAVY)


def test_a_light_request_passes_others_of_its_address_and_does_not_starve_them() -> None:
    turns: list[Callable[[], None]] = []
    large_requests = LargeRequests(turns.append, NO_TIME)
    started: list[tuple[int, Kind]] = []

    def start(number: int, kind: Kind) -> bool:
        """As a connection does: it asks again when it is resumed."""
        if large_requests.must_wait("a", partial(start, number, kind), kind):
            return False
        started.append((number, kind))
        large_requests.note(0.0, TURN_S)
        return True

    large_requests.note(0.0, TURN_S)
    for kind in (Kind.HEAVY, Kind.UNKNOWN, Kind.LIGHT):
        for number in range(3):
            assert not start(number, kind)
    while turns:
        turns.pop()()
    assert started == [(number, kind) for number in range(3) for kind in Kind]
    assert large_requests.waiting_count == 0


def test_the_last_large_request_of_a_connection_says_what_to_expect_of_the_next() -> None:
    assert kind_of(LIGHT_BYTES, LIGHT_S / 2) is Kind.LIGHT
    assert kind_of(LIGHT_BYTES, LIGHT_S) is Kind.HEAVY
    assert kind_of(LIGHT_BYTES + 1, LIGHT_S / 2) is Kind.HEAVY
    assert kind_of(LIGHT_BYTES, None) is Kind.UNKNOWN
    assert kind_of(LIGHT_BYTES + 1, None) is Kind.HEAVY
