"""Builds the coordinator of deferred messages and keeps it informed of metadata changes.

Only translates; decides nothing about messages. Owned by the event loop.
"""

from penstock.config.cached_config import CachedConfig
from penstock.config.log_config import StorageConfig
from penstock.controller.interface import CreatesTopics
from penstock.coordinators.deferred.config import DeferredConfig
from penstock.coordinators.deferred.coordinator import DeferredCoordinator
from penstock.coordinators.deferred.dependencies import DeliveryChannel, HalfCluster
from penstock.coordinators.deferred.file_runs import FileRuns
from penstock.io.disk import Disk
from penstock.model.cluster import DEFERRED_TOPIC, UpdateMetadataRequest
from penstock.model.producer_ids import ProducerIds
from penstock.server.context import BrokerContext
from penstock.server.coordinator_leadership import CoordinatorLeadership
from penstock.server.coordinator_log import ReplicatedCoordinatorLog

RUNS_FOLDER = ".penstock_deferred"  # in the first log directory, which looks over such names


def build_deferred_coordinator(
    context: BrokerContext,
    *,
    administration: CreatesTopics,
    producer_ids: ProducerIds,
    channel: DeliveryChannel,
    cluster: HalfCluster,
    disk: Disk,
) -> DeferredCoordinator:
    """Its task is running when this returns; `close` ends it."""
    folder = f"{StorageConfig.from_broker(context.config()).log_dirs[0]}/{RUNS_FOLDER}"

    def new_runs(partition: int) -> FileRuns:
        if not disk.exists(folder):
            disk.make_directory(folder)
        return FileRuns(disk, f"{folder}/{partition}")

    coordinator = DeferredCoordinator(
        log=ReplicatedCoordinatorLog(
            DEFERRED_TOPIC,
            replication_factor="penstock.delayed.topic.replication.factor",
            administration=administration,
            context=context,
        ),
        channel=channel,
        cluster=cluster,
        producer_ids=producer_ids,
        new_runs=new_runs,
        timers=context.timers,
        wall_ms=context.wall_ms,
        config=CachedConfig(context.config, DeferredConfig.from_broker),
        logger=context.get_logger("deferred_coordinator"),
    )
    leadership = CoordinatorLeadership(DEFERRED_TOPIC, coordinator, context)

    def on_update(update: UpdateMetadataRequest) -> None:
        leadership.update()

    context.metadata.listen(on_update)
    leadership.update()
    context.run_when_logs_ready(coordinator.run, "deferred-coordinator")
    return coordinator
