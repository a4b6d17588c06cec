"""Reads from a running cluster what the balance planner needs: brokers, replicas and their bytes.

Kafka's public requests alone. A partition that is being reassigned counts as if that were done.
"""

from typing import NamedTuple

from penstock.client.cluster import ClusterClient
from penstock.client.metadata import PartitionMetadata
from penstock.client.reassignments import PartitionReassignment
from penstock.controller.balancing.layout import ClusterLayout, LayoutPartition
from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.ids import TopicPartition

ReplicaBytes = dict[TopicPartition, dict[BrokerId, int]]


class CurrentLayout(NamedTuple):
    layout: ClusterLayout
    ongoing: dict[TopicPartition, PartitionReassignment]


async def read_layout(client: ClusterClient) -> CurrentLayout:
    ongoing = await client.reassignments.list_ongoing()
    sizes = await read_sizes(client)
    metadata = await client.metadata()
    partitions = [
        _read_partition(TopicPartition(topic.name, partition.partition), partition, ongoing, sizes)
        for _, topic in sorted(metadata.topics.items())
        for partition in topic.partitions
    ]
    racks = {broker: node.rack for broker, node in metadata.brokers.items()}
    return CurrentLayout(ClusterLayout(racks=racks, partitions=tuple(partitions)), ongoing)


async def read_sizes(client: ClusterClient) -> ReplicaBytes:
    """The bytes of every replica on a live broker."""
    described = await client.admin.describe_log_dirs()
    sizes: ReplicaBytes = {}
    for broker, directories in described.items():
        for directory in directories:
            for tp, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes.setdefault(tp, {})[broker] = replica.size_bytes
    return sizes


def _read_partition(
    tp: TopicPartition,
    partition: PartitionMetadata,
    ongoing: dict[TopicPartition, PartitionReassignment],
    sizes: ReplicaBytes,
) -> LayoutPartition:
    """Its size is that of its largest replica: others may lag, or be copied just now."""
    reassignment = ongoing.get(tp)
    removing = () if reassignment is None else reassignment.removing
    return LayoutPartition(
        tp,
        tuple(broker for broker in partition.replicas if broker not in removing),
        max(sizes.get(tp, {}).values(), default=0),
        is_fixed=reassignment is not None or partition.leader == NO_BROKER,
    )
