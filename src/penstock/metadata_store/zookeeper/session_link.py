"""A session's standing with ZooKeeper: connect, beat, lose, connect again, end.

Not what is asked over it (zookeeper_session). It runs on the event loop and nowhere else: a broker
whose loop is stalled sends no beat, and ZooKeeper takes it for dead as it should.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from penstock.config.zookeeper import ZooKeeperAddress, ZooKeeperConfig
from penstock.metadata_store.errors import ConnectionLoss, SessionExpired
from penstock.metadata_store.interface import NO_SESSION
from penstock.metadata_store.zookeeper.connection import Answered, ZooKeeperConnection
from penstock.metadata_store.zookeeper.heartbeat import attempt_timeout_ms, next_beat, pause_ms
from penstock.metadata_store.zookeeper.messages import Hello, encode_hello

SHORT_LIFE_S = 1.0  # of a connection
_NEW_PASSWORD = bytes(16)

Report = Callable[[str], None]


class LinkOwner(Protocol):
    """Who has the link; called on the event loop."""

    def on_connected(self) -> None:
        """The session is new, or back: what is sent in this call is sent first."""

    def on_suspended(self, reason: str) -> None: ...
    def on_expired(self) -> None: ...
    def on_failed(self, error: Exception) -> None:
        """An error that nobody foresaw: nothing is sent or heard any more."""

    def on_event(self, body: bytes) -> None: ...


class LinkStatistics(NamedTuple):
    server: str  # empty: none at the moment
    session_timeout_ms: int  # as the servers grant it
    connections: int  # ever established
    unanswered: int


class SessionLink:
    """Owned by one session. `open` once; `run` is then its task until `close`."""

    def __init__(self, config: ZooKeeperConfig, keeper: LinkOwner, *, report: Report) -> None:
        self._config = config
        self._keeper = keeper
        self._report = report
        self._servers = list(config.servers)
        random.shuffle(self._servers)  # or all brokers would lean on the first
        self._next_server = 0
        self._server: ZooKeeperAddress | None = None
        self._connection: ZooKeeperConnection | None = None
        self._connections = 0
        self._last_failure = ""
        self._task: asyncio.Task[None] | None = None
        self.session_id = NO_SESSION
        self.password = _NEW_PASSWORD  # who has it can take the session over
        self.session_timeout_ms = config.session_timeout_ms
        self.last_zxid = 0  # of all answers; never moves back

    async def open(self) -> None:
        """Returns when there is a session; ConnectionLost when there is none in time."""
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
        """Only while there is a connection."""
        assert self._connection is not None
        self._connection.send(kind, body, answered)

    @property
    def unanswered_bytes(self) -> int:
        return 0 if self._connection is None else self._connection.unanswered_bytes

    def drop(self, reason: str) -> None:
        """Give up the connection, not the session: another one is sought at once."""
        if self._connection is not None:
            self._connection.drop(reason)

    async def close(self) -> None:
        """End the session at the server too, if one can be reached; it would expire otherwise."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.send_close(lambda reply: None)
            await _wait(connection.lost, self.session_timeout_ms)
            connection.drop("the session was closed without an answer")

    def abandon(self, reason: str) -> None:
        """Send and hear nothing any more; the session expires."""
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

    # Of its task.

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        short_lives = 0  # in a row
        try:
            while True:
                began_s = loop.time()
                if self._connection is not None:
                    await self._beat(self._connection)
                short_lives = short_lives + 1 if loop.time() - began_s < SHORT_LIFE_S else 0
                if short_lives > 1:  # taken and closed again: not so fast
                    await _pause(short_lives)
                await self._connect()
        except SessionExpired:
            self._keeper.on_expired()
        except Exception as error:
            self._keeper.on_failed(error)

    async def _beat(self, connection: ZooKeeperConnection) -> None:
        """Until it is lost. After a stall, what has come meanwhile is heard before judging."""
        loop = asyncio.get_running_loop()
        while not connection.lost.is_set():
            beat = next_beat(
                loop.time() * 1000,
                heard_ms=connection.heard_ms,
                sent_ms=connection.sent_ms,
                session_timeout_ms=self.session_timeout_ms,
            )
            if beat.is_dead:
                connection.drop("nothing was heard from ZooKeeper for too long")
                await connection.lost.wait()
            elif beat.is_ping_due:
                connection.ping()
            await _wait(connection.lost, beat.wait_ms)
            await asyncio.sleep(0)

    async def _connect(self) -> None:
        """For as long as it takes; SessionExpired when a server says that it is over."""
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
        try:
            async with asyncio.timeout(limit_ms / 1000):
                connection = await self._dial(server)
                hello = await connection.established
        except (OSError, TimeoutError) as error:
            self._last_failure = f"{server}: {error or 'no answer in time'}"
            return False
        finally:
            if connection is not None and not _is_established(connection):
                connection.drop("no session came of it")
        if hello.timeout_ms <= 0:
            connection.drop("the session has expired")
            raise SessionExpired(self.session_id)
        if not connection.lost.is_set():
            self._adopt(server, connection, hello)
        return self._connection is connection

    async def _dial(self, server: ZooKeeperAddress) -> ZooKeeperConnection:
        hello = encode_hello(
            session_id=self.session_id,
            password=self.password,
            timeout_ms=self._config.session_timeout_ms,
            last_zxid=self.last_zxid,
        )
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: ZooKeeperConnection(self, hello), server.host, server.port
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
            self._report(f"ZooKeeper session {self.session_id:#x} is back, at {server}")
        self._keeper.on_connected()

    # Called by connections.

    def on_event(self, body: bytes) -> None:
        self._keeper.on_event(body)

    def on_lost(self, connection: ZooKeeperConnection, reason: str) -> None:
        if connection is not self._connection:
            return  # closed, or never adopted
        self._connection = None
        self._report(
            f"ZooKeeper session {self.session_id:#x} lost its connection to {self._server}: "
            f"{reason}; looking for another"
        )
        self._keeper.on_suspended(reason)


def _is_established(connection: ZooKeeperConnection) -> bool:
    established = connection.established
    return established.done() and not established.cancelled() and established.exception() is None


async def _pause(rounds: int) -> None:
    await asyncio.sleep(pause_ms(rounds, chance=random.random()) / 1000)


async def _wait(event: asyncio.Event, limit_ms: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_ms / 1000):
            await event.wait()
