"""Builds the controller's LeaderAndIsr, StopReplica and UpdateMetadata requests.

Pure. The order of one broker's requests matters: first its own role in a partition, then the
metadata that it serves to clients.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from penstock.controller.state import AddressedRequest, ClusterState
from penstock.model.cluster import (
    BrokerId,
    ControllerRequestBody,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.ids import TopicPartition

Item = TypeVar("Item")

# Creating a log takes half a millisecond, so that no request blocks the broker's loop for long.
PARTITIONS_PER_REQUEST = 50


def full_state_requests(state: ClusterState, broker: BrokerId) -> tuple[ControllerRequestBody, ...]:
    """Everything that a broker needs if it knows nothing yet."""
    deleting = [name for name, brokers in state.deleting.items() if broker in brokers]
    partitions = [
        LeaderAndIsrPartition(TopicPartition(topic.name, number), topic.topic_id, partition, False)
        for topic in _published_topics(state)
        for number, partition in enumerate(topic.partitions)
        if broker in partition.replicas
    ]
    return (
        *stop_topic_requests(state, broker, deleting),
        *_leader_and_isr(state, broker, partitions),
        full_update_metadata(state),
    )


def leader_and_isr_requests(
    state: ClusterState,
    changed: Mapping[str, Collection[int]],
    *,
    brokers: Iterable[BrokerId],
    is_new: bool = False,
) -> tuple[AddressedRequest, ...]:
    """The changed partitions, sent to those of `brokers` that hold a replica."""
    by_broker: dict[BrokerId, list[LeaderAndIsrPartition]] = {broker: [] for broker in brokers}
    for name, numbers in changed.items():
        topic = state.topics[name]
        for number in numbers:
            partition = topic.partitions[number]
            entry = LeaderAndIsrPartition(
                TopicPartition(name, number), topic.topic_id, partition, is_new
            )
            for broker in partition.replicas:
                if broker in by_broker:
                    by_broker[broker].append(entry)
    return tuple(
        AddressedRequest(broker, request)
        for broker, entries in by_broker.items()
        for request in _leader_and_isr(state, broker, entries)
    )


def stop_topic_requests(
    state: ClusterState, broker: BrokerId, topics: Iterable[str]
) -> tuple[StopReplicaRequest, ...]:
    """Delete the broker's replicas of these topics; a topic is never split over two requests."""
    chunks = _replicas_by_request(state, broker, topics)
    return tuple(_stop_replica(state, broker, partitions) for partitions in chunks)


def stop_partition_requests(
    state: ClusterState, by_broker: Mapping[BrokerId, Sequence[TopicPartition]]
) -> tuple[AddressedRequest, ...]:
    """Delete these replicas, each from its broker."""
    return tuple(
        AddressedRequest(broker, _stop_replica(state, broker, chunk))
        for broker, partitions in by_broker.items()
        for chunk in _chunks(partitions)
    )


def _stop_replica(
    state: ClusterState, broker: BrokerId, partitions: tuple[TopicPartition, ...]
) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        broker_epoch=state.brokers[broker].epoch,
        partitions=partitions,
        delete=True,
    )


def _replicas_by_request(
    state: ClusterState, broker: BrokerId, topics: Iterable[str]
) -> Iterator[tuple[TopicPartition, ...]]:
    chunk: list[TopicPartition] = []
    for name in topics:
        chunk += (
            TopicPartition(name, number)
            for number, partition in enumerate(state.topics[name].partitions)
            if broker in partition.replicas
        )
        if len(chunk) >= PARTITIONS_PER_REQUEST:
            yield tuple(chunk)
            chunk = []
    if chunk:
        yield tuple(chunk)


def full_update_metadata(state: ClusterState) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        is_full=True,
        brokers=tuple(state.brokers.values()),
        topics=tuple(_published_topics(state)),
        broker_configs=state.broker_configs,
        failed=state.failed,
        group_configs=state.group_configs,
    )


def update_metadata_requests(
    state: ClusterState,
    *,
    brokers: Iterable[BrokerId] | None = None,
    topics: Iterable[str] = (),
    deleted: Iterable[str] = (),
    with_brokers: bool = False,
    with_broker_configs: bool = False,
    with_failed: bool = False,
    with_group_configs: bool = False,
) -> tuple[AddressedRequest, ...]:
    """The UpdateMetadata requests with these changes, to `brokers` or to all live brokers."""
    update = UpdateMetadataRequest(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        is_full=False,
        brokers=tuple(state.brokers.values()) if with_brokers else None,
        topics=tuple(state.topics[name] for name in topics),
        deleted_topics=tuple(deleted),
        broker_configs=state.broker_configs if with_broker_configs else None,
        failed=state.failed if with_failed else None,
        group_configs=state.group_configs if with_group_configs else None,
    )
    targets = state.brokers if brokers is None else brokers
    return tuple(AddressedRequest(broker, update) for broker in targets)


def _published_topics(state: ClusterState) -> Iterator[TopicState]:
    return (topic for name, topic in state.topics.items() if name not in state.deleting)


def _leader_and_isr(
    state: ClusterState, broker: BrokerId, partitions: Sequence[LeaderAndIsrPartition]
) -> Iterator[LeaderAndIsrRequest]:
    for chunk in _chunks(partitions):
        yield LeaderAndIsrRequest(
            controller_id=state.controller_id,
            controller_epoch=state.controller_epoch,
            broker_epoch=state.brokers[broker].epoch,
            partitions=chunk,
        )


def _chunks(items: Iterable[Item]) -> Iterator[tuple[Item, ...]]:
    remaining = iter(items)
    while chunk := tuple(islice(remaining, PARTITIONS_PER_REQUEST)):
        yield chunk
