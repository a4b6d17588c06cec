"""Decisions as orders to brokers: who must lead, follow or stop what, and who must know of it.

Pure. For one broker the order of the list counts: first its own role, then what it tells clients.
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

PARTITIONS_PER_ORDER = 50  # a log takes half a millisecond to make: no order holds a loop for long


def everything(state: ClusterState, broker: BrokerId) -> tuple[ControllerRequestBody, ...]:
    """What a broker must be told that may know nothing."""
    gone = [name for name, waiting in state.deleting.items() if broker in waiting]
    partitions = [
        LeaderAndIsrPartition(TopicPartition(topic.name, number), topic.topic_id, each, False)
        for topic in _visible(state)
        for number, each in enumerate(topic.partitions)
        if broker in each.replicas
    ]
    return (
        *stop_replicas(state, broker, gone),
        *_lead_and_follow(state, broker, partitions),
        full_metadata(state),
    )


def roles(
    state: ClusterState,
    changed: Mapping[str, Collection[int]],
    *,
    brokers: Iterable[BrokerId],
    is_new: bool = False,
) -> tuple[AddressedRequest, ...]:
    """The changed partitions, to those of the brokers that hold them."""
    by_broker: dict[BrokerId, list[LeaderAndIsrPartition]] = {broker: [] for broker in brokers}
    for name, numbers in changed.items():
        topic = state.topics[name]
        for number in numbers:
            partition = topic.partitions[number]
            order = LeaderAndIsrPartition(
                TopicPartition(name, number), topic.topic_id, partition, is_new
            )
            for broker in partition.replicas:
                if broker in by_broker:
                    by_broker[broker].append(order)
    return tuple(
        AddressedRequest(broker, order)
        for broker, partitions in by_broker.items()
        for order in _lead_and_follow(state, broker, partitions)
    )


def stop_replicas(
    state: ClusterState, broker: BrokerId, topics: Iterable[str]
) -> tuple[StopReplicaRequest, ...]:
    """Remove the broker's replicas of these topics, data and all; a topic is never in two."""
    portions = _replicas_by_order(state, broker, topics)
    return tuple(_stop(state, broker, partitions) for partitions in portions)


def stop_partitions(
    state: ClusterState, by_broker: Mapping[BrokerId, Sequence[TopicPartition]]
) -> tuple[AddressedRequest, ...]:
    """Remove these replicas, each from its broker, data and all."""
    return tuple(
        AddressedRequest(broker, _stop(state, broker, partitions))
        for broker, names in by_broker.items()
        for partitions in _portions(names)
    )


def _stop(
    state: ClusterState, broker: BrokerId, partitions: tuple[TopicPartition, ...]
) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        broker_epoch=state.brokers[broker].epoch,
        partitions=partitions,
        delete=True,
    )


def _replicas_by_order(
    state: ClusterState, broker: BrokerId, topics: Iterable[str]
) -> Iterator[tuple[TopicPartition, ...]]:
    gathered: list[TopicPartition] = []
    for name in topics:
        gathered += (
            TopicPartition(name, number)
            for number, each in enumerate(state.topics[name].partitions)
            if broker in each.replicas
        )
        if len(gathered) >= PARTITIONS_PER_ORDER:
            yield tuple(gathered)
            gathered = []
    if gathered:
        yield tuple(gathered)


def full_metadata(state: ClusterState) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        is_full=True,
        brokers=tuple(state.brokers.values()),
        topics=tuple(_visible(state)),
        broker_configs=state.broker_configs,
        failed=state.failed,
    )


def tell(
    state: ClusterState,
    *,
    brokers: Iterable[BrokerId] | None = None,
    topics: Iterable[str] = (),
    deleted: Iterable[str] = (),
    with_brokers: bool = False,
    with_broker_configs: bool = False,
    with_failed: bool = False,
) -> tuple[AddressedRequest, ...]:
    """What changed, to the brokers named or to all that live."""
    update = UpdateMetadataRequest(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        is_full=False,
        brokers=tuple(state.brokers.values()) if with_brokers else None,
        topics=tuple(state.topics[name] for name in topics),
        deleted_topics=tuple(deleted),
        broker_configs=state.broker_configs if with_broker_configs else None,
        failed=state.failed if with_failed else None,
    )
    addressed = state.brokers if brokers is None else brokers
    return tuple(AddressedRequest(broker, update) for broker in addressed)


def _visible(state: ClusterState) -> Iterator[TopicState]:
    return (topic for name, topic in state.topics.items() if name not in state.deleting)


def _lead_and_follow(
    state: ClusterState, broker: BrokerId, partitions: Sequence[LeaderAndIsrPartition]
) -> Iterator[LeaderAndIsrRequest]:
    for chunk in _portions(partitions):
        yield LeaderAndIsrRequest(
            controller_id=state.controller_id,
            controller_epoch=state.controller_epoch,
            broker_epoch=state.brokers[broker].epoch,
            partitions=chunk,
        )


def _portions(items: Iterable[Item]) -> Iterator[tuple[Item, ...]]:
    left = iter(items)
    while chunk := tuple(islice(left, PARTITIONS_PER_ORDER)):
        yield chunk
