"""Config values as text, new topics, and a thread to run in, for embedded brokers and clusters."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from penstock.client.admin_values import NewTopicSpec

Answer = TypeVar("Answer")


def as_text(value: object) -> str:
    """The value as in a properties file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def new_topic(
    name: str, partitions: int, replication_factor: int, config: Mapping[str, object] | None
) -> "NewTopicSpec":
    from penstock.client.admin_values import NewTopicSpec

    return NewTopicSpec(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        configs={key: as_text(value) for key, value in (config or {}).items()},
    )


def run_apart(work: Callable[[], Coroutine[None, None, Answer]]) -> Answer:
    """Run it in its own thread, because a notebook's thread has a running loop already."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(lambda: asyncio.run(work())).result()
