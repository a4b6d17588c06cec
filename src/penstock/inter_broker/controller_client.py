"""The way from a broker to the controller, which may be here or elsewhere, or known to nobody yet.

Asks once and repeats nothing: what a ConnectionError or a Refusal means is the caller's to say.
Where nobody is known to be the controller, that is a Refusal with NOT_CONTROLLER.
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
        self, own_id: BrokerId, *, cluster: MetadataCache, peers: BrokerConnections
    ) -> None:
        self.own_id = own_id
        self._cluster = cluster
        self._peers = peers

    @property
    def is_here(self) -> bool:
        """Then it is asked in process, and not through this."""
        return self._cluster.controller_id == self.own_id

    def find_other(self) -> BrokerNode | None:
        """The controller, where it is not here; None also where none is known."""
        return None if self.is_here else self._cluster.brokers.get(self._cluster.controller_id)

    async def call(self, call: Call, *, timeout_ms: int) -> Any:
        """One of Kafka's requests; what its answer says is the caller's to read."""
        return await self._peers.call(self._get_other(), call, timeout_ms=timeout_ms)

    async def ask(
        self, key: PrivateKey, versions: range, body: bytes, *, timeout_ms: int
    ) -> PrivateResponse:
        """One of our own requests, whose body is the same in all versions."""
        answer = await self._peers.ask(
            self._get_other(), key, versions, lambda version: body, timeout_ms=timeout_ms
        )
        if answer.code is not ErrorCode.NONE:
            raise Refusal(answer.code, answer.message)
        return answer

    def _get_other(self) -> BrokerNode:
        node = self.find_other()
        if node is None:
            raise Refusal(ErrorCode.NOT_CONTROLLER, "no controller is known")
        return node
