"""Batches items into requests to other brokers: one request at a time per broker.

It knows no request format: the owner encodes and sends. Invariant: a request has one item per key,
and items leave in the order in which they were added.
"""

from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any, Generic, TypeVar

from penstock.model.cluster import BrokerId

ITEMS_PER_REQUEST = 1_000
PARTITIONS_PER_REQUEST = 10_000  # of all items; a request may not name much more (docs/limits.md)
MAX_PENDING = 20_000  # per broker: beyond it, the broker has long stopped responding

Item = TypeVar("Item")


class RequestBatcher(Generic[Item]):
    """Owned by the event loop."""

    def __init__(
        self,
        send: Callable[[BrokerId, Sequence[Item]], Awaitable[None]],
        *,
        key: Callable[[Item], Hashable],
        partitions: Callable[[Item], int],
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._send = send  # returns when all items have their result
        self._key = key
        self._partitions = partitions  # how many an item names
        self._run = run
        self._pending: dict[BrokerId, list[Item]] = {}  # a key while a request is in flight

    def try_add(self, broker: BrokerId, item: Item) -> bool:
        """False: too many are pending already."""
        pending = self._pending.get(broker)
        if pending is None:
            self._pending[broker] = [item]
            self._run(self._send_all(broker))
        elif len(pending) < MAX_PENDING:
            pending.append(item)
        else:
            return False
        return True

    async def _send_all(self, broker: BrokerId) -> None:
        while pending := self._pending[broker]:
            now, later = self._split(pending)
            self._pending[broker] = later
            await self._send(broker, now)
        del self._pending[broker]

    def _split(self, pending: Sequence[Item]) -> tuple[list[Item], list[Item]]:
        now: dict[Hashable, Item] = {}
        later = []
        left = PARTITIONS_PER_REQUEST
        is_full = False
        for item in pending:
            key, count = self._key(item), self._partitions(item)
            is_full = is_full or len(now) == ITEMS_PER_REQUEST or (count > left and bool(now))
            if is_full or key in now:
                later.append(item)
            else:
                now[key] = item
                left -= count
        return list(now.values()), later
