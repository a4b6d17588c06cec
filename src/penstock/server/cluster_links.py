"""A broker's links to the other brokers of its cluster, and their absence on a single broker.

`cluster_member` has the implementation for clusters; a single broker does not import it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.apis.inter_broker_access import InterBroker
from penstock.controller.balancing.balancer import NoReplicaSizes, ReadsReplicaSizes
from penstock.controller.controller import Controller
from penstock.controller.interface import Administration, ControllerChannel
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.inter_broker.local_controller_channel import LocalControllerChannel
from penstock.model.cluster import BrokerNode
from penstock.protocol.private_keys import PrivateKey
from penstock.server.addresses import inter_broker_listener
from penstock.server.config import ServerConfig
from penstock.server.context import BrokerContext

if TYPE_CHECKING:
    from penstock.client.call import Call
    from penstock.inter_broker.broker_connections import PrivateCalls
    from penstock.protocol.private_response import PrivateResponse


class ClusterLinks(Protocol):
    """Built before the controller, which sends through `channel`; then `join` it.

    `administration` and `inter_broker` exist from `join` on.
    """

    @property
    def channel(self) -> ControllerChannel: ...

    @property
    def replica_sizes(self) -> ReadsReplicaSizes: ...

    @property
    def administration(self) -> Administration: ...

    @property
    def inter_broker(self) -> InterBroker | None:
        """None: this broker serves no requests of other brokers."""

    @property
    def serves_brokers_before_registration(self) -> bool:
        """A controller on another broker sends requests as soon as it sees the registration."""

    def join(self, controller: Controller) -> None: ...

    def open_connections(self) -> "PrivateCalls":
        """Connections of the caller's own to the other brokers, until `close`.

        Responses that wait for replicas delay the requests behind them, so that markers and
        verification do not share connections with controller requests and AlterPartition.
        """

    async def shut_down_controlled(self) -> None:
        """Move the leaderships of this broker to other brokers before a clean stop."""

    async def close(self) -> None: ...


def build_cluster_links(context: BrokerContext, handler: ControllerRequestHandler) -> ClusterLinks:
    if not ServerConfig.from_broker(context.config()).is_clustered:
        return SingleBroker(handler)
    from penstock.server.cluster_member import ClusterMember

    return ClusterMember(context, handler=handler, listener=inter_broker_listener(context.config()))


class SingleBroker:
    """The ClusterLinks of a broker that is its whole cluster."""

    administration: Administration
    inter_broker: InterBroker | None = None
    serves_brokers_before_registration = False
    replica_sizes: ReadsReplicaSizes = NoReplicaSizes()

    def __init__(self, handler: ControllerRequestHandler) -> None:
        self.channel: ControllerChannel = LocalControllerChannel(handler)

    def join(self, controller: Controller) -> None:
        self.administration = controller

    def open_connections(self) -> "PrivateCalls":
        return _NoBrokers()

    async def shut_down_controlled(self) -> None:
        return

    async def close(self) -> None:
        return


class _NoBrokers:
    async def call(self, node: BrokerNode, call: "Call", *, timeout_ms: int) -> Any:
        raise ConnectionError(f"broker {node.id} is not in this process")

    async def call_private(
        self,
        node: BrokerNode,
        key: PrivateKey,
        versions: range,
        body: Callable[[int], bytes],
        *,
        timeout_ms: int,
    ) -> "PrivateResponse":
        raise ConnectionError(f"broker {node.id} is not in this process")
