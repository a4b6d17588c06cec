"""What a test needs of a coordination back end beside the interface, and the embedded one.

Another back end joins the conformance suite by being one more entry of BACKENDS.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest

from penstock.coordination.embedded import EmbeddedCoordination
from penstock.coordination.interface import Session, WatchEvent
from penstock.testing.simulated_disk import SimulatedDisk


class Backend(Protocol):
    async def open_session(self) -> Session: ...
    async def expire(self, session: Session) -> None:
        """End the session against its will; returns when it knows."""


class EmbeddedBackend:
    def __init__(self, store: EmbeddedCoordination) -> None:
        self.store = store

    async def open_session(self) -> Session:
        return await self.store.open_session()

    async def expire(self, session: Session) -> None:
        await self.store.expire(session.id)


@asynccontextmanager
async def embedded() -> AsyncIterator[Backend]:
    store = await EmbeddedCoordination.open(SimulatedDisk("/data"), "/data/coordination")
    try:
        yield EmbeddedBackend(store)
    finally:
        await store.close()


BACKENDS: dict[str, Callable[[], AbstractAsyncContextManager[Backend]]] = {"embedded": embedded}

Story = Callable[[Backend], Awaitable[None]]


def told_on_every_backend(story: Story) -> Callable[[str], None]:
    """Make an asynchronous story on a fresh, empty tree a test of each back end."""

    @pytest.mark.parametrize("backend", sorted(BACKENDS))
    def test(backend: str) -> None:
        async def run() -> None:
            async with asyncio.timeout(60), BACKENDS[backend]() as opened:
                await story(opened)

        asyncio.run(run())

    test.__name__ = getattr(story, "__name__", "story")
    test.__doc__ = story.__doc__
    return test


class Witness:
    """A watch that keeps what it was told."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []

    def __call__(self, event: WatchEvent) -> None:
        self.events.append(event)
