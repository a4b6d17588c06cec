"""The throttle of reassignments: a rate for all brokers, and its removal.

It holds for replicas that reassignments add, and for no others. Removal also ends throttles of
Kafka's older kind, which name the replicas in their topic's configs.
"""

from collections.abc import Iterable

from penstock.client.admin_values import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    DescribedConfigSource,
)
from penstock.client.cluster import ClusterClient
from penstock.model.admin import ConfigOperation

COPY_RATES = ("leader.reassignment.throttled.rate", "follower.reassignment.throttled.rate")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICA_LISTS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
ALL_BROKERS = ConfigResource.all_brokers()

Changes = dict[ConfigResource, list[AlterConfigOp]]


async def begin_throttle(client: ClusterClient, rate: int) -> Changes:
    """Before the reassignments, because these start copying at full speed. Returns the changes that
    end it: an operator's own rates come back."""
    described = await client.admin.describe_configs([ALL_BROKERS], names=COPY_RATES)
    await client.admin.incremental_alter_configs(throttle(rate))
    return restore(described[ALL_BROKERS])


async def end_throttle(client: ClusterClient) -> None:
    """Of a run that something else has begun: what the rates were before is not known."""
    await client.admin.incremental_alter_configs({ALL_BROKERS: _deleted(COPY_RATES)})


async def end_throttles(client: ClusterClient) -> None:
    metadata = await client.metadata()
    await client.admin.incremental_alter_configs(unthrottle(metadata.topics, metadata.brokers))


def throttle(rate: int) -> Changes:
    """In bytes per second, of each broker as the leader and as the follower."""
    return {ALL_BROKERS: [AlterConfigOp(name, str(rate)) for name in COPY_RATES]}


def restore(described: Iterable[ConfigEntry]) -> Changes:
    """The changes that bring back the rates of all brokers as they were described."""
    rates = {
        entry.name: entry.value
        for entry in described
        if entry.source is DescribedConfigSource.ALL_BROKERS
    }
    restored = [AlterConfigOp(name, rates[name]) for name in COPY_RATES if name in rates]
    return {ALL_BROKERS: restored + _deleted(name for name in COPY_RATES if name not in rates)}


def unthrottle(topics: Iterable[str], brokers: Iterable[int]) -> Changes:
    rates = (*COPY_RATES, *RATES)
    return {
        ALL_BROKERS: _deleted(COPY_RATES),
        **{ConfigResource.topic(topic): _deleted(REPLICA_LISTS) for topic in topics},
        **{ConfigResource.broker(broker): _deleted(rates) for broker in brokers},
    }


def _deleted(names: Iterable[str]) -> list[AlterConfigOp]:
    return [AlterConfigOp(name, None, ConfigOperation.DELETE) for name in names]
