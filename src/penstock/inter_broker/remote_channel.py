"""The controller's orders to other brokers, over the network; to its own broker, in process.

An order is answered when it is applied. What a broker refuses because another controller or another
life of it came since is a Refusal; whatever else keeps it from being applied is tried again.
"""

from penstock.inter_broker.broker_connections import BrokerConnections
from penstock.inter_broker.local_channel import LocalChannel
from penstock.model.cluster import BrokerId, BrokerNode, ControllerRequest
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.controller_messages import ORDER_VERSIONS, encode_order
from penstock.protocol.private_keys import PrivateKey

_FINAL = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)


class RemoteChannel:
    """A `controller.BrokerChannel` to all brokers of a cluster."""

    def __init__(
        self, own_id: BrokerId, *, local: LocalChannel, peers: BrokerConnections, timeout_ms: int
    ) -> None:
        self._own_id = own_id
        self._local = local
        self._peers = peers
        self._timeout_ms = timeout_ms

    async def send(self, node: BrokerNode, sent: ControllerRequest) -> None:
        if node.id == self._own_id:
            await self._local.send(node, sent)
            return
        encoded = encode_order(sent)
        answer = await self._peers.ask(
            node,
            PrivateKey.BROKER_ORDER,
            ORDER_VERSIONS,
            lambda version: encoded,
            timeout_ms=self._timeout_ms,
        )
        if answer.code in _FINAL:
            raise Refusal(answer.code, answer.message)
        if answer.code is not ErrorCode.NONE:
            raise ConnectionError(f"{answer.code.name}: {answer.message}")
