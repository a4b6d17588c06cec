"""Leaders that change although nobody died: preferred ones, unclean ones on demand, and those of a
broker that is about to stop. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from penstock.controller.interface import ApiError, ElectionType
from penstock.controller.leader_election import find_successor, raised
from penstock.controller.partition_changes import by_topic, changed_partitions
from penstock.controller.reassignment import finish_reassignments, is_reassigning
from penstock.controller.refusals import get_partition, refused
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.model.cluster import NO_BROKER, BrokerEpoch, BrokerId, PartitionState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition

Elected = tuple[ControllerDecision, dict[TopicPartition, ApiError | None]]


# On demand (ElectLeaders), and by the clock.


def elect_leaders(
    state: ClusterState, choice: ElectionType, partitions: Iterable[TopicPartition] | None
) -> Elected:
    """An answer for each that is named; where none are, for those that need an election."""
    elect = _preferred if choice is ElectionType.PREFERRED else _unclean
    changed: dict[TopicPartition, PartitionState] = {}
    answers: dict[TopicPartition, ApiError | None] = {}
    for name in _all_partitions(state) if partitions is None else partitions:
        try:
            changed[name] = elect(state, get_partition(state, name), state.able(name))
            answers[name] = None
        except Refusal as refusal:
            if partitions is not None or refusal.code is not ErrorCode.ELECTION_NOT_NEEDED:
                answers[name] = refused(refusal)
    changes = by_topic(changed)
    decision = changed_partitions(state, changes)
    return decision.then(finish_reassignments(decision.state, topics=changes)), answers


def find_imbalanced(state: ClusterState, *, limit_percent: int) -> list[TopicPartition]:
    """What should go back to its preferred leader: of the brokers that lead too few of theirs."""
    preferred: Counter[BrokerId] = Counter()
    elsewhere: dict[BrokerId, list[TopicPartition]] = {}
    for name in _all_partitions(state):
        partition = state.topics[name.topic].partitions[name.partition]
        first = partition.replicas[0]
        preferred[first] += 1
        if partition.leader != first:
            elsewhere.setdefault(first, []).append(name)
    return [
        name
        for broker, names in elsewhere.items()
        if broker in state.brokers and len(names) * 100 > limit_percent * preferred[broker]
        for name in names
        if _can_go_back(state, state.topics[name.topic].partitions[name.partition])
    ]


def _can_go_back(state: ClusterState, partition: PartitionState) -> bool:
    first = partition.replicas[0]
    return (
        first in partition.in_sync and first not in state.leaving and not is_reassigning(partition)
    )


def _preferred(
    state: ClusterState, partition: PartitionState, able: frozenset[BrokerId]
) -> PartitionState:
    first = partition.replicas[0]
    if partition.leader == first:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED)
    if first not in partition.in_sync or first not in able or first in state.leaving:
        raise Refusal(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {first}, the preferred leader, is not in sync or not alive",
        )
    return _led_by(state, partition, first, partition.in_sync)


def _unclean(
    state: ClusterState, partition: PartitionState, able: frozenset[BrokerId]
) -> PartitionState:
    if partition.leader != NO_BROKER:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED)
    found = find_successor(partition.replicas, able, state.leaving)
    if found is None:
        raise Refusal(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"none of the replicas {list(partition.replicas)} is alive",
        )
    return _led_by(state, partition, found, (found,))


# Of a broker that is about to stop.


def controlled_shutdown(
    state: ClusterState, broker: BrokerId, epoch: BrokerEpoch
) -> tuple[ControllerDecision, tuple[TopicPartition, ...]]:
    """Others lead what it led, and it is in sync nowhere where another is. What nobody else can
    lead yet is left to it, and named; what nobody will is not waited for."""
    known = state.brokers.get(broker)
    if known is None or known.epoch != epoch:
        raise Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker} of epoch {epoch} is not registered; nothing of it has to be moved",
        )
    marked = replace(state, leaving=state.leaving | {broker})
    changed = dict(_handed_over(marked, broker))
    decision = changed_partitions(marked, by_topic(changed))
    return decision, tuple(_still_led(decision.state, broker))


def _handed_over(
    state: ClusterState, broker: BrokerId
) -> Iterator[tuple[TopicPartition, PartitionState]]:
    for name in _all_partitions(state):
        partition = state.topics[name.topic].partitions[name.partition]
        others = tuple(each for each in partition.in_sync if each != broker)
        if broker not in partition.in_sync or not others or partition.leader == NO_BROKER:
            continue
        able = [each for each in others if each not in state.leaving]
        follows = partition.leader != broker
        leader = partition.leader if follows else find_successor(partition.replicas, able, ())
        if leader is not None:
            yield name, _led_by(state, partition, leader, others)


def _still_led(state: ClusterState, broker: BrokerId) -> Iterator[TopicPartition]:
    """What another may lead once it has caught up; where all others go as well, none will."""
    staying = state.brokers.keys() - state.leaving
    for name in _all_partitions(state):
        partition = state.topics[name.topic].partitions[name.partition]
        if partition.leader == broker and not staying.isdisjoint(partition.replicas):
            yield name


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
    return raised(
        partition, leader=leader, in_sync=in_sync, controller_epoch=state.controller_epoch
    )
