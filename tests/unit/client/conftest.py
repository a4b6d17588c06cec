"""Runs a coroutine test on its own event loop.

A task left behind, or an exception that nobody caught, fails the test.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture
def run() -> Run:
    def run_scenario(scenario: Callable[[], Awaitable[None]]) -> None:
        async def watched() -> None:
            uncaught: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: uncaught.append(context)
            )
            async with asyncio.timeout(60):
                await scenario()
            gc.collect()  # a collected future reports an exception that nobody retrieved
            await asyncio.sleep(0)
            assert not uncaught
            left = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
            assert not left, f"tasks left behind: {left}"

        asyncio.run(watched())

    return run_scenario
