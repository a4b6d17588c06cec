"""Requests about several groups: each is asked for once, one after the other.

A group that comes twice has one answer: else a few bytes could ask for all there is, over and over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

_Answer = TypeVar("_Answer")
GROUPS_A_TURN = 50  # of the event loop, before others get theirs


async def ask_each(
    groups: Iterable[str], ask: Callable[[str], Awaitable[_Answer]]
) -> list[_Answer]:
    answers: list[_Answer] = []
    for place, group in enumerate(dict.fromkeys(groups), start=1):
        answers.append(await ask(group))
        if place % GROUPS_A_TURN == 0:
            await asyncio.sleep(0)
    return answers
