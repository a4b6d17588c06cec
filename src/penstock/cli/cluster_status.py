"""Everything `penstock cluster status` shows, from Kafka's public requests."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.cluster import ClusterClient
from penstock.client.metadata import BrokerMetadata, PartitionMetadata
from penstock.client.reassignments import PartitionReassignment
from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    cluster_id: str | None
    controller_id: BrokerId
    brokers: Mapping[BrokerId, BrokerMetadata]
    partitions: Mapping[TopicPartition, PartitionMetadata]
    moving: Mapping[TopicPartition, PartitionReassignment]

    @property
    def leaderless(self) -> list[TopicPartition]:
        return [
            name for name, partition in self.partitions.items() if partition.leader == NO_BROKER
        ]

    @property
    def under_replicated(self) -> list[TopicPartition]:
        return [
            name
            for name, partition in self.partitions.items()
            if partition.leader != NO_BROKER and len(partition.in_sync) < len(partition.replicas)
        ]

    @property
    def not_preferred(self) -> list[TopicPartition]:
        """Partitions that are not led by their preferred replica."""
        return [
            name
            for name, partition in self.partitions.items()
            if partition.leader != NO_BROKER
            and partition.replicas
            and partition.leader != partition.replicas[0]
        ]

    def broker_rows(self) -> list[list[object]]:
        leads = Counter(partition.leader for partition in self.partitions.values())
        holds = Counter(
            broker for partition in self.partitions.values() for broker in partition.replicas
        )
        return [
            [
                node.id,
                str(node.address),
                node.rack,
                leads[node.id],
                holds[node.id],
                "controller" if node.id == self.controller_id else "",
            ]
            for _, node in sorted(self.brokers.items())
        ]

    def as_json(self) -> dict[str, object]:
        names = ("broker", "address", "rack", "leads", "replicas")
        return {
            "cluster_id": self.cluster_id,
            "controller": self.controller_id,
            "brokers": [dict(zip(names, row, strict=False)) for row in self.broker_rows()],
            "partitions": len(self.partitions),
            "leaderless": [str(tp) for tp in self.leaderless],
            "under_replicated": [str(tp) for tp in self.under_replicated],
            "not_preferred": [str(tp) for tp in self.not_preferred],
            "moving": {
                str(name): {
                    "replicas": list(reassignment.replicas),
                    "adding": list(reassignment.adding),
                    "removing": list(reassignment.removing),
                }
                for name, reassignment in self.moving.items()
            },
        }


async def find_status(client: ClusterClient) -> ClusterStatus:
    described = await client.admin.describe_cluster()
    metadata = await client.metadata()
    return ClusterStatus(
        cluster_id=described.cluster_id,
        controller_id=described.controller_id,
        brokers=described.brokers,
        partitions={
            TopicPartition(topic.name, partition.partition): partition
            for _, topic in sorted(metadata.topics.items())
            for partition in topic.partitions
        },
        moving=await client.reassignments.list_ongoing(),
    )
