"""Requests to the other brokers, on the inter-broker listener.

One connection per broker, opened on first use. Without a response every failure is a
ConnectionError: the request may have been handled or not.
"""

from collections.abc import Callable
from typing import Any, Protocol

from penstock.client.address import Address
from penstock.client.call import Call, PrivateCall
from penstock.client.connection import BrokerConnection, ConnectionLimits
from penstock.client.connection_pool import ConnectionPool, Lane
from penstock.client.deadline import Deadline
from penstock.client.errors import ClientError
from penstock.client.security.config import PLAINTEXT, ClientSecurity
from penstock.model.cluster import BrokerEpoch, BrokerId, BrokerNode
from penstock.model.errors import ErrorCode
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse

CONNECT_TIMEOUT_MS = 5_000


class BrokerCalls(Protocol):
    """Sends Kafka's requests to other brokers."""

    async def call(self, node: BrokerNode, call: Call, *, timeout_ms: int) -> Any:
        """The decoded response; ConnectionError if there is none."""


class PrivateCalls(BrokerCalls, Protocol):
    """Sends private requests, too."""

    async def call_private(
        self,
        node: BrokerNode,
        key: PrivateKey,
        versions: range,
        body: Callable[[int], bytes],
        *,
        timeout_ms: int,
    ) -> PrivateResponse:
        """In the newest version that both brokers support; ConnectionError if there is none."""


class BrokerConnections:
    """Owned by the event loop."""

    def __init__(
        self, *, own_id: BrokerId, listener: str, security: ClientSecurity = PLAINTEXT
    ) -> None:
        self._listener = listener
        self._links = ConnectionPool(
            client_id=f"broker-{own_id}",
            limits=ConnectionLimits(connect_timeout_ms=CONNECT_TIMEOUT_MS),
            security=security,
        )
        self._versions: dict[
            tuple[BrokerId, BrokerEpoch, PrivateKey], int
        ] = {}  # where not our newest

    async def call(self, node: BrokerNode, call: Call, *, timeout_ms: int) -> Any:
        """Send one of Kafka's requests."""
        return await self._call(node, call, timeout_ms)

    async def call_private(
        self,
        node: BrokerNode,
        key: PrivateKey,
        versions: range,
        body: Callable[[int], bytes],
        *,
        timeout_ms: int,
    ) -> PrivateResponse:
        """Send a private request, in the newest version that both brokers support."""
        negotiated = node.id, node.epoch, key
        version = self._versions.get(negotiated, versions[-1])
        response = await self._call(node, PrivateCall(key, version, body(version)), timeout_ms)
        assert isinstance(response, PrivateResponse)
        if response.code is not ErrorCode.UNSUPPORTED_VERSION:
            return response
        common = min(versions[-1], response.last_version)
        if common < max(versions[0], response.first_version) or common == version:
            raise ConnectionError(
                f"broker {node.id} supports {key.title} v{response.first_version} to "
                f"v{response.last_version}, this broker v{versions[0]} to v{versions[-1]}; upgrade "
                f"the older of the two"
            )
        self._versions[negotiated] = common
        return await self.call_private(node, key, versions, body, timeout_ms=timeout_ms)

    async def close(self) -> None:
        await self._links.close()

    async def _call(self, node: BrokerNode, call: Call | PrivateCall, timeout_ms: int) -> Any:
        try:
            connection = await self._connect(node, timeout_ms)
            return await connection.call(call, timeout_ms=timeout_ms)
        except ClientError as error:
            raise ConnectionError(str(error)) from error

    async def _connect(self, node: BrokerNode, timeout_ms: int) -> BrokerConnection:
        endpoint = node.find_endpoint(self._listener)
        if endpoint is None:
            raise ConnectionError(f"broker {node.id} has no listener {self._listener}")
        address = Address(endpoint.host, endpoint.port)
        return await self._links.get(address, Lane.REQUESTS, Deadline(timeout_ms))
