"""Builds what brings deferred messages to their shards and from there to their targets, lazily.

A broker that has no topic with delayed messages, and leads no shard, never imports it.
"""

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.cached_config import CachedConfig
from penstock.io.disk import Disk
from penstock.model.cluster import DEFERRED_TOPIC, UpdateMetadataRequest
from penstock.model.producer_ids import ProducerIds
from penstock.server.cluster_links import ClusterLinks
from penstock.server.context import BrokerContext
from penstock.server.coordinator_leadership import build_when_leading
from penstock.server.lazy import Lazy

_HALF_GROUPS = "penstock.half.groups"

if TYPE_CHECKING:
    from penstock.coordinators.deferred.coordinator import DeferredCoordinator
    from penstock.coordinators.group.coordinator import GroupCoordinator
    from penstock.inter_broker.deferred_appends import DeferredAppends
    from penstock.inter_broker.deferred_router import DeferredRouter
    from penstock.inter_broker.half_calls import HalfCalls
    from penstock.inter_broker.half_topics import HalfTopics
    from penstock.inter_broker.transaction_verifier import TransactionVerifier
    from penstock.server.half_readers import RunningHalfReaders


class DeferredParts(NamedTuple):
    coordinator: "Lazy[DeferredCoordinator]"
    router: "Lazy[DeferredRouter]"
    half_readers: "Lazy[RunningHalfReaders]"
    full_groups: AbstractSet[str]  # of producers: no more halves of theirs are taken

    def close(self) -> None:
        coordinator, router = self.coordinator.find(), self.router.find()
        readers = self.half_readers.find()
        if readers is not None:
            readers.close()
        if router is not None:
            router.close()
        if coordinator is not None:
            coordinator.close()


def lazy_deferred_messages(
    context: BrokerContext,
    links: ClusterLinks,
    producer_ids: ProducerIds,
    disk: Disk,
    groups: "Lazy[GroupCoordinator]",
    verifier: "Lazy[TransactionVerifier]",
) -> DeferredParts:
    appends: Lazy[DeferredAppends] = Lazy(lambda: _build_appends(context, links))
    topics: Lazy[HalfTopics] = Lazy(lambda: _build_half_topics(context))
    full_groups: set[str] = set()
    calls: Lazy[HalfCalls] = Lazy(
        lambda: _build_half_calls(context, links, topics, coordinator, appends, groups, full_groups)
    )

    def build_coordinator() -> "DeferredCoordinator":
        from penstock.server.deferred_coordinator import build_deferred_coordinator

        return build_deferred_coordinator(
            context,
            administration=links.administration,
            producer_ids=producer_ids,
            channel=appends.get(),
            cluster=calls.get(),
            disk=disk,
        )

    coordinator: Lazy[DeferredCoordinator] = Lazy(build_coordinator)
    build_when_leading(coordinator, DEFERRED_TOPIC, context)
    router: Lazy[DeferredRouter] = Lazy(
        lambda: _build_router(context, links, coordinator, appends, verifier)
    )
    readers = Lazy(lambda: _build_half_readers(context, topics, calls))
    _build_with_first_half_topic(readers, context)
    return DeferredParts(coordinator, router, readers, full_groups)


def _build_with_first_half_topic(readers: Lazy[object], context: BrokerContext) -> None:
    """Call it before the first metadata update."""

    def on_update(update: UpdateMetadataRequest) -> None:
        if not readers.is_built and any(
            _HALF_GROUPS in topic.configs and topic.name.endswith(".half")
            for topic in update.topics
        ):
            readers.get()

    context.metadata.listen(on_update)


def _build_half_topics(context: BrokerContext) -> "HalfTopics":
    from penstock.inter_broker.half_topics import HalfTopics

    return HalfTopics(context.metadata)


def _build_half_calls(
    context: BrokerContext,
    links: ClusterLinks,
    topics: "Lazy[HalfTopics]",
    coordinator: "Lazy[DeferredCoordinator]",
    appends: "Lazy[DeferredAppends]",
    groups: "Lazy[GroupCoordinator]",
    full_groups: set[str],
) -> "HalfCalls":
    from penstock.inter_broker.config import InterBrokerConfig
    from penstock.inter_broker.half_calls import HalfCalls

    return HalfCalls(
        context.broker_id,
        metadata=context.metadata,
        topics=topics.get(),
        get_coordinator=coordinator.get,
        get_groups=groups.get,
        appends=appends.get(),
        brokers=links.open_connections(),
        config=CachedConfig(context.config, InterBrokerConfig.from_broker),
        full_groups=full_groups,
    )


def _build_half_readers(
    context: BrokerContext, topics: "Lazy[HalfTopics]", calls: "Lazy[HalfCalls]"
) -> "RunningHalfReaders":
    from penstock.server.half_readers import RunningHalfReaders

    return RunningHalfReaders(context, topics.get(), calls.get())


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
    verifier: "Lazy[TransactionVerifier]",
) -> "DeferredRouter":
    from penstock.coordinators.deferred.config import DeferredConfig
    from penstock.inter_broker.config import InterBrokerConfig
    from penstock.inter_broker.deferred_router import DeferredRouter
    from penstock.inter_broker.deferred_transactions import DeferredTransactions

    return DeferredRouter(
        context.broker_id,
        metadata=context.metadata,
        get_coordinator=coordinator.get,
        brokers=links.open_connections(),
        appends=appends.get(),
        transactions=DeferredTransactions(context.metadata, context.replicas, verifier.get),
        config=CachedConfig(context.config, DeferredConfig.from_broker),
        calls_config=CachedConfig(context.config, InterBrokerConfig.from_broker),
        timers=context.timers,
        now_ms=context.timers.now_ms,
        wall_ms=context.wall_ms,
    )
