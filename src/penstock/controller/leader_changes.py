"""Leader changes that no failure causes: preferred and unclean elections on request, automatic
rebalancing, and controlled shutdown. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from penstock.controller.alter_partition import check_broker_epoch
from penstock.controller.interface import ApiError
from penstock.controller.leader_election import (
    find_successor,
    find_unclean_leader,
    with_new_leader_epoch,
)
from penstock.controller.partition_changes import by_topic, change_partitions
from penstock.controller.reassignment import finish_reassignments, is_reassigning
from penstock.controller.refusals import get_partition, to_api_error
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.model.admin import ElectionType
from penstock.model.cluster import NO_BROKER, BrokerEpoch, BrokerId, PartitionState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition

Elected = tuple[ControllerDecision, dict[TopicPartition, ApiError | None]]


# ElectLeaders, and automatic rebalancing.


def elect_leaders(
    state: ClusterState, election: ElectionType, partitions: Iterable[TopicPartition] | None
) -> Elected:
    """A result for each partition; if None are named, for those that need an election."""
    elect = _preferred if election is ElectionType.PREFERRED else _unclean
    changed: dict[TopicPartition, PartitionState] = {}
    results: dict[TopicPartition, ApiError | None] = {}
    for tp in _all_partitions(state) if partitions is None else partitions:
        try:
            changed[tp] = elect(state, tp, get_partition(state, tp))
            results[tp] = None
        except Refusal as refusal:
            if partitions is not None or refusal.code is not ErrorCode.ELECTION_NOT_NEEDED:
                results[tp] = to_api_error(refusal)
    changes = by_topic(changed)
    decision = change_partitions(state, changes)
    return decision.then(finish_reassignments(decision.state, topics=changes)), results


def find_imbalanced(state: ClusterState, *, limit_percent: int) -> list[TopicPartition]:
    """Partitions to return to their preferred leader, of the brokers that lead too few of theirs
    (leader.imbalance.per.broker.percentage)."""
    preferred: Counter[BrokerId] = Counter()
    led_elsewhere: dict[BrokerId, list[TopicPartition]] = {}
    for tp in _all_partitions(state):
        partition = state.topics[tp.topic].partitions[tp.partition]
        first = partition.replicas[0]
        preferred[first] += 1
        if partition.leader != first:
            led_elsewhere.setdefault(first, []).append(tp)
    return [
        tp
        for broker, partitions in led_elsewhere.items()
        if broker in state.brokers and len(partitions) * 100 > limit_percent * preferred[broker]
        for tp in partitions
        if _can_elect_preferred(state, state.topics[tp.topic].partitions[tp.partition])
    ]


def _can_elect_preferred(state: ClusterState, partition: PartitionState) -> bool:
    first = partition.replicas[0]
    is_eligible = first in partition.in_sync and first not in state.shutting_down
    return is_eligible and not is_reassigning(partition)


def _preferred(
    state: ClusterState, tp: TopicPartition, partition: PartitionState
) -> PartitionState:
    first = partition.replicas[0]
    if partition.leader == first:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED)
    online = state.online_brokers(tp).difference(state.incomplete_replicas(tp))
    if first not in partition.in_sync or first not in online or first in state.shutting_down:
        raise Refusal(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {first}, the preferred leader, is not in sync or not alive",
        )
    return _led_by(state, partition, first, partition.in_sync)


def _unclean(state: ClusterState, tp: TopicPartition, partition: PartitionState) -> PartitionState:
    if partition.leader != NO_BROKER:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED)
    leader = find_unclean_leader(
        partition, state.online_brokers(tp), state.shutting_down, state.incomplete_replicas(tp)
    )
    if leader is None:
        raise Refusal(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"none of the replicas {list(partition.replicas)} is alive",
        )
    return _led_by(state, partition, leader, (leader,))


# Controlled shutdown.


def controlled_shutdown(
    state: ClusterState, broker: BrokerId, epoch: BrokerEpoch
) -> tuple[ControllerDecision, tuple[TopicPartition, ...]]:
    """Move leadership off the broker and take it out of every ISR that has another member.

    Returns the partitions that it still leads because no other replica is in sync yet. Partitions
    whose other replicas are all offline or shutting down as well are not returned: waiting would
    not help.
    """
    check_broker_epoch(state, broker, epoch)
    marked = replace(state, shutting_down=state.shutting_down | {broker})
    changed = dict(_without_broker(marked, broker))
    decision = change_partitions(marked, by_topic(changed))
    return decision, tuple(_still_led(decision.state, broker))


def _without_broker(
    state: ClusterState, broker: BrokerId
) -> Iterator[tuple[TopicPartition, PartitionState]]:
    for tp in _all_partitions(state):
        partition = state.topics[tp.topic].partitions[tp.partition]
        others = tuple(replica for replica in partition.in_sync if replica != broker)
        if broker not in partition.in_sync or not others or partition.leader == NO_BROKER:
            continue
        staying = [replica for replica in others if replica not in state.shutting_down]
        is_follower = partition.leader != broker
        leader = (
            partition.leader if is_follower else find_successor(partition.replicas, staying, ())
        )
        if leader is not None:
            yield tp, _led_by(state, partition, leader, others)


def _still_led(state: ClusterState, broker: BrokerId) -> Iterator[TopicPartition]:
    """Partitions that another replica can lead once it has caught up."""
    staying = state.brokers.keys() - state.shutting_down
    for tp in _all_partitions(state):
        partition = state.topics[tp.topic].partitions[tp.partition]
        if partition.leader == broker and not staying.isdisjoint(partition.replicas):
            yield tp


# Shared.


def _all_partitions(state: ClusterState) -> Iterator[TopicPartition]:
    return (
        TopicPartition(name, number)
        for name, topic in state.topics.items()
        if name not in state.deleting
        for number in range(len(topic.partitions))
    )


def _led_by(
    state: ClusterState,
    partition: PartitionState,
    leader: BrokerId,
    in_sync: tuple[BrokerId, ...],
) -> PartitionState:
    return with_new_leader_epoch(
        partition, leader=leader, in_sync=in_sync, controller_epoch=state.controller_epoch
    )
