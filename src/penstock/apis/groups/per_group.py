"""Handles a request for several groups or ids one after the other, each once.

A group that occurs twice in a request is looked up once, so that a small request cannot ask for the
same large response over and over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

_Reply = TypeVar("_Reply")
GROUPS_PER_STEP = 50  # before the event loop is yielded


async def for_each_group(
    groups: Iterable[str], call: Callable[[str], Awaitable[_Reply]]
) -> list[_Reply]:
    replies: list[_Reply] = []
    for count, group in enumerate(dict.fromkeys(groups), start=1):
        replies.append(await call(group))
        if count % GROUPS_PER_STEP == 0:
            await asyncio.sleep(0)
    return replies
