"""Helpers of metadata store tests beyond its interface, for the embedded store and ZooKeeper.

Another store joins the conformance suite as one more entry of BACKENDS.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol
from uuid import uuid4

import pytest

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.metadata_store.embedded.store import EmbeddedMetadataStore
from penstock.metadata_store.interface import Session, SessionState, WatchEvent
from penstock.metadata_store.zookeeper.messages import CLOSE, encode_hello
from penstock.metadata_store.zookeeper.session import ZooKeeperSession
from penstock.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from penstock.testing.simulated_disk import SimulatedDisk

SESSION_TIMEOUT_MS = 20_000  # long enough for a busy machine; no test waits for it to expire


class Backend(Protocol):
    async def open_session(self) -> Session: ...
    async def expire(self, session: Session) -> None:
        """Expire the session; return when it has been notified."""


class EmbeddedBackend:
    def __init__(self, store: EmbeddedMetadataStore) -> None:
        self.store = store

    async def open_session(self) -> Session:
        return await self.store.open_session()

    async def expire(self, session: Session) -> None:
        await self.store.expire(session.id)


class ZooKeeperBackend:
    def __init__(self, store: ZooKeeperMetadataStore, connect: str) -> None:
        self.store = store
        self._connect = connect

    async def open_session(self) -> Session:
        return await self.store.open_session()

    async def expire(self, session: Session) -> None:
        assert isinstance(session, ZooKeeperSession)
        await expire(session, self._connect)


def embedded(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Backend]:
    return _embedded()


def zookeeper(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Backend]:
    return _zookeeper(request.getfixturevalue("zookeeper_connect"))


@asynccontextmanager
async def _embedded() -> AsyncIterator[Backend]:
    store = await EmbeddedMetadataStore.open(SimulatedDisk("/data"), "/data/coordination")
    try:
        yield EmbeddedBackend(store)
    finally:
        await store.close()


@asynccontextmanager
async def _zookeeper(connect: str) -> AsyncIterator[Backend]:
    async with opened(connect) as store:
        yield ZooKeeperBackend(store, connect)


BACKENDS: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Backend]]] = {
    "embedded": embedded,
    "zookeeper": zookeeper,
}
_ALL = ["embedded", pytest.param("zookeeper", marks=pytest.mark.xdist_group("zookeeper"))]
every_backend = pytest.mark.parametrize("backend", _ALL)

Scenario = Callable[..., Awaitable[None]]


def on_every_backend(scenario: Scenario) -> Callable[..., None]:
    """Turn an asynchronous scenario on a fresh, empty store into a test of each store."""

    @every_backend
    def test(backend: str, request: pytest.FixtureRequest) -> None:
        run_scenario(scenario, backend, request)

    test.__name__ = getattr(scenario, "__name__", "story")
    test.__doc__ = scenario.__doc__
    return test


def run_scenario(
    scenario: Scenario, backend: str, request: pytest.FixtureRequest, *more: Any
) -> None:
    opening = BACKENDS[backend](request)

    async def run() -> None:
        async with opening as opened, asyncio.timeout(60):
            await scenario(opened, *more)

    asyncio.run(run())


@asynccontextmanager
async def opened(
    connect: str, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
) -> AsyncIterator[ZooKeeperMetadataStore]:
    """Open a store with a chroot that no other test uses."""
    config = ZooKeeperConfig.parse(
        f"{connect}/{uuid4().hex}", session_timeout_ms=session_timeout_ms
    )
    store = await ZooKeeperMetadataStore.open(config)
    try:
        yield store
    finally:
        await store.close()


async def expire(session: ZooKeeperSession, connect: str) -> None:
    """Close the session as another client that has its id and password."""
    while not await _try_close_as_another(session, connect):
        pass  # the session reconnected first, so try again
    await session.ended.wait()


async def _try_close_as_another(session: ZooKeeperSession, connect: str) -> bool:
    host, _, port = connect.split(",")[0].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    hello = encode_hello(
        session_id=session.id, password=session.password, timeout_ms=10_000, last_zxid=0
    )
    close = struct.pack("!ii", 1, CLOSE)
    writer.write(b"".join(struct.pack("!i", len(part)) + part for part in (hello, close)))
    try:
        await read_frame(reader)
        answer = await read_frame(reader)
        return struct.unpack_from("!i", answer) == (1,)
    except (asyncio.IncompleteReadError, ConnectionError):
        return session.state is SessionState.ENDED
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    return await reader.readexactly(length)


class RecordingWatch:
    """A watch that records its events."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []

    def __call__(self, event: WatchEvent) -> None:
        self.events.append(event)


def run(scenario: Awaitable[None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(limited())


class States:
    """Records a session's states, and waits for them."""

    def __init__(self, session: Session) -> None:
        self.seen: list[SessionState] = []
        self._changed = asyncio.Event()
        session.listen(self._note)

    def _note(self, state: SessionState) -> None:
        self.seen.append(state)
        self._changed.set()

    async def wait_for(self, state: SessionState) -> None:
        while state not in self.seen:
            self._changed.clear()
            await self._changed.wait()
