"""What embedded brokers and clusters share: settings as text, and questions from any thread."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Answer = TypeVar("Answer")


def as_text(value: object) -> str:
    """As a properties file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def run_apart(work: Callable[[], Coroutine[None, None, Answer]]) -> Answer:
    """In a thread of its own: a notebook's has a running loop already."""
    with ThreadPoolExecutor(max_workers=1) as apart:
        return apart.submit(lambda: asyncio.run(work())).result()
