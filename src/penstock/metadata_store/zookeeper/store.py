"""The metadata store on ZooKeeper, shared by all brokers of a cluster.

Not the servers: any connect string will do, and `server` starts some if there are none.
docs/decisions/0018 says what the modules of this package do, and why they are not kazoo's client.
"""

import asyncio
from contextlib import suppress
from typing import Self

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.logs.event_logger import NO_LOGGER, EventLogger
from penstock.metadata_store.errors import NodeExists
from penstock.metadata_store.zookeeper.session import ZooKeeperSession
from penstock.metadata_store.zookeeper.znode_access import CONSUMERS
from penstock.model.histogram import DurationHistogram


class ZooKeeperMetadataStore:
    """Owned by the event loop on which it was opened."""

    def __init__(self, config: ZooKeeperConfig, *, logger: EventLogger) -> None:
        self._config = config
        self._logger = logger
        self.latency = DurationHistogram()  # of the requests of all sessions
        self._sessions: list[ZooKeeperSession] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, config: ZooKeeperConfig, *, logger: EventLogger = NO_LOGGER) -> Self:
        """Creates the chroot if it is missing, and what strangers could not create once znodes have
        ACLs. ConnectionLoss, ZooKeeperNotSecure, ZooKeeperLoginFailed."""
        if config.chroot:
            await _ensure_path(config._replace(chroot=""), config.chroot)
        if config.security.sets_acls:
            await _ensure_path(config, CONSUMERS)
        return cls(config, logger=logger)

    async def open_session(self) -> ZooKeeperSession:
        session = ZooKeeperSession(self._config, logger=self._logger, latency=self.latency)
        await session.open()
        self._sessions.append(session)
        watcher = asyncio.create_task(self._watch(session), name=f"watch-session-{session.id:#x}")
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return session

    async def close(self) -> None:
        """End all sessions. Raises the error that stopped one of them."""
        await asyncio.gather(*(session.close() for session in self._sessions))
        await asyncio.gather(*self._watchers)
        if not self._failed.done():
            self._failed.set_result(None)
        await self._failed

    async def wait_end(self) -> None:
        """Wait until it is closed; raises the error that stopped it, not an expired session."""
        await asyncio.shield(self._failed)

    async def _watch(self, session: ZooKeeperSession) -> None:
        await session.ended.wait()
        self._sessions.remove(session)
        if session.failure is not None and not self._failed.done():
            self._failed.set_exception(session.failure)


async def _ensure_path(config: ZooKeeperConfig, wanted: str) -> None:
    """Create a znode and its parents in a session of its own."""
    session = ZooKeeperSession(config, logger=NO_LOGGER)
    await session.open()
    try:
        path = ""
        for name in wanted[1:].split("/"):
            path += f"/{name}"
            if await session.exists(path) is None:
                with suppress(NodeExists):
                    await session.create(path)
    finally:
        await session.close()
