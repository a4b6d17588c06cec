"""Builders of cluster states for the pure decision functions."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from tests.unit.controller.cluster import node

from penstock.controller.state import ClusterState
from penstock.model.cluster import (
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    PartitionState,
    TopicState,
)
from penstock.model.ids import LeaderEpoch, TopicId

EPOCH = ControllerEpoch(9)


def alive(*ids: int, epoch: int = 1) -> dict[BrokerId, BrokerNode]:
    return {BrokerId(id_): node(id_, epoch=epoch) for id_ in ids}


def partition(
    leader: int, in_sync: tuple[int, ...], replicas: tuple[int, ...], *, epoch: int = 4
) -> PartitionState:
    return PartitionState(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        replicas=tuple(map(BrokerId, replicas)),
        in_sync=tuple(map(BrokerId, in_sync)),
        partition_epoch=7,
        controller_epoch=ControllerEpoch(3),
    )


def topic(
    name: str, *partitions: PartitionState, configs: Mapping[str, str] | None = None
) -> TopicState:
    topic_id = TopicId(UUID(int=sum(name.encode()) + 2))
    return TopicState(
        name=name, topic_id=topic_id, partitions=partitions, configs=dict(configs or {})
    )


def cluster_state(live: Mapping[BrokerId, BrokerNode], *topics: TopicState) -> ClusterState:
    return ClusterState(
        controller_id=BrokerId(0),
        controller_epoch=EPOCH,
        brokers=live,
        topics={topic.name: topic for topic in topics},
    )
