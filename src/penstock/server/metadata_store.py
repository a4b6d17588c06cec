"""The broker's metadata store: ZooKeeper if `zookeeper.connect` names one, else the embedded one.

Holds the store and the broker's session. Retries here are for start-up only; a running broker's
callers decide for themselves how long to wait.
"""

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Any, TypeVar

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.config.zookeeper_security import ZooKeeperSecurity
from penstock.io.disk import Disk
from penstock.logs.event_logger import EventLogger
from penstock.metadata_store.interface import MetadataStore, Session
from penstock.metadata_store.session_statistics import SessionCounters, SessionStatistics
from penstock.model.histogram import NO_DURATIONS, DurationHistogram
from penstock.server.current_session import CurrentSession
from penstock.server.startup_retry import retry_at_startup

EMBEDDED_FOLDER = ".coordination"  # in the first log directory

Answer = TypeVar("Answer")


class BrokerMetadataStore:
    """Owned by the event loop; `close` at a clean stop."""

    def __init__(self, store: MetadataStore, session: Session, *, startup_timeout_ms: int) -> None:
        self.store = store
        self.session = CurrentSession(session)
        self.startup_timeout_ms = startup_timeout_ms  # 0: the embedded store does not come back
        self.counters = SessionCounters()

    def statistics(self) -> SessionStatistics:
        latency = getattr(self.store, "latency", None)  # the embedded store has none
        return self.counters.statistics(
            latency.snapshot() if isinstance(latency, DurationHistogram) else NO_DURATIONS
        )

    async def ask_at_startup(self, ask: Callable[[Session], Awaitable[Answer]]) -> Answer:
        """`ask` may run twice: it is retried when the connection or the session is lost."""
        return await retry_at_startup(
            lambda: ask(self.session), self._open_session, timeout_ms=self.startup_timeout_ms
        )

    async def _open_session(self) -> None:
        self.session.current = await self.store.open_session()

    async def close(self) -> None:
        await self.session.close()
        await self.store.close()


async def open_broker_store(
    config: Mapping[str, Any],
    *,
    disk: Disk,
    directory: str,
    executor: Executor,
    logger: EventLogger,
) -> BrokerMetadataStore:
    """MetadataStoreError if it cannot be opened; the message says what to do."""
    zookeeper = find_zookeeper(config)
    store: MetadataStore
    if zookeeper is not None:
        # Imported here because a single broker needs none of it.
        from penstock.metadata_store.zookeeper.store import ZooKeeperMetadataStore

        store = await ZooKeeperMetadataStore.open(zookeeper, logger=logger)
    else:
        from penstock.metadata_store.embedded.store import EmbeddedMetadataStore

        store = await EmbeddedMetadataStore.open(
            disk, f"{directory}/{EMBEDDED_FOLDER}", executor=executor, logger=logger
        )
    return BrokerMetadataStore(
        store,
        await store.open_session(),
        startup_timeout_ms=0 if zookeeper is None else zookeeper.session_timeout_ms,
    )


def find_zookeeper(config: Mapping[str, Any]) -> ZooKeeperConfig | None:
    """None for a single broker with the embedded store."""
    connect = config["zookeeper.connect"]
    if not connect:
        return None
    return ZooKeeperConfig.parse(
        connect,
        session_timeout_ms=config["zookeeper.session.timeout.ms"],
        connection_timeout_ms=config["zookeeper.connection.timeout.ms"],
        security=ZooKeeperSecurity.from_settings(config),
    )
