"""Turns changed partition states into a decision: new cluster state, writes and requests. Pure.

Each write is conditional on the znode version that the controller knows, the partition epoch, so
that of two concurrent writers one fails.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.controller.controller_requests import (
    leader_and_isr_requests,
    update_metadata_requests,
)
from penstock.controller.state import ClusterState, ControllerDecision, WriteStep
from penstock.controller.znodes import encode_state, state_path
from penstock.metadata_store.interface import SetData
from penstock.model.cluster import PartitionState
from penstock.model.ids import TopicPartition

Changes = Mapping[str, Mapping[int, PartitionState]]  # by topic and partition; none is empty


def change_partitions(state: ClusterState, changes: Changes) -> ControllerDecision:
    """LeaderAndIsr to the brokers that hold the partitions, UpdateMetadata to all live brokers."""
    if not changes:
        return ControllerDecision(state=state)
    after = with_changes(state, changes)
    requests = leader_and_isr_requests(after, changes, brokers=after.brokers)
    requests += update_metadata_requests(after, topics=changes)
    return ControllerDecision(state=after, writes=tuple(state_writes(changes)), requests=requests)


def with_changes(state: ClusterState, changes: Changes) -> ClusterState:
    return state.with_topics(
        replace(
            state.topics[name],
            partitions=tuple(
                changed.get(number, partition)
                for number, partition in enumerate(state.topics[name].partitions)
            ),
        )
        for name, changed in changes.items()
    )


def state_writes(changes: Changes) -> Iterator[WriteStep]:
    for name, changed in changes.items():
        for number, partition in changed.items():
            yield (_state_write(name, number, partition),)


def by_topic(changed: Mapping[TopicPartition, PartitionState]) -> Changes:
    grouped: dict[str, dict[int, PartitionState]] = {}
    for (name, number), partition in changed.items():
        grouped.setdefault(name, {})[number] = partition
    return grouped


def _state_write(topic: str, number: int, partition: PartitionState) -> SetData:
    return SetData(
        path=state_path(topic, number),
        data=encode_state(partition),
        version=partition.partition_epoch - 1,
    )
