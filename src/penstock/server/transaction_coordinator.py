"""Builds the transaction coordinator and keeps it informed of metadata changes.

Only translates; decides nothing about transactions. Owned by the event loop.
"""

from penstock.config.cached_config import CachedConfig
from penstock.controller.interface import CreatesTopics
from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.coordinator import TransactionCoordinator
from penstock.coordinators.transaction.dependencies import MarkerChannel
from penstock.model.cluster import TRANSACTIONS_TOPIC, UpdateMetadataRequest
from penstock.model.producer_ids import ProducerIds
from penstock.server.context import BrokerContext
from penstock.server.coordinator_leadership import CoordinatorLeadership
from penstock.server.coordinator_log import ReplicatedCoordinatorLog
from penstock.server.prepared_transaction_alarm import PreparedTransactionAlarm


def build_transaction_coordinator(
    context: BrokerContext,
    *,
    administration: CreatesTopics,
    producer_ids: ProducerIds,
    markers: MarkerChannel,
) -> TransactionCoordinator:
    """Its task is running when this returns; `close` ends it."""
    coordinator = TransactionCoordinator(
        log=ReplicatedCoordinatorLog(
            TRANSACTIONS_TOPIC,
            replication_factor="transaction.state.log.replication.factor",
            administration=administration,
            context=context,
        ),
        partitions=context.metadata,
        producer_ids=producer_ids,
        markers=markers,
        timers=context.timers,
        wall_ms=context.wall_ms,
        config=CachedConfig(context.config, TransactionConfig.from_broker),
        report=context.report,
    )
    leadership = CoordinatorLeadership(TRANSACTIONS_TOPIC, coordinator, context)

    def on_update(update: UpdateMetadataRequest) -> None:
        leadership.update()
        coordinator.on_leaders_changed()

    async def run() -> None:
        PreparedTransactionAlarm(
            coordinator,
            alarm_after_ms=lambda: context.config().get_int("transaction.prepared.alarm.ms"),
            timers=context.timers,
            wall_ms=context.wall_ms,
            report=context.report,
        ).start()
        await coordinator.run()

    context.metadata.listen(on_update)
    leadership.update()
    context.run_when_logs_ready(run, "transaction-coordinator")
    return coordinator
