"""What the parts of `AsyncAdmin` share: its client, its time-outs, and looking topics up."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from penstock.client.admin_arguments import PartitionsGiven, check_exists, split_partitions
from penstock.client.client_config import parse_client_config
from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientClosed, ClientError
from penstock.client.item_results import settle
from penstock.client.metadata import TopicMetadata
from penstock.model.ids import TopicPartition

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_AT_ONCE = 16  # requests in flight for one operation


class AdminOperations:
    """One event loop, the first that uses it, owns the connections."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str,
        timeout_s: float,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._timeout_s = _check_timeout(timeout_s)
        self._client = ClusterClient(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=round(timeout_s * 1000),
            security=parse_client_config(config or {}).security,
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    def _connected(self) -> ClusterClient:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise RuntimeError(
                "this AsyncAdmin belongs to another event loop, the first that used it: create one "
                "for each loop, or use penstock.Admin"
            )
        return self._client

    def _ms(self, timeout_s: float | None) -> int:
        return round((self._timeout_s if timeout_s is None else _check_timeout(timeout_s)) * 1000)

    async def _get_topics(
        self, names: Iterable[str] | None, timeout_ms: int
    ) -> dict[str, TopicMetadata]:
        """Fresh metadata of existing topics; None: all of them."""
        metadata = await self._connected().metadata(names, timeout_ms=timeout_ms)
        wanted = (
            metadata.topics if names is None else {name: metadata.topics[name] for name in names}
        )
        return settle({name: topic.find_error() or topic for name, topic in wanted.items()})

    async def _get_partitions(
        self, given: PartitionsGiven, timeout_ms: int
    ) -> list[TopicPartition]:
        """Existing partitions; a topic stands for all of its own."""
        whole, partitions = split_partitions(given)
        topics = await self._get_topics(
            dict.fromkeys([*whole, *(tp.topic for tp in partitions)]), timeout_ms
        )
        settle({tp: check_exists(tp, topics[tp.topic]) for tp in partitions})
        all_of = [
            TopicPartition(name, number)
            for name in whole
            for number in range(len(topics[name].partitions))
        ]
        return list(dict.fromkeys([*all_of, *partitions]))


def _check_timeout(timeout_s: float) -> float:
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or timeout_s <= 0:
        raise ValueError(f"timeout_s is {timeout_s!r}: write seconds, more than 0")
    return timeout_s


async def ask_for_each(
    items: Iterable[_Item], ask: Callable[[_Item], Awaitable[_Result]]
) -> dict[_Item, _Result]:
    """Ask for several items at once, some at a time."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def try_ask(item: _Item) -> _Result | ClientError:
        async with free:
            try:
                return await ask(item)
            except ClientClosed:
                raise
            except ClientError as error:
                return error

    listed = list(items)
    answers = await asyncio.gather(*(try_ask(item) for item in listed))
    return settle(dict(zip(listed, answers, strict=True)))
