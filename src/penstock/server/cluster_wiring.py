"""What a broker of several has besides its rooms: ways to the others, and what goes over them.

A single node builds none of it. Only joins parts; the deciding is theirs.
"""

import asyncio
from collections.abc import Callable

from penstock.apis.inter_broker_access import InterBroker
from penstock.controller.controller import Controller
from penstock.inter_broker.alter_partition_client import AlterPartitionClient
from penstock.inter_broker.apis.registry import load_private_api
from penstock.inter_broker.broker_connections import BrokerConnections
from penstock.inter_broker.controlled_shutdown import ControlledShutdown
from penstock.inter_broker.controller_client import ControllerClient
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.inter_broker.failed_replicas_sender import FailedReplicasSender
from penstock.inter_broker.forwarding import ForwardingAdministration
from penstock.inter_broker.local_controller_channel import LocalControllerChannel
from penstock.inter_broker.remote_controller_channel import RemoteControllerChannel
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import Clock, ReplicaManager
from penstock.server.dynamic_config import DynamicBrokerConfig
from penstock.server.lazy_fetchers import LateFetchers


class ClusterWiring:
    """Built before the controller, whose orders go through `channel`; then `join` it."""

    administration: ForwardingAdministration  # from `join` on
    inter_broker: InterBroker

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        orders: ControllerRequestHandler,
        replicas: ReplicaManager,
        cluster: MetadataCache,
        settings: DynamicBrokerConfig,
        listener: str,
        timers: Clock,
        report: Callable[[str], None],
    ) -> None:
        self._broker_id = broker_id
        self._orders = orders
        self._replicas = replicas
        self._cluster = cluster
        self._settings = settings
        self._listener = listener
        self._report = report
        self._peers = BrokerConnections(own_id=broker_id, listener=listener)
        self._fetchers = LateFetchers(
            broker_id,
            replicas=replicas,
            cluster=cluster,
            listener=listener,
            broker_epoch=self._get_broker_epoch,
            timers=timers,
            report=report,
        )
        self._sending: list[asyncio.Task[None]] = []
        self.channel = RemoteControllerChannel(
            broker_id,
            local=LocalControllerChannel(orders),
            connections=self._peers,
            timeout_ms=int(str(settings()["controller.socket.timeout.ms"])),
        )

    def join(self, controller: Controller, tasks: asyncio.TaskGroup) -> None:
        cluster = self._cluster
        to_controller = ControllerClient(self._broker_id, cluster=cluster, peers=self._peers)
        self.administration = ForwardingAdministration(to_controller, local=controller)
        self.inter_broker = InterBroker(
            listener=self._listener,
            membership=controller,
            configs=controller,
            handle_controller_request=self._orders.handle,
            load_api=load_private_api,
        )
        self._leaving = ControlledShutdown(
            to_controller,
            cluster=cluster,
            membership=controller,
            settings=self._settings,
            wait_ms=_sleep_ms,
            report=self._report,
        )
        sender = AlterPartitionClient(
            to_controller,
            membership=controller,
            broker_epoch=self._get_broker_epoch,
            wait_ms=_sleep_ms,
        )
        failures = FailedReplicasSender(
            to_controller,
            membership=controller,
            broker_epoch=self._get_broker_epoch,
            wait_ms=_sleep_ms,
        )
        self._replicas.isr_manager.changes = sender
        self._replicas.listen_for_log_failures(failures.note)
        self._sending = [
            tasks.create_task(sender.run(), name="in-sync-changes"),
            tasks.create_task(failures.run(), name="failed-replicas"),
        ]
        self._fetchers.start(tasks)

    async def hand_over(self) -> None:
        """Before a stop: others lead what this broker led, and do not wait for it any more."""
        await self._leaving.hand_over(self._get_broker_epoch())
        self._fetchers.stop()

    async def close(self) -> None:
        self._fetchers.stop()
        for task in self._sending:
            task.cancel()
        await self._peers.close()

    def _get_broker_epoch(self) -> BrokerEpoch:
        return self._orders.broker_epoch


async def _sleep_ms(duration_ms: int) -> None:
    await asyncio.sleep(duration_ms / 1000)
