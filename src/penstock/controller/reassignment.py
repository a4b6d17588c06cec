"""Partition reassignment (KIP-455): new replicas are added, catch up, and then replace the old.

Pure. While a reassignment is in progress a partition has both sets of replicas, the target's
first, and the topic's znode lists those being added and removed. Each step writes the partition
states before the topic's znode: after a crash in between, the reassignment has not begun or is
still in progress.
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
from penstock.controller.new_partitions import MAX_REPLICATION_FACTOR
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
    reassignments: Sequence[Reassignment],
    *,
    allow_replication_factor_change: bool = True,
) -> tuple[ControllerDecision, list[ApiError | None]]:
    """Start or cancel reassignments; those whose targets are all in sync finish at once."""
    changed: dict[TopicPartition, PartitionState] = {}
    results: list[ApiError | None] = []
    for reassignment in reassignments:
        tp = reassignment.tp
        try:
            current = changed.get(tp) or get_partition(state, tp)
            target = _checked_target(
                state,
                reassignment,
                current,
                allow_replication_factor_change=allow_replication_factor_change,
            )
            if target != current.replicas or is_reassigning(current):
                changed[tp] = _retargeted(state, tp, current, target)
            results.append(None)
        except Refusal as refusal:
            results.append(to_api_error(refusal))
    started = _reassign(state, changed)
    return started.then(finish_reassignments(started.state, topics=by_topic(changed))), results


def finish_reassignments(state: ClusterState, *, topics: Iterable[str]) -> ControllerDecision:
    """Finish the reassignments whose target replicas are all in sync; others stay in progress."""
    changed = {
        TopicPartition(name, number): _finished(state, partition)
        for name in topics
        if name not in state.deleting
        for number, partition in enumerate(state.topics[name].partitions)
        if is_reassigning(partition) and _is_caught_up(partition)
    }
    return _reassign(state, changed)


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


# The request.


def _checked_target(
    state: ClusterState,
    reassignment: Reassignment,
    current: PartitionState,
    *,
    allow_replication_factor_change: bool,
) -> tuple[BrokerId, ...]:
    tp, replicas = reassignment
    if replicas is None:
        if not is_reassigning(current):
            raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return origin_of(current)
    problem = _find_problem(state, current, replicas)
    if problem is not None:
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{tp} {problem}")
    factor = len(origin_of(current))
    if not allow_replication_factor_change and len(replicas) != factor:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{tp} has {factor} replicas, not {len(replicas)}, and the request does not allow a "
            f"replication factor change",
        )
    return replicas


def _find_problem(
    state: ClusterState, current: PartitionState, target: tuple[BrokerId, ...]
) -> str | None:
    if not target:
        return "would have no replica; name at least one broker"
    if len(set(target)) != len(target):
        return f"would have a broker twice: {list(target)}"
    if len(target) > MAX_REPLICATION_FACTOR:
        return f"would have {len(target)} replicas; at most {MAX_REPLICATION_FACTOR} are allowed"
    offline = [
        broker
        for broker in target
        if broker not in state.brokers and broker not in current.replicas
    ]
    if offline:
        return f"would move to {offline}, which are not alive; alive are {sorted(state.brokers)}"
    return None


# The steps of one partition.


def _retargeted(
    state: ClusterState,
    tp: TopicPartition,
    current: PartitionState,
    target: tuple[BrokerId, ...],
) -> PartitionState:
    """Reassigned to the target; replaces a reassignment in progress."""
    origin = origin_of(current)
    removing = _without(origin, target)
    after = current._replace(
        replicas=(*target, *removing), adding=_without(target, origin), removing=removing
    )
    return _with_valid_leader(state, tp, after, current)


def _finished(state: ClusterState, partition: PartitionState) -> PartitionState:
    after = partition._replace(replicas=target_of(partition), adding=(), removing=())
    return _with_valid_leader(state, None, after, partition)


def _is_caught_up(partition: PartitionState) -> bool:
    return partition.leader != NO_BROKER and set(target_of(partition)) <= set(partition.in_sync)


def _with_valid_leader(
    state: ClusterState,
    tp: TopicPartition | None,
    after: PartitionState,
    before: PartitionState,
) -> PartitionState:
    """Leader and ISR limited to the new replicas. If a replica is dropped the leader epoch rises,
    which fences it in case its StopReplica is delayed."""
    if set(before.replicas) <= set(after.replicas):
        return with_new_partition_epoch(after, state.controller_epoch)
    in_sync = tuple(broker for broker in before.in_sync if broker in after.replicas)
    leader: BrokerId | None = before.leader
    if leader not in (NO_BROKER, *in_sync):
        leader = find_successor(after.replicas, in_sync, state.shutting_down)
    if leader is None or not in_sync:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{tp} cannot be reduced to {list(after.replicas)}: none of them is in sync, so "
            "records would be lost",
        )
    return with_new_leader_epoch(
        after, leader=leader, in_sync=in_sync, controller_epoch=state.controller_epoch
    )


def _without(brokers: tuple[BrokerId, ...], others: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return tuple(broker for broker in brokers if broker not in others)


# Writes and requests.


def _reassign(
    state: ClusterState, changed: Mapping[TopicPartition, PartitionState]
) -> ControllerDecision:
    if not changed:
        return ControllerDecision(state=state)
    changes = by_topic(changed)
    after = with_changes(state, changes)
    requests = stop_partition_requests(after, _dropped_replicas(state, changed))
    requests += leader_and_isr_requests(after, changes, brokers=after.brokers)
    requests += update_metadata_requests(after, topics=changes)
    return ControllerDecision(state=after, writes=tuple(_writes(after, changes)), requests=requests)


def _dropped_replicas(
    state: ClusterState, changed: Mapping[TopicPartition, PartitionState]
) -> dict[BrokerId, list[TopicPartition]]:
    """The replicas that live brokers must delete, by broker."""
    dropped: dict[BrokerId, list[TopicPartition]] = {}
    for tp, after in changed.items():
        for broker in _without(get_partition(state, tp).replicas, after.replicas):
            if broker in state.brokers:
                dropped.setdefault(broker, []).append(tp)
    return dropped


def _writes(after: ClusterState, changes: Changes) -> Iterator[WriteStep]:
    yield from state_writes(changes)
    for name in changes:
        topic = after.topics[name]
        data = encode_topic(topic.topic_id, topic.partitions)
        yield (SetData(path=topic_path(name), data=data),)
