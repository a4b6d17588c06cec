"""CreatePartitions: validates the request and adds partitions to existing topics. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from penstock.controller.interface import ApiError, NewPartitions
from penstock.controller.new_partitions import (
    CreationDependencies,
    CreationPlan,
    check_factor,
    check_replicas,
    checked_writes,
    new_partitions,
    partition_creation,
)
from penstock.controller.reassignment import is_reassigning
from penstock.controller.refusals import check_named_once, to_api_error, unknown_topic
from penstock.controller.replica_assignment import assign_replicas
from penstock.controller.state import ClusterState, ControllerDecision, WriteStep
from penstock.controller.znodes import encode_topic, topic_path
from penstock.metadata_store.interface import SetData
from penstock.model.cluster import BrokerId, TopicState
from penstock.model.errors import ErrorCode, Refusal

PartitionsCreated = tuple[ControllerDecision, list[ApiError | None]]


def create_partitions(
    state: ClusterState,
    requested: Sequence[NewPartitions],
    dependencies: CreationDependencies,
    *,
    duplicates: Collection[str] = (),
) -> PartitionsCreated:
    plan = CreationPlan(state, dependencies)
    results: list[ApiError | None] = []
    for request in requested:
        try:
            check_named_once(request.name, duplicates)
            before = _get_extensible_topic(plan.state, request)
            plan.reserve(request.total - len(before.partitions))
            after = _with_added(plan.state, before, request)
            added = range(len(before.partitions), request.total)
            plan.add(after, checked_writes(after, _writes(after, added)), added)
            results.append(None)
        except Refusal as refusal:
            results.append(to_api_error(refusal))
    return plan.decision(), results


def _get_extensible_topic(state: ClusterState, request: NewPartitions) -> TopicState:
    topic = state.find_topic(request.name)
    if topic is None:
        raise unknown_topic(state, request.name)
    if any(is_reassigning(partition) for partition in topic.partitions):
        raise Refusal(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"topic {request.name} is being reassigned; add partitions when that is done",
        )
    if request.total <= len(topic.partitions):
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {request.name} has {len(topic.partitions)} partitions; "
            f"{request.total} would not be more, and a topic cannot shrink",
        )
    return topic


def _with_added(state: ClusterState, topic: TopicState, request: NewPartitions) -> TopicState:
    first = len(topic.partitions)
    factor = len(topic.partitions[0].replicas)
    assignment = (
        _assigned(state, topic, request.total - first, factor)
        if request.assignment is None
        else _checked_assignment(state, topic, request, factor)
    )
    added = new_partitions(state, assignment)
    return replace(topic, partitions=topic.partitions + added)


def _assigned(
    state: ClusterState, topic: TopicState, count: int, factor: int
) -> list[tuple[BrokerId, ...]]:
    check_factor(factor, state)
    brokers = list(state.brokers.values())
    # Continue the sequence that started at partition 0, if the brokers are still the same.
    start = sum(1 for broker in state.brokers if broker < topic.partitions[0].replicas[0])
    return assign_replicas(
        brokers,
        partitions=count,
        replication_factor=factor,
        start=start,
        shift=start,
        first_partition=len(topic.partitions),
    )


def _checked_assignment(
    state: ClusterState, topic: TopicState, request: NewPartitions, factor: int
) -> Sequence[tuple[BrokerId, ...]]:
    assert request.assignment is not None
    first = len(topic.partitions)
    if len(request.assignment) != request.total - first:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {request.name} gets {request.total - first} more partitions, but "
            f"{len(request.assignment)} are assigned; assign each of the new ones",
        )
    check_replicas(state, request.name, request.assignment, factor=factor, first=first)
    return request.assignment


def _writes(topic: TopicState, added: range) -> Iterator[WriteStep]:
    data = encode_topic(topic.topic_id, topic.partitions)
    yield (SetData(path=topic_path(topic.name), data=data),)
    for number in added:
        yield partition_creation(topic.name, number, topic.partitions[number])
