"""Everything `penstock cluster status` shows, from Kafka's public requests."""

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cli.balancing_status import BalancingStatus, find_balancing
from penstock.client.cluster import ClusterClient
from penstock.client.metadata import BrokerMetadata, PartitionMetadata
from penstock.client.reassignments import PartitionReassignment
from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.ids import TopicPartition


class ClusterHealth(enum.StrEnum):
    HEALTHY = "healthy"
    UNDER_REPLICATED = "under-replicated"
    OFFLINE = "offline"  # partitions without a leader


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    cluster_id: str | None
    controller_id: BrokerId
    brokers: Mapping[BrokerId, BrokerMetadata]
    partitions: Mapping[TopicPartition, PartitionMetadata]
    moving: Mapping[TopicPartition, PartitionReassignment]
    balancing: BalancingStatus | None = None  # None: it is off, or the controller does not say

    @property
    def leaderless(self) -> list[TopicPartition]:
        return [
            name for name, partition in self.partitions.items() if partition.leader == NO_BROKER
        ]

    @property
    def under_replicated(self) -> list[TopicPartition]:
        """Partitions with fewer in-sync replicas than they have apart from those being added."""
        return [
            name
            for name, partition in self.partitions.items()
            if partition.leader != NO_BROKER
            and len(partition.in_sync) < len(self._settled_replicas(name))
        ]

    @property
    def health(self) -> ClusterHealth:
        if self.leaderless:
            return ClusterHealth.OFFLINE
        return ClusterHealth.UNDER_REPLICATED if self.under_replicated else ClusterHealth.HEALTHY

    @property
    def missing_brokers(self) -> list[BrokerId]:
        """Brokers that have replicas and are not registered."""
        assigned = {broker for tp in self.partitions.values() for broker in tp.replicas}
        return sorted(assigned - self.brokers.keys())

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

    def _settled_replicas(self, name: TopicPartition) -> set[BrokerId]:
        reassignment = self.moving.get(name)
        adding = () if reassignment is None else reassignment.adding
        return set(self.partitions[name].replicas).difference(adding)

    def broker_rows(self) -> list[list[object]]:
        """Registered brokers, then the missing ones."""
        leads = Counter(partition.leader for partition in self.partitions.values())
        holds = Counter(
            broker for partition in self.partitions.values() for broker in partition.replicas
        )
        registered: list[list[object]] = [
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
        return registered + [
            [broker, None, None, leads[broker], holds[broker], "MISSING"]
            for broker in self.missing_brokers
        ]

    def as_json(self) -> dict[str, object]:
        names = ("broker", "address", "rack", "leads", "replicas")
        return {
            "cluster_id": self.cluster_id,
            "controller": self.controller_id,
            "status": self.health.value,
            "brokers": [
                dict(zip(names, row, strict=False))
                for row in self.broker_rows()
                if row[0] not in self.missing_brokers
            ],
            "missing_brokers": self.missing_brokers,
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
            "balancing": None if self.balancing is None else self.balancing.as_json(),
        }


async def find_status(client: ClusterClient) -> ClusterStatus:
    # First, because it waits for a controller that does not answer: what follows is as of now.
    moving = await client.reassignments.list_ongoing()
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
        moving=moving,
        balancing=await find_balancing(client, described.controller_id),
    )
