"""Partitions that move to other brokers (KIP-455): the new replicas join, catch up, then take over.

Pure. While a move is under way a partition has the replicas of both, the target's first, and its
topic's node says which are added and removed. Each step writes the partitions' states before the
topic's node: cut short in between, the move has not begun or is still under way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from penstock.controller.controller_requests import (
    leader_and_isr_requests,
    stop_partition_requests,
    update_metadata_requests,
)
from penstock.controller.interface import ApiError, Reassignment
from penstock.controller.leader_election import (
    find_successor,
    with_new_leader_epoch,
    with_new_partition_epoch,
)
from penstock.controller.partition_changes import Changes, by_topic, state_writes, with_changes
from penstock.controller.refusals import get_partition, to_api_error
from penstock.controller.state import ClusterState, ControllerDecision, WriteStep
from penstock.controller.znodes import encode_topic, topic_path
from penstock.metadata_store.interface import SetData
from penstock.model.cluster import NO_BROKER, BrokerId, PartitionState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition


def alter_reassignments(
    state: ClusterState,
    moves: Sequence[Reassignment],
    *,
    allow_replication_factor_change: bool = True,
) -> tuple[ControllerDecision, list[ApiError | None]]:
    """Begin these moves, or end them; what needs nobody to catch up is done at once."""
    changed: dict[TopicPartition, PartitionState] = {}
    answers: list[ApiError | None] = []
    for move in moves:
        try:
            current = changed.get(move.tp) or get_partition(state, move.tp)
            target = _target(
                state,
                move,
                current,
                allow_replication_factor_change=allow_replication_factor_change,
            )
            if target != current.replicas or is_reassigning(current):
                changed[move.tp] = _redirected(state, move.tp, current, target)
            answers.append(None)
        except Refusal as refusal:
            answers.append(to_api_error(refusal))
    begun = _moved(state, changed)
    return begun.then(finish_reassignments(begun.state, topics=by_topic(changed))), answers


def finish_reassignments(state: ClusterState, *, topics: Iterable[str]) -> ControllerDecision:
    """End the moves of which every target replica is in sync; the others go on."""
    changed = {
        TopicPartition(name, number): _finished(state, partition)
        for name in topics
        if name not in state.deleting
        for number, partition in enumerate(state.topics[name].partitions)
        if is_reassigning(partition) and _has_arrived(partition)
    }
    return _moved(state, changed)


def find_reassignments(state: ClusterState) -> dict[TopicPartition, PartitionState]:
    return {
        TopicPartition(name, number): partition
        for name, topic in state.topics.items()
        if name not in state.deleting
        for number, partition in enumerate(topic.partitions)
        if is_reassigning(partition)
    }


def is_reassigning(partition: PartitionState) -> bool:
    return bool(partition.adding or partition.removing)


def target_of(partition: PartitionState) -> tuple[BrokerId, ...]:
    return _without(partition.replicas, partition.removing)


def origin_of(partition: PartitionState) -> tuple[BrokerId, ...]:
    return _without(partition.replicas, partition.adding)


# What is asked for.


def _target(
    state: ClusterState,
    move: Reassignment,
    current: PartitionState,
    *,
    allow_replication_factor_change: bool,
) -> tuple[BrokerId, ...]:
    if move.replicas is None:
        if not is_reassigning(current):
            raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return origin_of(current)
    problem = _find_problem(state, current, move.replicas)
    if problem is not None:
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{move.tp} {problem}")
    factor = len(origin_of(current))
    if not allow_replication_factor_change and len(move.replicas) != factor:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{move.tp} has {factor} replicas, not {len(move.replicas)}, and the request "
            f"does not allow to change that",
        )
    return move.replicas


def _find_problem(
    state: ClusterState, current: PartitionState, target: tuple[BrokerId, ...]
) -> str | None:
    if not target:
        return "would have no replica; name at least one broker"
    if len(set(target)) != len(target):
        return f"would have a broker twice: {list(target)}"
    away = [each for each in target if each not in state.brokers and each not in current.replicas]
    if away:
        return f"would move to {away}, which are not alive; alive are {sorted(state.brokers)}"
    return None


# The steps of one partition.


def _redirected(
    state: ClusterState,
    name: TopicPartition,
    current: PartitionState,
    target: tuple[BrokerId, ...],
) -> PartitionState:
    """On its way to the target, from wherever it was on its way to."""
    origin = origin_of(current)
    removing = _without(origin, target)
    after = current._replace(
        replicas=(*target, *removing), adding=_without(target, origin), removing=removing
    )
    return _within(state, name, after, current)


def _finished(state: ClusterState, partition: PartitionState) -> PartitionState:
    after = partition._replace(replicas=target_of(partition), adding=(), removing=())
    return _within(state, None, after, partition)


def _has_arrived(partition: PartitionState) -> bool:
    return partition.leader != NO_BROKER and set(target_of(partition)) <= set(partition.in_sync)


def _within(
    state: ClusterState,
    name: TopicPartition | None,
    after: PartitionState,
    before: PartitionState,
) -> PartitionState:
    """Led and in sync by the replicas that it has now. Who is no replica any more is fenced by the
    new epoch, since it may not have heard."""
    if set(before.replicas) <= set(after.replicas):
        return with_new_partition_epoch(after, state.controller_epoch)
    in_sync = tuple(each for each in before.in_sync if each in after.replicas)
    leader: BrokerId | None = before.leader
    if leader not in (NO_BROKER, *in_sync):
        leader = find_successor(after.replicas, in_sync, state.shutting_down)
    if leader is None or not in_sync:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{name} cannot be left to {list(after.replicas)}, of which none is in sync; records "
            f"would be lost",
        )
    return with_new_leader_epoch(
        after, leader=leader, in_sync=in_sync, controller_epoch=state.controller_epoch
    )


def _without(brokers: tuple[BrokerId, ...], others: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return tuple(broker for broker in brokers if broker not in others)


# What is written and ordered.


def _moved(
    state: ClusterState, changed: Mapping[TopicPartition, PartitionState]
) -> ControllerDecision:
    if not changed:
        return ControllerDecision(state=state)
    changes = by_topic(changed)
    after = with_changes(state, changes)
    orders = stop_partition_requests(after, _dropped(state, changed))
    orders += leader_and_isr_requests(after, changes, brokers=after.brokers)
    orders += update_metadata_requests(after, topics=changes)
    return ControllerDecision(state=after, writes=tuple(_writes(after, changes)), requests=orders)


def _dropped(
    state: ClusterState, changed: Mapping[TopicPartition, PartitionState]
) -> dict[BrokerId, list[TopicPartition]]:
    """Live brokers that have replicas which they are to hold no more."""
    found: dict[BrokerId, list[TopicPartition]] = {}
    for name, after in changed.items():
        for broker in _without(get_partition(state, name).replicas, after.replicas):
            if broker in state.brokers:
                found.setdefault(broker, []).append(name)
    return found


def _writes(after: ClusterState, changes: Changes) -> Iterator[WriteStep]:
    yield from state_writes(changes)
    for name in changes:
        topic = after.topics[name]
        data = encode_topic(topic.topic_id, topic.partitions)
        yield (SetData(path=topic_path(name), data=data),)
