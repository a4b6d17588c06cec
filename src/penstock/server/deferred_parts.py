"""Builds what brings deferred messages to their shards and from there to their targets, lazily.

A broker that has no topic with delayed messages, and leads no shard, never imports it.
"""

from typing import TYPE_CHECKING, NamedTuple

from penstock.config.cached_config import CachedConfig
from penstock.io.disk import Disk
from penstock.model.cluster import DEFERRED_TOPIC
from penstock.model.producer_ids import ProducerIds
from penstock.server.cluster_links import ClusterLinks
from penstock.server.context import BrokerContext
from penstock.server.coordinator_leadership import build_when_leading
from penstock.server.lazy import Lazy

if TYPE_CHECKING:
    from penstock.coordinators.deferred.coordinator import DeferredCoordinator
    from penstock.inter_broker.deferred_appends import DeferredAppends
    from penstock.inter_broker.deferred_router import DeferredRouter


class DeferredParts(NamedTuple):
    coordinator: "Lazy[DeferredCoordinator]"
    router: "Lazy[DeferredRouter]"

    def close(self) -> None:
        coordinator, router = self.coordinator.find(), self.router.find()
        if router is not None:
            router.close()
        if coordinator is not None:
            coordinator.close()


def lazy_deferred_messages(
    context: BrokerContext, links: ClusterLinks, producer_ids: ProducerIds, disk: Disk
) -> DeferredParts:
    appends: Lazy[DeferredAppends] = Lazy(lambda: _build_appends(context, links))

    def build_coordinator() -> "DeferredCoordinator":
        from penstock.server.deferred_coordinator import build_deferred_coordinator

        return build_deferred_coordinator(
            context,
            administration=links.administration,
            producer_ids=producer_ids,
            channel=appends.get(),
            disk=disk,
        )

    coordinator = Lazy(build_coordinator)
    build_when_leading(coordinator, DEFERRED_TOPIC, context)
    router: Lazy[DeferredRouter] = Lazy(lambda: _build_router(context, links, coordinator, appends))
    return DeferredParts(coordinator, router)


def _build_appends(context: BrokerContext, links: ClusterLinks) -> "DeferredAppends":
    from penstock.inter_broker.deferred_appends import DeferredAppends

    return DeferredAppends(
        context.broker_id,
        metadata=context.metadata,
        replicas=context.replicas,
        brokers=links.open_connections(),
        now_ms=context.timers.now_ms,
    )


def _build_router(
    context: BrokerContext,
    links: ClusterLinks,
    coordinator: "Lazy[DeferredCoordinator]",
    appends: "Lazy[DeferredAppends]",
) -> "DeferredRouter":
    from penstock.coordinators.deferred.config import DeferredConfig
    from penstock.inter_broker.config import InterBrokerConfig
    from penstock.inter_broker.deferred_router import DeferredRouter

    return DeferredRouter(
        context.broker_id,
        metadata=context.metadata,
        get_coordinator=coordinator.get,
        brokers=links.open_connections(),
        appends=appends.get(),
        config=CachedConfig(context.config, DeferredConfig.from_broker),
        calls_config=CachedConfig(context.config, InterBrokerConfig.from_broker),
        timers=context.timers,
        now_ms=context.timers.now_ms,
        wall_ms=context.wall_ms,
    )
