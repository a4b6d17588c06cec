"""Runs a coroutine test on a loop of its own, and fails it if a task is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture
def run() -> Run:
    def run_story(story: Callable[[], Awaitable[None]]) -> None:
        async def watched() -> None:
            async with asyncio.timeout(20):
                await story()
            left = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
            assert not left, f"tasks left behind: {left}"

        asyncio.run(watched())

    return run_story
