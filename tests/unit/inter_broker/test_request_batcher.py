"""What goes into one request to a broker, and what waits for the next."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from penstock.inter_broker import request_batcher as gathering
from penstock.inter_broker.request_batcher import RequestBatcher
from penstock.model.cluster import BrokerId

ONE, TWO = BrokerId(1), BrokerId(2)


class Item(NamedTuple):
    key: str
    value: int


class Harness:
    """Requests are answered when a test says so."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.asked: list[tuple[BrokerId, list[Item]]] = []
        self._answers: dict[BrokerId, asyncio.Queue[None]] = {
            broker: asyncio.Queue() for broker in (ONE, TWO)
        }
        self.gathering: RequestBatcher[Item] = RequestBatcher(
            self._ask, key=lambda item: item.key, run=self._run
        )
        self._tasks = tasks

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(work)

    async def _ask(self, broker: BrokerId, items: Sequence[Item]) -> None:
        self.asked.append((broker, list(items)))
        await self._answers[broker].get()

    async def answer(self, broker: BrokerId) -> None:
        self._answers[broker].put_nowait(None)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run_scenario(scenario: Callable[[Harness], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            await scenario(Harness(tasks))

    asyncio.run(run())


def test_what_comes_while_a_broker_is_asked_goes_with_its_next_request() -> None:
    async def scenario(harness: Harness) -> None:
        items = [Item("a", 1), Item("b", 2), Item("c", 3)]
        harness.gathering.try_add(ONE, items[0])
        await settle()
        harness.gathering.try_add(ONE, items[1])
        harness.gathering.try_add(ONE, items[2])
        harness.gathering.try_add(TWO, items[1])
        await settle()
        assert harness.asked == [(ONE, items[:1]), (TWO, items[1:2])]
        await harness.answer(ONE)
        assert harness.asked[2:] == [(ONE, items[1:])]
        await harness.answer(ONE)
        await harness.answer(TWO)
        harness.gathering.try_add(ONE, items[0])  # after a rest, too
        await settle()
        assert harness.asked[3:] == [(ONE, items[:1])]
        await harness.answer(ONE)

    run_scenario(scenario)


def test_two_of_one_key_go_one_after_the_other() -> None:
    async def scenario(harness: Harness) -> None:
        first, second, other = Item("a", 1), Item("a", 2), Item("b", 3)
        for item in (first, second, other):
            harness.gathering.try_add(ONE, item)
        await settle()
        assert harness.asked == [(ONE, [first, other])]
        await harness.answer(ONE)
        assert harness.asked[1:] == [(ONE, [second])]
        await harness.answer(ONE)

    run_scenario(scenario)


def test_a_request_has_a_bound_and_so_has_what_waits() -> None:
    async def scenario(harness: Harness) -> None:
        many = [Item(str(number), number) for number in range(gathering.MAX_PENDING + 1)]
        assert harness.gathering.try_add(ONE, Item("first", 0))
        await settle()
        taken = [harness.gathering.try_add(ONE, item) for item in many]
        assert taken == [True] * gathering.MAX_PENDING + [False]
        await harness.answer(ONE)
        assert harness.asked[1][1] == many[: gathering.ITEMS_PER_REQUEST]
        for _ in range(gathering.MAX_PENDING // gathering.ITEMS_PER_REQUEST):
            await harness.answer(ONE)
        assert sum(len(items) for _, items in harness.asked) == gathering.MAX_PENDING + 1

    run_scenario(scenario)
