"""The controller's orders to the broker in its own process: applied in one step, no network."""

import asyncio
from collections.abc import Callable

from penstock.broker.settings import BrokerSettings
from penstock.model.cluster import BrokerId, LeadAndFollow, MetadataUpdate, Order, StopReplicas
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.replication.cluster_view import ClusterView
from penstock.replication.replicas import Replicas


class LocalChannel:
    """A `controller.BrokerChannel` that knows this broker only."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        replicas: Replicas,
        cluster: ClusterView,
        settings: BrokerSettings,
        report: Callable[[str], None],
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._cluster = cluster
        self._settings = settings
        self._report = report

    async def send(self, broker: BrokerId, order: Order) -> None:
        if broker != self._broker_id:
            raise ConnectionError(f"broker {broker} is not in this process")
        await asyncio.sleep(0)  # orders follow each other: clients have their turn in between
        if isinstance(order, LeadAndFollow):
            self._tell_failures("take up", self._replicas.apply(order))
        elif isinstance(order, StopReplicas):
            self._tell_failures("stop", self._replicas.stop(order))
        else:
            self._update(order)

    def _update(self, update: MetadataUpdate) -> None:
        if update.broker_configs is not None and self._settings.take_dynamic(update.broker_configs):
            self._replicas.reconfigure_all()
        self._cluster.apply(update)

    def _tell_failures(self, verb: str, answers: dict[TopicPartition, ErrorCode]) -> None:
        """Such a partition answers its clients with the error; the operator hears of it here."""
        for partition, code in answers.items():
            if code is not ErrorCode.NONE:
                self._report(f"could not {verb} {partition}: {code.name}")
