"""What is to be asked of other brokers, gathered: one request at a time to each, with all that has
come meanwhile. Knows no request: what one looks like, and what an answer means, is the owner's.

Invariant: of each key there is one item in a request, and they go in the order in which they came.
"""

from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any, Generic, TypeVar

from penstock.model.cluster import BrokerId

ITEMS_AT_ONCE = 1_000
MAX_WAITING = 20_000  # for one broker: it has long stopped to answer

Item = TypeVar("Item")


class RequestBatcher(Generic[Item]):
    """Owned by the event loop."""

    def __init__(
        self,
        ask: Callable[[BrokerId, Sequence[Item]], Awaitable[None]],
        *,
        key: Callable[[Item], Hashable],
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._ask = ask  # returns when all of them have their answer
        self._key = key
        self._run = run
        self._waiting: dict[BrokerId, list[Item]] = {}  # there while the broker is being asked

    def try_add(self, broker: BrokerId, item: Item) -> bool:
        """False: too many wait already."""
        waiting = self._waiting.get(broker)
        if waiting is None:
            self._waiting[broker] = [item]
            self._run(self._ask_all(broker))
        elif len(waiting) < MAX_WAITING:
            waiting.append(item)
        else:
            return False
        return True

    async def _ask_all(self, broker: BrokerId) -> None:
        while waiting := self._waiting[broker]:
            now, later = self._split(waiting)
            self._waiting[broker] = later
            await self._ask(broker, now)
        del self._waiting[broker]

    def _split(self, waiting: Sequence[Item]) -> tuple[list[Item], list[Item]]:
        now: dict[Hashable, Item] = {}
        later = []
        for item in waiting:
            key = self._key(item)
            if key in now or len(now) == ITEMS_AT_ONCE:
                later.append(item)
            else:
                now[key] = item
        return list(now.values()), later
