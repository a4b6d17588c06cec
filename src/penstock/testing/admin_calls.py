"""New topics, and a thread to run in, for embedded brokers and clusters."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from penstock.config.text_values import as_text

if TYPE_CHECKING:
    from penstock.client.admin_values import NewTopic

Answer = TypeVar("Answer")


def new_topic(
    name: str, partitions: int, replication_factor: int, config: Mapping[str, object] | None
) -> "NewTopic":
    from penstock.client.admin_values import NewTopic

    return NewTopic(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        configs={key: as_text(value) for key, value in (config or {}).items()},
    )


def run_apart(work: Callable[[], Coroutine[None, None, Answer]]) -> Answer:
    """Run it in its own thread, because a notebook's thread has a running loop already."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(lambda: asyncio.run(work())).result()
