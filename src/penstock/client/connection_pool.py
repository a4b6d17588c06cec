"""A client's connections, one per address and lane, opened on demand and reopened after a failure.

Invariant: an address that does not answer is tried at most once per back-off, however many callers
wait.
"""

import asyncio
import enum
import time
from collections.abc import Collection
from typing import NamedTuple

from penstock.client.address import Address
from penstock.client.connection import BrokerConnection, ConnectionLimits
from penstock.client.deadline import Deadline, backoff_ms
from penstock.client.errors import AuthenticationFailed, ClientClosed, ConnectFailed
from penstock.client.security.authenticator import Authenticator
from penstock.client.security.config import PLAINTEXT, ClientSecurity

_FIRST_BACKOFF_MS = 50
_MOST_BACKOFF_MS = 1_000


class Lane(enum.Enum):
    """A broker answers a connection in order, so long polls get a connection of their own."""

    REQUESTS = enum.auto()
    FETCHES = enum.auto()


class _Key(NamedTuple):
    address: Address
    lane: Lane


class _Link:
    """One slot of the pool; only `ConnectionPool` touches it."""

    __slots__ = ("connection", "failures", "lock", "not_before")

    def __init__(self) -> None:
        self.connection: BrokerConnection | None = None
        self.failures = 0  # in a row
        self.not_before = 0.0  # monotonic: no attempt earlier
        self.lock = asyncio.Lock()


class ConnectionPool:
    def __init__(
        self, *, client_id: str, limits: ConnectionLimits, security: ClientSecurity = PLAINTEXT
    ) -> None:
        self._client_id = client_id
        self._limits = limits
        self._authenticator = Authenticator(security)
        self._links: dict[_Key, _Link] = {}
        self._is_closed = False

    async def get(self, address: Address, lane: Lane, deadline: Deadline) -> BrokerConnection:
        """An open connection, or ConnectFailed."""
        link = self._links.setdefault(_Key(address, lane), _Link())
        try:
            async with asyncio.timeout(deadline.left_ms / 1000):
                async with link.lock:
                    return await self._get_open(address, link)
        except TimeoutError:
            raise ConnectFailed(address, "no connection within the timeout") from None

    async def _get_open(self, address: Address, link: _Link) -> BrokerConnection:
        self._check_open()
        if link.connection is not None and link.connection.is_open:
            return link.connection
        await asyncio.sleep(max(0.0, link.not_before - time.monotonic()))
        self._check_open()
        try:
            connection = await BrokerConnection.open(
                address,
                client_id=self._client_id,
                limits=self._limits,
                authenticator=self._authenticator,
            )
        except (ConnectFailed, AuthenticationFailed):
            link.failures += 1
            wait_ms = backoff_ms(
                link.failures, first_ms=_FIRST_BACKOFF_MS, most_ms=_MOST_BACKOFF_MS
            )
            link.not_before = time.monotonic() + wait_ms / 1000
            raise
        if self._is_closed:
            await connection.close()
        self._check_open()
        link.connection, link.failures = connection, 0
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the client is closed")

    def keep_only(self, addresses: Collection[Address]) -> None:
        """Close connections to brokers that have left the cluster."""
        for key in [key for key in self._links if key.address not in addresses]:
            link = self._links.pop(key)
            if link.connection is not None:
                link.connection.abort()

    async def close(self) -> None:
        self._is_closed = True
        links, self._links = self._links, {}
        for link in links.values():
            if link.connection is not None:
                link.connection.abort(ClientClosed("the client was closed during this request"))
                await link.connection.close()
