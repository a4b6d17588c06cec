"""Which items go into one request to a broker, and which wait for the next."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from penstock.inter_broker import request_batcher
from penstock.inter_broker.request_batcher import RequestBatcher
from penstock.model.cluster import BrokerId

ONE, TWO = BrokerId(1), BrokerId(2)


class Item(NamedTuple):
    key: str
    value: int
    partitions: int = 1


class Harness:
    """Responds to a request when the test says so."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.requests: list[tuple[BrokerId, list[Item]]] = []
        self._responses: dict[BrokerId, asyncio.Queue[None]] = {
            broker: asyncio.Queue() for broker in (ONE, TWO)
        }
        self.batcher: RequestBatcher[Item] = RequestBatcher(
            self._send,
            key=lambda item: item.key,
            partitions=lambda item: item.partitions,
            run=self._run,
        )
        self._tasks = tasks

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(work)

    async def _send(self, broker: BrokerId, items: Sequence[Item]) -> None:
        self.requests.append((broker, list(items)))
        await self._responses[broker].get()

    async def respond(self, broker: BrokerId) -> None:
        self._responses[broker].put_nowait(None)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run_scenario(scenario: Callable[[Harness], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            await scenario(Harness(tasks))

    asyncio.run(run())


def test_items_added_during_a_request_go_with_the_next_one() -> None:
    async def scenario(harness: Harness) -> None:
        items = [Item("a", 1), Item("b", 2), Item("c", 3)]
        harness.batcher.try_add(ONE, items[0])
        await settle()
        harness.batcher.try_add(ONE, items[1])
        harness.batcher.try_add(ONE, items[2])
        harness.batcher.try_add(TWO, items[1])
        await settle()
        assert harness.requests == [(ONE, items[:1]), (TWO, items[1:2])]
        await harness.respond(ONE)
        assert harness.requests[2:] == [(ONE, items[1:])]
        await harness.respond(ONE)
        await harness.respond(TWO)
        harness.batcher.try_add(ONE, items[0])  # after an idle period
        await settle()
        assert harness.requests[3:] == [(ONE, items[:1])]
        await harness.respond(ONE)

    run_scenario(scenario)


def test_two_items_of_one_key_go_in_separate_requests() -> None:
    async def scenario(harness: Harness) -> None:
        first, second, other = Item("a", 1), Item("a", 2), Item("b", 3)
        for item in (first, second, other):
            harness.batcher.try_add(ONE, item)
        await settle()
        assert harness.requests == [(ONE, [first, other])]
        await harness.respond(ONE)
        assert harness.requests[1:] == [(ONE, [second])]
        await harness.respond(ONE)

    run_scenario(scenario)


def test_a_request_is_bounded_by_the_partitions_of_its_items() -> None:
    async def scenario(harness: Harness) -> None:
        most = request_batcher.PARTITIONS_PER_REQUEST
        whole, rest, huge = Item("a", 1, most - 1), Item("b", 2), Item("c", 3, 3 * most)
        after = Item("c", 4)  # fits, but must not overtake the item of its key
        for item in (whole, rest, huge, after):
            harness.batcher.try_add(ONE, item)
        await settle()
        for _ in range(3):
            await harness.respond(ONE)
        sent = [items for _, items in harness.requests]
        assert sent == [[whole, rest], [huge], [after]]

    run_scenario(scenario)


def test_requests_and_pending_items_are_bounded() -> None:
    async def scenario(harness: Harness) -> None:
        many = [Item(str(number), number) for number in range(request_batcher.MAX_PENDING + 1)]
        assert harness.batcher.try_add(ONE, Item("first", 0))
        await settle()
        accepted = [harness.batcher.try_add(ONE, item) for item in many]
        assert accepted == [True] * request_batcher.MAX_PENDING + [False]
        await harness.respond(ONE)
        assert harness.requests[1][1] == many[: request_batcher.ITEMS_PER_REQUEST]
        for _ in range(request_batcher.MAX_PENDING // request_batcher.ITEMS_PER_REQUEST):
            await harness.respond(ONE)
        assert sum(len(items) for _, items in harness.requests) == request_batcher.MAX_PENDING + 1

    run_scenario(scenario)
