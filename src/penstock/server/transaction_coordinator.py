"""Builds the transaction coordinator and keeps it informed of metadata changes.

Only translates; decides nothing about transactions. Owned by the event loop.
"""

import asyncio

from penstock.client.address import Address
from penstock.config.cached_config import CachedConfig
from penstock.controller.interface import CreatesTopics
from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.coordinator import TransactionCoordinator
from penstock.coordinators.transaction.dependencies import MarkerChannel
from penstock.model.cluster import TRANSACTIONS_TOPIC, UpdateMetadataRequest
from penstock.model.producer_ids import ProducerIds
from penstock.server.addresses import inter_broker_listener
from penstock.server.context import BrokerContext
from penstock.server.coordinator_leadership import CoordinatorLeadership
from penstock.server.coordinator_log import ReplicatedCoordinatorLog
from penstock.server.inter_broker_security import inter_broker_security
from penstock.server.prepared_transaction_alarm import PreparedTransactionAlarm
from penstock.server.spark_transaction_reaper import SparkTransactionReaper
from penstock.spark.sink.exactly_once.transactional_ids import LEASES_TOPIC


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
        logger=context.get_logger("transaction_coordinator"),
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
            logger=context.get_logger("transaction_coordinator"),
        ).start()
        async with asyncio.TaskGroup() as tasks:
            reaping = tasks.create_task(_build_reaper(coordinator, context).run())
            await coordinator.run()
            reaping.cancel()

    context.metadata.listen(on_update)
    leadership.update()
    context.run_when_logs_ready(run, "transaction-coordinator")
    return coordinator


def _build_reaper(
    coordinator: TransactionCoordinator, context: BrokerContext
) -> SparkTransactionReaper:
    def find_bootstrap() -> str | None:
        node = context.metadata.brokers.get(context.broker_id)
        listener = inter_broker_listener(context.config())
        endpoint = None if node is None else node.find_endpoint(listener)
        return None if endpoint is None else str(Address(endpoint.host, endpoint.port))

    return SparkTransactionReaper(
        coordinator,
        find_bootstrap=find_bootstrap,
        find_security=lambda: inter_broker_security(context.config()),
        has_leases=lambda: context.metadata.find_topic(LEASES_TOPIC) is not None,
        logger=context.get_logger("transaction_coordinator"),
    )
