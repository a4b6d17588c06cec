"""Keeps a ZooKeeper session alive: connect, heartbeat, reconnect, expire.

Not the session's requests (`session`). It runs on the event loop only, so that a broker whose loop
is stalled sends no heartbeat and its session expires, as it should.
"""

import asyncio
import math
import random
import ssl
from contextlib import suppress
from typing import NamedTuple, Protocol

from penstock.config.zookeeper import ZooKeeperAddress, ZooKeeperConfig
from penstock.logs.event_logger import EventLogger
from penstock.metadata_store.errors import (
    ConnectionLoss,
    SessionExpired,
    ZooKeeperLoginFailed,
    ZooKeeperNotSecure,
)
from penstock.metadata_store.interface import NO_SESSION
from penstock.metadata_store.zookeeper.client_tls import ZooKeeperTlsContexts
from penstock.metadata_store.zookeeper.connection import Answered, ZooKeeperConnection
from penstock.metadata_store.zookeeper.heartbeat import attempt_timeout_ms, next_beat, pause_ms
from penstock.metadata_store.zookeeper.login import log_in
from penstock.metadata_store.zookeeper.messages import Hello, encode_hello

SHORT_CONNECTION_S = 1.0
_NEW_PASSWORD = bytes(16)


class LinkOwner(Protocol):
    """The session that owns a link; called on the event loop."""

    def on_connected(self) -> None:
        """Connected or reconnected; requests sent in this call go first."""

    def on_suspended(self, reason: str) -> None: ...
    def on_expired(self) -> None: ...
    def on_failed(self, error: Exception) -> None:
        """An unexpected error; the link has stopped."""

    def on_event(self, body: bytes) -> None: ...


class LinkStatistics(NamedTuple):
    server: str  # empty: not connected
    session_timeout_ms: int  # as the servers grant it
    connections: int  # ever established
    unanswered: int


