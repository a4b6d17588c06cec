"""Joins the transaction coordinator to the rooms beside it: replicas, the cluster's view, the
controller, and the leaders that take its markers.

Only translates; decides nothing about transactions. Owned by the event loop.
"""

import asyncio
from collections.abc import Callable

from penstock.config.cached_config import CachedConfig
from penstock.config.effective_config import EffectiveConfig
from penstock.controller.interface import CreatesTopics
from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.coordinator import TransactionCoordinator
from penstock.coordinators.transaction.dependencies import MarkerChannel
from penstock.model.cluster import TRANSACTIONS_TOPIC, BrokerId, UpdateMetadataRequest
from penstock.model.producer_ids import ProducerIds
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager
from penstock.server.coordinator_leadership import CoordinatorLeadership
from penstock.server.coordinator_log import LoopClock, ReplicatedCoordinatorLog
from penstock.server.prepared_transaction_alarm import PreparedAlarm


class Transactions:
    """The transaction coordinator of this broker, told of what changes around it."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        replicas: ReplicaManager,
        cluster: MetadataCache,
        administration: CreatesTopics,
        producer_ids: ProducerIds,
        markers: MarkerChannel,
        timers: LoopClock,
        settings: Callable[[], EffectiveConfig],
        wall_ms: Callable[[], int],
        report: Callable[[str], None],
    ) -> None:
        self._leading = CoordinatorLeadership(TRANSACTIONS_TOPIC, broker_id, cluster)
        self.coordinator = TransactionCoordinator(
            log=ReplicatedCoordinatorLog(
                TRANSACTIONS_TOPIC,
                replication_factor="transaction.state.log.replication.factor",
                replicas=replicas,
                cluster=cluster,
                administration=administration,
                clock=timers,
                settings=settings,
                report=report,
            ),
            partitions=cluster,
            producer_ids=producer_ids,
            markers=markers,
            timers=timers,
            wall_ms=wall_ms,
            config=CachedConfig(settings, TransactionConfig.from_broker),
            report=report,
        )
        self._alarm = PreparedAlarm(
            self.coordinator, settings=settings, timers=timers, wall_ms=wall_ms, report=report
        )
        cluster.listen(self._on_update)
        self._leading.tell(self.coordinator)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self.coordinator.run(), name="transactions")
        self._alarm.start()

    def stop(self) -> None:
        """Whoever waits for an answer is sent elsewhere; before the server closes."""
        self.coordinator.close()

    def _on_update(self, update: UpdateMetadataRequest) -> None:
        self._leading.tell(self.coordinator)
        self.coordinator.on_leaders_changed()
