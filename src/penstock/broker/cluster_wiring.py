"""What a broker of several has besides its rooms: ways to the others, and what goes over them.

A single node builds none of it. Only joins parts; the deciding is theirs.
"""

import asyncio
from collections.abc import Callable

from penstock.broker.failure_sender import FailureSender
from penstock.broker.forwarding import ForwardingAdministration
from penstock.broker.in_sync_sender import InSyncSender
from penstock.broker.late_fetchers import LateFetchers
from penstock.broker.leaving import Leaving
from penstock.broker.local_channel import LocalChannel
from penstock.broker.order_taker import OrderTaker
from penstock.broker.peers import Peers
from penstock.broker.remote_channel import RemoteChannel
from penstock.broker.settings import BrokerSettings
from penstock.broker.to_controller import ToController
from penstock.controller.controller import Controller
from penstock.handlers.inter_broker import InterBroker
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.replication.metadata_cache import ClusterView
from penstock.replication.replica_manager import Clock, Replicas


class ClusterWiring:
    """Built before the controller, whose orders go through `channel`; then `join` it."""

    administration: ForwardingAdministration  # from `join` on
    inter_broker: InterBroker

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        orders: OrderTaker,
        replicas: Replicas,
        cluster: ClusterView,
        settings: BrokerSettings,
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
        self._peers = Peers(own_id=broker_id, listener=listener)
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
        self.channel = RemoteChannel(
            broker_id,
            local=LocalChannel(orders),
            peers=self._peers,
            timeout_ms=int(str(settings()["controller.socket.timeout.ms"])),
        )

    def join(self, controller: Controller, tasks: asyncio.TaskGroup) -> None:
        cluster = self._cluster
        to_controller = ToController(self._broker_id, cluster=cluster, peers=self._peers)
        self.administration = ForwardingAdministration(to_controller, local=controller)
        self.inter_broker = InterBroker(
            listener=self._listener,
            membership=controller,
            configs=controller,
            take_order=self._orders.take,
        )
        self._leaving = Leaving(
            to_controller,
            cluster=cluster,
            membership=controller,
            settings=self._settings,
            wait_ms=_sleep_ms,
            report=self._report,
        )
        sender = InSyncSender(
            to_controller,
            membership=controller,
            broker_epoch=self._get_broker_epoch,
            wait_ms=_sleep_ms,
        )
        failures = FailureSender(
            to_controller,
            membership=controller,
            broker_epoch=self._get_broker_epoch,
            wait_ms=_sleep_ms,
        )
        self._replicas.in_sync.changes = sender
        self._replicas.tell_failures(failures.note)
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