class SessionLink:
    """Owned by one session. `open` once; `run` is then its task until `close`."""

    def __init__(self, config: ZooKeeperConfig, owner: LinkOwner, *, logger: EventLogger) -> None:
        self._config = config
        self._owner = owner
        self._logger = logger
        self._servers = list(config.servers)
        random.shuffle(self._servers)  # so that not all brokers use the first server
        self._next_server = 0
        self._server: ZooKeeperAddress | None = None
        self._connection: ZooKeeperConnection | None = None
        self._connections = 0
        self._last_failure = ""
        tls = config.security.tls
        self._tls = None if tls is None else ZooKeeperTlsContexts(tls)
        self._task: asyncio.Task[None] | None = None
        self.session_id = NO_SESSION
        self.password = _NEW_PASSWORD  # allows reconnecting to the session
        self.session_timeout_ms = config.session_timeout_ms
        self.last_zxid = 0  # of all answers; never moves back
        self._confirmed_ms = -math.inf  # by earlier connections

    async def open(self) -> None:
        """Returns once there is a session; ConnectionLoss on timeout. What a retry would not change
        is raised at once: ZooKeeperNotSecure, ZooKeeperLoginFailed."""
        try:
            async with asyncio.timeout(self._config.connection_timeout_ms / 1000):
                await self._connect()
        except TimeoutError:
            raise ConnectionLoss(
                f"no ZooKeeper answered within {self._config.connection_timeout_ms} ms at "
                f"{', '.join(map(str, self._servers))} (last: {self._last_failure or 'nothing'}); "
                f"start it, or correct zookeeper.connect"
            ) from None
        self._task = asyncio.create_task(self._run(), name=f"zookeeper-{self.session_id:#x}")

    def send(self, kind: int, body: bytes, answered: Answered) -> None:
        """Call it only while there is a connection."""
        assert self._connection is not None
        self._connection.send(kind, body, answered)

    @property
    def unanswered_bytes(self) -> int:
        return 0 if self._connection is None else self._connection.unanswered_bytes

    @property
    def confirmed_ms(self) -> float:
        """When the last request or ping that ZooKeeper answered was sent, on the loop's clock."""
        connection = self._connection
        return self._confirmed_ms if connection is None else connection.confirmed_ms

    def drop(self, reason: str) -> None:
        """Drop the connection, not the session, and reconnect at once."""
        if self._connection is not None:
            self._connection.drop(reason)

    async def close(self) -> None:
        """Close the session at the server, if it can be reached; otherwise it expires."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.send_close(lambda reply: None)
            await _wait(connection.lost, self.session_timeout_ms)
            connection.drop("the session was closed without an answer")

    def abandon(self, reason: str) -> None:
        """Stop without closing; the session expires."""
        if self._task is not None:
            self._task.cancel()
        self.drop(reason)

    def statistics(self) -> LinkStatistics:
        connection = self._connection
        return LinkStatistics(
            server="" if connection is None else str(self._server),
            session_timeout_ms=self.session_timeout_ms,
            connections=self._connections,
            unanswered=0 if connection is None else connection.unanswered,
        )

    # Its task.

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        short_connections = 0  # in a row
        try:
            while True:
                began_s = loop.time()
                if self._connection is not None:
                    await self._heartbeat(self._connection)
                short_connections = (
                    short_connections + 1 if loop.time() - began_s < SHORT_CONNECTION_S else 0
                )
                if short_connections > 1:  # accepted and closed again: back off
                    await _pause(short_connections)
                await self._connect()
        except SessionExpired:
            self._owner.on_expired()
        except Exception as error:
            self._owner.on_failed(error)

    async def _heartbeat(self, connection: ZooKeeperConnection) -> None:
        """Run until the connection is lost. After a stall, data that arrived meanwhile is read
        before the check."""
        loop = asyncio.get_running_loop()
        while not connection.lost.is_set():
            beat = next_beat(
                loop.time() * 1000,
                heard_ms=connection.heard_ms,
                sent_ms=connection.sent_ms,
                session_timeout_ms=self.session_timeout_ms,
            )
            if beat.is_dead:
                connection.drop("ZooKeeper did not answer in time")
                await connection.lost.wait()
            elif beat.is_ping_due:
                connection.ping()
            await _wait(connection.lost, beat.wait_ms)
            await asyncio.sleep(0)

    async def _connect(self) -> None:
        """Retry until connected; SessionExpired if a server says so."""
        rounds = 0
        while True:
            for _ in self._servers:
                if await self._try_connect():
                    return
            await _pause(rounds)
            rounds += 1

    async def _try_connect(self) -> bool:
        server = self._servers[self._next_server]
        self._next_server = (self._next_server + 1) % len(self._servers)
        limit_ms = attempt_timeout_ms(self.session_timeout_ms, servers=len(self._servers))
        connection: ZooKeeperConnection | None = None
        hello: Hello | None = None  # once the session can be used on this connection
        try:
            async with asyncio.timeout(limit_ms / 1000):
                connection = await self._dial(server)
                hello = await self._begin(connection)
        except (OSError, TimeoutError, ZooKeeperNotSecure, ZooKeeperLoginFailed) as error:
            self._note_failure(server, error)
            return False
        finally:
            if connection is not None and hello is None:
                connection.drop("no session was established")
        if not connection.lost.is_set():
            self._adopt(server, connection, hello)
        return self._connection is connection

    async def _begin(self, connection: ZooKeeperConnection) -> Hello:
        hello = await connection.established
        if hello.timeout_ms <= 0:
            connection.drop("the session has expired")
            raise SessionExpired(self.session_id)
        if self._config.security.login is not None:
            await log_in(connection, self._config.security.login)
        return hello

    def _note_failure(self, server: ZooKeeperAddress, error: Exception) -> None:
        """Raises what a retry would not change, unless there was a connection before: then the
        server may be mended while the session lasts."""
        if isinstance(error, ssl.SSLCertVerificationError):
            error = ZooKeeperNotSecure(_describe_certificate(error))
        failure = f"{server}: {str(error) or 'no answer in time'}"
        if isinstance(error, ZooKeeperNotSecure | ZooKeeperLoginFailed):
            if not self._connections:
                raise type(error)(failure)
            if failure != self._last_failure:
                self._logger.warning("session_refused", f"{failure}; trying again")
        self._last_failure = failure

    async def _dial(self, server: ZooKeeperAddress) -> ZooKeeperConnection:
        hello = encode_hello(
            session_id=self.session_id,
            password=self.password,
            timeout_ms=self._config.session_timeout_ms,
            last_zxid=self.last_zxid,
        )
        context = None if self._tls is None else await self._tls.get()
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: ZooKeeperConnection(self, hello),
            server.host,
            server.port,
            ssl=context,
            server_hostname=None if context is None else server.host,
        )
        return connection

    def _adopt(
        self, server: ZooKeeperAddress, connection: ZooKeeperConnection, hello: Hello
    ) -> None:
        self._server, self._connection = server, connection
        self.session_id, self.password = hello.session_id, hello.password
        self.session_timeout_ms = hello.timeout_ms
        self._connections += 1
        if self._connections > 1:
            self._logger.info(
                "session_reconnected",
                f"ZooKeeper session {self.session_id:#x} reconnected to {server}",
            )
        self._owner.on_connected()

    # Called by connections.

    def on_event(self, connection: ZooKeeperConnection, body: bytes) -> None:
        """Whoever has not proved yet that he is ZooKeeper fires no watch."""
        if connection is self._connection:
            self._owner.on_event(body)

    def on_lost(self, connection: ZooKeeperConnection, reason: str) -> None:
        if connection is not self._connection:
            return  # closed, or never adopted
        self._connection = None
        self._confirmed_ms = connection.confirmed_ms
        self._logger.warning(
            "session_disconnected",
            f"ZooKeeper session {self.session_id:#x} lost its connection to {self._server}: "
            f"{reason}; reconnecting",
        )
        self._owner.on_suspended(reason)


def _describe_certificate(error: ssl.SSLCertVerificationError) -> str:
    return (
        f"ZooKeeper's certificate is not accepted ({error.verify_message}): correct it, or "
        "zookeeper.ssl.truststore.location, or the host in zookeeper.connect"
    )


async def _pause(rounds: int) -> None:
    await asyncio.sleep(pause_ms(rounds, chance=random.random()) / 1000)


async def _wait(event: asyncio.Event, limit_ms: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_ms / 1000):
            await event.wait()
