"""Collects BrokerStatistics from the parts of a running broker, and says whether it is ready.

In slices: between two slices of partitions or groups the event loop runs, so a broker with 10,000
partitions is not held up. The snapshot is therefore not of one instant.
"""

import asyncio
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from penstock.metrics.broker_state import BrokerState
from penstock.metrics.statistics import BrokerStatistics, LoopStatistics
from penstock.model.cluster import BrokerNode
from penstock.model.ids import TopicPartition
from penstock.network.server import Server
from penstock.purgatory.loop_timers import LoopTimers
from penstock.server.broker_parts import BrokerParts
from penstock.server.context import BrokerContext
from penstock.server.metadata_store import BrokerMetadataStore
from penstock.server.process_statistics import read_process_statistics
from penstock.storage.engine import Engine

if TYPE_CHECKING:
    from penstock.coordinators.group.coordinator import GroupStatistics
    from penstock.replication.partition import PartitionStatistics

SLICE = 500  # partitions or groups: 1 to 2 ms


class StatisticsSources(NamedTuple):
    context: BrokerContext
    parts: BrokerParts
    server: Server
    timers: LoopTimers
    store: BrokerMetadataStore
    engine: Engine
    cluster_id: str
    state: Callable[[], BrokerState]
    remaining_logs: Callable[[], int]  # to recover
    loop: Callable[[], LoopStatistics]


async def collect_statistics(sources: StatisticsSources) -> BrokerStatistics:
    context, parts, *_ = sources
    replicas, metadata = context.replicas, context.metadata
    partitions: list[PartitionStatistics] = []
    for partition_slice in replicas.slices_of_partitions(SLICE):
        partitions += partition_slice
        await asyncio.sleep(0)
    coordinator = parts.group_coordinator.find()
    groups: list[GroupStatistics] = []
    if coordinator is not None:
        for group_slice in coordinator.slices_of_groups(SLICE):
            groups += group_slice
            await asyncio.sleep(0)
    transactions = parts.transaction_coordinator.find()
    deferred = parts.deferred.coordinator.find()
    return BrokerStatistics(
        broker_id=context.broker_id,
        cluster_id=sources.cluster_id,
        version=await asyncio.to_thread(find_version),
        state=sources.state(),
        wall_ms=context.wall_ms(),
        monotonic_s=time.monotonic(),
        brokers={id_: _address_of(node) for id_, node in metadata.brokers.items()},
        topic_partitions={name: len(topic.partitions) for name, topic in metadata.topics.items()},
        network=sources.server.statistics(),
        requests=parts.dispatcher.statistics(),
        replicas=replicas.statistics_of(tuple(partitions)),
        directories=sources.engine.directory_statistics(),
        remaining_logs=sources.remaining_logs(),
        controller=parts.controller.statistics(),
        group_coordinator=None if coordinator is None else coordinator.statistics(),
        groups=tuple(groups),
        transaction_coordinator=None if transactions is None else transactions.statistics(),
        deferred_coordinator=None if deferred is None else deferred.statistics(),
        sessions=sources.store.statistics(),
        timers=sources.timers.statistics(),
        loop=sources.loop(),
        process=read_process_statistics(),
        quotas=parts.quotas.enforced.statistics(),
        audit=parts.audit.statistics(),
    )


def find_unready(context: BrokerContext, parts: BrokerParts) -> str | None:
    """Why a serving broker is not ready; None: it is registered, and leads what the controller
    says."""
    own = context.metadata.brokers.get(context.broker_id)
    if own is None or own.epoch != parts.handler.broker_epoch:
        return f"broker {context.broker_id} is not registered"
    missing = [
        tp
        for name, topic in context.metadata.topics.items()
        for number, state in enumerate(topic.partitions)
        if state.leader == context.broker_id
        and not _leads(context, tp := TopicPartition(name, number))
    ]
    if not missing:
        return None
    return f"{len(missing)} partitions that it should lead are not led yet, first {missing[0]}"


def _leads(context: BrokerContext, tp: TopicPartition) -> bool:
    partition = context.replicas.find(tp)
    return partition is not None and partition.is_leader


def _address_of(node: BrokerNode) -> str:
    if not node.endpoints:
        return ""
    endpoint = node.endpoints[0]
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


@cache
def find_version() -> str:
    """Called on a thread: the first call takes 50 ms."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("penstock")
    except PackageNotFoundError:
        return "unknown"
