"""Topics that get more partitions: what is refused and why, and how the rest is made. Pure."""

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
    asked: Sequence[NewPartitions],
    means: CreationDependencies,
    *,
    twice: Collection[str] = (),
) -> PartitionsCreated:
    plan = CreationPlan(state, means)
    answers: list[ApiError | None] = []
    for more in asked:
        try:
            check_named_once(more.name, twice)
            before = _topic_to_grow(plan.state, more)
            plan.count(more.total - len(before.partitions))
            grown = _grown(plan.state, before, more)
            added = range(len(before.partitions), more.total)
            plan.add(grown, checked_writes(grown, _growth(grown, added)), added)
            answers.append(None)
        except Refusal as refusal:
            answers.append(to_api_error(refusal))
    return plan.decision(), answers


def _topic_to_grow(state: ClusterState, more: NewPartitions) -> TopicState:
    topic = state.find_topic(more.name)
    if topic is None:
        raise unknown_topic(state, more.name)
    if any(each.adding or each.removing for each in topic.partitions):
        raise Refusal(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"topic {more.name} is being reassigned; add partitions when that is done",
        )
    if more.total <= len(topic.partitions):
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {more.name} has {len(topic.partitions)} partitions; {more.total} would not be "
            f"more, and a topic cannot shrink",
        )
    return topic


def _grown(state: ClusterState, topic: TopicState, more: NewPartitions) -> TopicState:
    first = len(topic.partitions)
    factor = len(topic.partitions[0].replicas)
    assignment = (
        _chosen_growth(state, topic, more.total - first, factor)
        if more.assignment is None
        else _given_growth(state, topic, more, factor)
    )
    added = new_partitions(state, assignment)
    return replace(topic, partitions=topic.partitions + added)


def _chosen_growth(
    state: ClusterState, topic: TopicState, count: int, factor: int
) -> list[tuple[BrokerId, ...]]:
    check_factor(factor, state)
    brokers = list(state.brokers.values())
    # Go on where partition 0 began, as far as the brokers are still the same.
    start = sum(1 for broker in state.brokers if broker < topic.partitions[0].replicas[0])
    return assign_replicas(
        brokers,
        partitions=count,
        replication_factor=factor,
        start=start,
        shift=start,
        first_partition=len(topic.partitions),
    )


def _given_growth(
    state: ClusterState, topic: TopicState, more: NewPartitions, factor: int
) -> Sequence[tuple[BrokerId, ...]]:
    assert more.assignment is not None
    first = len(topic.partitions)
    if len(more.assignment) != more.total - first:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {more.name} gets {more.total - first} more partitions, but "
            f"{len(more.assignment)} are assigned; assign each of the added ones",
        )
    check_replicas(state, more.name, more.assignment, factor=factor, first=first)
    return more.assignment


def _growth(topic: TopicState, added: range) -> Iterator[WriteStep]:
    data = encode_topic(topic.topic_id, topic.partitions)
    yield (SetData(path=topic_path(topic.name), data=data),)
    for number in added:
        yield partition_creation(topic.name, number, topic.partitions[number])
