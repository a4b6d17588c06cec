"""Topics for the tests of Penstock's own client: each test has its own, whatever the broker."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.clients.under_test import BrokerUnderTest

from penstock.client.admin_values import NewTopic
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST
from penstock.model.ids import TopicPartition

_Result = TypeVar("_Result")
_NUMBERS = itertools.count()


def ask(broker: BrokerUnderTest, work: Callable[[ClusterClient], Awaitable[_Result]]) -> _Result:
    """Runs a coroutine with a client of this broker."""

    async def run() -> _Result:
        async with asyncio.timeout(60), ClusterClient(broker.bootstrap_servers) as client:
            return await work(client)

    return asyncio.run(run())


def new_name() -> str:
    return f"ours-{os.getpid()}-{next(_NUMBERS)}"


def new_topic(
    broker: BrokerUnderTest, *, partitions: int = 3, name: str | None = None, **configs: str
) -> str:
    """A topic that can be written to; `__` in a setting's name stands for the dot."""
    name = name or new_name()

    async def create(client: ClusterClient) -> None:
        settings = {config.replace("__", "."): value for config, value in configs.items()}
        topic = NewTopic(name=name, partitions=partitions, configs=settings)
        await client.admin.create_topics([topic])
        # KRaft responds before the partitions have leaders; the client waits for them.
        await client.list_offsets(
            {TopicPartition(name, number): LATEST for number in range(partitions)}
        )

    ask(broker, create)
    return name
