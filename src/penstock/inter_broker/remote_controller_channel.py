"""Sends the controller's requests to the brokers of a cluster; to its own broker in process.

A request is answered once it is applied. A stale controller or broker epoch is a Refusal, which is
final; any other failure is a ConnectionError, and the ControllerChannelManager retries.
"""

from penstock.inter_broker.broker_connections import BrokerConnections
from penstock.inter_broker.local_controller_channel import LocalControllerChannel
from penstock.inter_broker.messages.controller_request import (
    CONTROLLER_REQUEST_VERSIONS,
    encode_controller_request,
)
from penstock.inter_broker.update_parts import split_request
from penstock.model.cluster import BrokerId, BrokerNode, ControllerRequest
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_keys import PrivateKey

_FINAL = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)


class RemoteControllerChannel:
    """A `controller.ControllerChannel` to all brokers of a cluster."""

    def __init__(
        self,
        own_id: BrokerId,
        *,
        local: LocalControllerChannel,
        connections: BrokerConnections,
        timeout_ms: int,
    ) -> None:
        self._own_id = own_id
        self._local = local
        self._connections = connections
        self._timeout_ms = timeout_ms

    async def send(self, node: BrokerNode, request: ControllerRequest) -> None:
        if node.id == self._own_id:
            await self._local.send(node, request)
            return
        for part in split_request(request):
            await self._send_part(node, encode_controller_request(part))

    async def _send_part(self, node: BrokerNode, encoded: bytes) -> None:
        response = await self._connections.call_private(
            node,
            PrivateKey.CONTROLLER_REQUEST,
            CONTROLLER_REQUEST_VERSIONS,
            lambda version: encoded,
            timeout_ms=self._timeout_ms,
        )
        if response.code in _FINAL:
            raise Refusal(response.code, response.message)
        if response.code is not ErrorCode.NONE:
            raise ConnectionError(f"{response.code.name}: {response.message}")
