"""The additional parts of a broker in a ZooKeeper cluster, with which it reaches other brokers.

Builds the senders and fetchers and ends them; they decide for themselves.
"""

import asyncio

from penstock.apis.inter_broker_access import InterBroker
from penstock.config.cached_config import CachedConfig
from penstock.controller.balancing.balancer import ReadsReplicaSizes
from penstock.controller.controller import Controller
from penstock.controller.interface import Administration, ControllerChannel
from penstock.inter_broker.alter_partition_client import AlterPartitionClient
from penstock.inter_broker.apis.registry import load_private_api
from penstock.inter_broker.broker_connections import BrokerConnections
from penstock.inter_broker.config import InterBrokerConfig
from penstock.inter_broker.controlled_shutdown import ControlledShutdown
from penstock.inter_broker.controller_client import ControllerClient
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.inter_broker.failed_replicas_sender import FailedReplicasSender
from penstock.inter_broker.forwarding import ForwardingAdministration
from penstock.inter_broker.local_controller_channel import LocalControllerChannel
from penstock.inter_broker.refused_batches_sender import RefusedBatchesSender
from penstock.inter_broker.remote_controller_channel import RemoteControllerChannel
from penstock.inter_broker.replica_sizes import ReplicaSizes
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.server.context import BrokerContext
from penstock.server.inter_broker_security import inter_broker_security
from penstock.server.lazy import Lazy


class ClusterMember:
    """The `ClusterLinks` of a broker of a cluster. Owned by the event loop."""

    administration: Administration  # from `join` on
    inter_broker: InterBroker | None
    serves_brokers_before_registration = True

    def __init__(
        self, context: BrokerContext, *, handler: ControllerRequestHandler, listener: str
    ) -> None:
        self._context = context
        self._handler = handler
        self._listener = listener
        self._security = inter_broker_security(context.config())
        self._config = CachedConfig(context.config, InterBrokerConfig.from_broker)
        self._opened: list[BrokerConnections] = []
        self._connections = self.open_connections()
        self._senders: list[asyncio.Task[None]] = []
        self._fetchers: Lazy[asyncio.Task[None]] = Lazy(self._start_fetchers)
        self.channel: ControllerChannel = RemoteControllerChannel(
            context.broker_id,
            local=LocalControllerChannel(handler),
            connections=self._connections,
            timeout_ms=self._config().controller_socket_timeout_ms,
        )
        self.replica_sizes: ReadsReplicaSizes = ReplicaSizes(self._connections)

    def open_connections(self) -> BrokerConnections:
        connections = BrokerConnections(
            own_id=self._context.broker_id, listener=self._listener, security=self._security
        )
        self._opened.append(connections)
        return connections

    def join(self, controller: Controller) -> None:
        context, config = self._context, self._config
        client = ControllerClient(
            context.broker_id, metadata=context.metadata, connections=self._connections
        )
        self.administration = ForwardingAdministration(client, local=controller)
        self.inter_broker = InterBroker(
            listener=self._listener,
            membership=controller,
            configs=controller,
            handle_controller_request=self._handler.handle,
            load_api=load_private_api,
        )
        self._shutdown = ControlledShutdown(
            client,
            metadata=context.metadata,
            membership=controller,
            config=config,
            wait_ms=_sleep_ms,
            logger=context.get_logger("inter_broker"),
        )
        self._start_senders(client, controller)
        self._watch_leaders()

    def _start_senders(self, client: ControllerClient, controller: Controller) -> None:
        isr_changes = AlterPartitionClient(
            client, membership=controller, broker_epoch=self._broker_epoch, wait_ms=_sleep_ms
        )
        failures = FailedReplicasSender(
            client, membership=controller, broker_epoch=self._broker_epoch, wait_ms=_sleep_ms
        )
        damages = FailedReplicasSender(
            client,
            membership=controller,
            broker_epoch=self._broker_epoch,
            wait_ms=_sleep_ms,
            is_damaged=True,
        )
        refusals = RefusedBatchesSender(
            self._context.broker_id,
            metadata=self._context.metadata,
            connections=self._connections,
        )
        replicas = self._context.replicas
        replicas.isr_manager.sender = isr_changes
        replicas.listen_for_log_failures(failures.add)
        replicas.listen_for_damage(damages.add)
        replicas.follower_state.on_refused = refusals.add
        tasks = self._context.tasks
        self._senders = [
            tasks.create_task(isr_changes.run(), name="alter-partition"),
            tasks.create_task(failures.run(), name="failed-replicas"),
            tasks.create_task(damages.run(), name="damaged-leaders"),
            tasks.create_task(refusals.run(), name="refused-batches"),
        ]

    def _watch_leaders(self) -> None:
        """The first partition that follows a leader builds the fetchers."""
        follower_state = self._context.replicas.follower_state
        follower_state.on_news = self._on_leader
        for leader in follower_state.leaders[:1]:
            self._on_leader(leader)

    def _on_leader(self, leader: BrokerId) -> None:
        self._fetchers.get()

    def _start_fetchers(self) -> asyncio.Task[None]:
        from penstock.server.replica_fetchers import start_replica_fetchers

        return start_replica_fetchers(
            self._context,
            listener=self._listener,
            security=self._security,
            broker_epoch=self._broker_epoch,
        )

    async def shut_down_controlled(self) -> None:
        await self._shutdown.run(self._broker_epoch())
        self._stop_fetchers()

    async def close(self) -> None:
        self._stop_fetchers()
        for task in self._senders:
            task.cancel()
        for connections in self._opened:
            await connections.close()

    def _stop_fetchers(self) -> None:
        self._context.replicas.follower_state.on_news = lambda leader: None
        task = self._fetchers.find()
        if task is not None:
            task.cancel()

    def _broker_epoch(self) -> BrokerEpoch:
        return self._handler.broker_epoch


async def _sleep_ms(duration_ms: int) -> None:
    await asyncio.sleep(duration_ms / 1000)
