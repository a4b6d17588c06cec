"""Reassignments with a replication throttle: the configs that set it, and their removal.

Kafka's names: a rate per broker, and in the topic the replicas that it applies to.
"""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin_values import AlterConfigOp, Resource, ResourceKind
from penstock.client.cluster import ClusterClient
from penstock.client.reassignments import ReassignmentResult
from penstock.model.admin import ConfigOperation
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")

Changes = dict[Resource, list[AlterConfigOp]]


async def reassign_throttled(
    client: ClusterClient, partition: TopicPartition, to: Sequence[int], *, rate: int
) -> Mapping[TopicPartition, ReassignmentResult]:
    """Set the throttle first, because a reassignment starts copying at full speed."""
    metadata = await client.metadata([partition.topic])
    partition_metadata = metadata.find_partition(*partition)
    if partition_metadata is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {partition: ReassignmentResult(code, None)}
    changes = throttle(
        partition, held_by=partition_metadata.replicas, to=to, brokers=metadata.brokers, rate=rate
    )
    await client.admin.incremental_alter_configs(changes)
    return await client.reassignments.alter({partition: list(to)})


async def end_throttles(client: ClusterClient) -> None:
    metadata = await client.metadata()
    await client.admin.incremental_alter_configs(unthrottle(metadata.topics, metadata.brokers))


def throttle(
    tp: TopicPartition,
    *,
    held_by: Sequence[int],
    to: Sequence[int],
    brokers: Iterable[int],
    rate: int,
) -> Changes:
    """Current replicas are throttled as leaders, because any of them may lead; added ones as
    followers."""
    number = tp.partition
    senders = ",".join(f"{number}:{broker}" for broker in held_by)
    fetchers = ",".join(f"{number}:{broker}" for broker in to if broker not in held_by)
    replicas = [AlterConfigOp(LEADER_REPLICAS, senders, ConfigOperation.APPEND)]
    if fetchers:
        replicas.append(AlterConfigOp(FOLLOWER_REPLICAS, fetchers, ConfigOperation.APPEND))
    return {
        **{
            _broker(broker): [AlterConfigOp(name, str(rate)) for name in RATES]
            for broker in brokers
        },
        Resource(ResourceKind.TOPIC, tp.topic): replicas,
    }


def unthrottle(topics: Iterable[str], brokers: Iterable[int]) -> Changes:
    lists = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
    return {
        **{Resource(ResourceKind.TOPIC, topic): _deleted(lists) for topic in topics},
        **{_broker(broker): _deleted(RATES) for broker in brokers},
    }


def _broker(broker: int) -> Resource:
    return Resource(ResourceKind.BROKER, str(broker))


def _deleted(names: Iterable[str]) -> list[AlterConfigOp]:
    return [AlterConfigOp(name, None, ConfigOperation.DELETE) for name in names]
