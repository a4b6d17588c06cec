"""Requests to the other brokers, on the listener that brokers use among themselves.

One connection a broker, opened when it is needed. Whatever keeps an answer from coming is a
ConnectionError: what was asked may have been done or not.
"""

from collections.abc import Callable
from typing import Any, Protocol

from penstock.client.address import Address
from penstock.client.call import Call, PrivateCall
from penstock.client.connection import BrokerConnection, ConnectionLimits
from penstock.client.connection_pool import ConnectionPool, Lane
from penstock.client.deadline import Deadline
from penstock.client.errors import ClientError
from penstock.model.cluster import BrokerEpoch, BrokerId, BrokerNode
from penstock.model.errors import ErrorCode
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse

CONNECT_TIMEOUT_MS = 5_000


class BrokerCalls(Protocol):
    """Sends Kafka's requests to other brokers."""

    async def call(self, node: BrokerNode, call: Call, *, timeout_ms: int) -> Any:
        """The decoded response; ConnectionError if there is none."""


class BrokerConnections:
    """Owned by the event loop."""

    def __init__(self, *, own_id: BrokerId, listener: str) -> None:
        self._listener = listener
        self._links = ConnectionPool(
            client_id=f"broker-{own_id}",
            limits=ConnectionLimits(connect_timeout_ms=CONNECT_TIMEOUT_MS),
        )
        self._versions: dict[tuple[BrokerId, BrokerEpoch, PrivateKey], int] = {}  # where not ours

    async def call(self, node: BrokerNode, call: Call, *, timeout_ms: int) -> Any:
        """One of Kafka's requests."""
        return await self._call(node, call, timeout_ms)

    async def ask(
        self,
        node: BrokerNode,
        key: PrivateKey,
        versions: range,
        body: Callable[[int], bytes],
        *,
        timeout_ms: int,
    ) -> PrivateResponse:
        """One of our own requests, in the newest version that both know."""
        place = node.id, node.epoch, key
        version = self._versions.get(place, versions[-1])
        answer = await self._call(node, PrivateCall(key, version, body(version)), timeout_ms)
        assert isinstance(answer, PrivateResponse)
        if answer.code is not ErrorCode.UNSUPPORTED_VERSION:
            return answer
        common = min(versions[-1], answer.last_version)
        if common < max(versions[0], answer.first_version) or common == version:
            raise ConnectionError(
                f"broker {node.id} knows {key.title} in versions {answer.first_version} to "
                f"{answer.last_version}, this one in {versions[0]} to {versions[-1]}; upgrade the "
                f"older of the two"
            )
        self._versions[place] = common
        return await self.ask(node, key, versions, body, timeout_ms=timeout_ms)

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
