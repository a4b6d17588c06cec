"""Requests to the active controller: on another broker, in this process, or not known yet.

Sends once and retries nothing: the caller decides what a ConnectionError or a Refusal means.
Without a known controller it raises Refusal with NOT_CONTROLLER.
"""

from typing import Any

from penstock.client.call import Call
from penstock.inter_broker.broker_connections import BrokerConnections
from penstock.model.cluster import BrokerId, BrokerNode
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse
from penstock.replication.metadata_cache import MetadataCache


class ControllerClient:
    """Owned by the event loop."""

    def __init__(
        self, own_id: BrokerId, *, metadata: MetadataCache, connections: BrokerConnections
    ) -> None:
        self.own_id = own_id
        self._metadata = metadata
        self._connections = connections

    @property
    def is_here(self) -> bool:
        """This broker is the controller: call it in process instead of through this client."""
        return self._metadata.controller_id == self.own_id

    def find_other(self) -> BrokerNode | None:
        """The controller if it is another broker; None if it is this one or unknown."""
        return None if self.is_here else self._metadata.brokers.get(self._metadata.controller_id)

    async def call(self, call: Call, *, timeout_ms: int) -> Any:
        """Send one of Kafka's requests; the caller checks the response's error codes."""
        return await self._connections.call(self._get_other(), call, timeout_ms=timeout_ms)

    async def call_private(
        self, key: PrivateKey, versions: range, body: bytes, *, timeout_ms: int
    ) -> PrivateResponse:
        """Send a private request, whose body is the same in all versions."""
        response = await self._connections.call_private(
            self._get_other(), key, versions, lambda version: body, timeout_ms=timeout_ms
        )
        if response.code is not ErrorCode.NONE:
            raise Refusal(response.code, response.message)
        return response

    def _get_other(self) -> BrokerNode:
        node = self.find_other()
        if node is None:
            raise Refusal(ErrorCode.NOT_CONTROLLER, "the active controller is not known yet")
        return node
