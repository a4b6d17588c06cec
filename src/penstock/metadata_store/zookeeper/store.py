"""The tree on ZooKeeper, shared by all brokers of a cluster, behind the same interface.

Not the servers: any connect string will do, and zookeeper_server starts some where there are none.
What the parts of this do, and why they are not kazoo's client, is in docs/decisions/0018.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Self

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.metadata_store.errors import NodeExists
from penstock.metadata_store.zookeeper.session import ZooKeeperSession


def _say_nothing(message: str) -> None:
    pass


class ZooKeeperMetadataStore:
    """Owned by the event loop on which it was opened."""

    def __init__(self, config: ZooKeeperConfig, *, report: Callable[[str], None]) -> None:
        self._config = config
        self._report = report
        self._sessions: list[ZooKeeperSession] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls, config: ZooKeeperConfig, *, report: Callable[[str], None] = _say_nothing
    ) -> Self:
        """The node that everything lies below is there afterwards; ConnectionLost."""
        if config.chroot:
            await _ensure_chroot(config)
        return cls(config, report=report)

    async def open_session(self) -> ZooKeeperSession:
        session = ZooKeeperSession(self._config, report=self._report)
        await session.open()
        self._sessions.append(session)
        watcher = asyncio.create_task(self._watch(session), name=f"watch-session-{session.id:#x}")
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return session

    async def close(self) -> None:
        """Sessions end. Raises what had stopped one of them before."""
        await asyncio.gather(*(session.close() for session in self._sessions))
        await asyncio.gather(*self._watchers)
        if not self._failed.done():
            self._failed.set_result(None)
        await self._failed

    async def wait_end(self) -> None:
        """Until it is closed; raises what had stopped it before. The end of a session is none."""
        await asyncio.shield(self._failed)

    async def _watch(self, session: ZooKeeperSession) -> None:
        await session.ended.wait()
        self._sessions.remove(session)
        if session.failure is not None and not self._failed.done():
            self._failed.set_exception(session.failure)


async def _ensure_chroot(config: ZooKeeperConfig) -> None:
    """By a session of its own, that sees what lies above."""
    session = ZooKeeperSession(replace(config, chroot=""), report=_say_nothing)
    await session.open()
    try:
        path = ""
        for name in config.chroot[1:].split("/"):
            path += f"/{name}"
            with suppress(NodeExists):
                await session.create(path)
    finally:
        await session.close()
