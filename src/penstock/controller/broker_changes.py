"""Who leads what when brokers come, go, or a controller takes over. Pure: no clock, no I/O.

The rule for one partition is `leaders`'; here it is applied to all that are touched.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from penstock.controller.controller_requests import everything, roles, stop_replicas, tell
from penstock.controller.leader_election import next_state
from penstock.controller.partition_changes import (
    Changes,
    changed_partitions,
    state_writes,
    with_changes,
)
from penstock.controller.reassignment import finish_reassignments
from penstock.controller.state import AddressedRequest, ClusterState, ControllerDecision
from penstock.model.cluster import BrokerId, BrokerNode, PartitionState, TopicState
from penstock.model.ids import TopicPartition

# Whether a topic's partitions may be led by a replica that was not in sync. Asked only where it
# matters, since the answer means to resolve all of the topic's settings.
AllowsUnclean = Callable[[TopicState], bool]

NOBODY: Mapping[TopicPartition, Collection[BrokerId]] = MappingProxyType({})


def fail_over(
    state: ClusterState,
    allows_unclean: AllowsUnclean,
    came_back: Mapping[TopicPartition, Collection[BrokerId]] = NOBODY,
) -> ControllerDecision:
    """A controller begins: elect where the tree's leader is not alive, then tell every broker.

    `came_back`: brokers that are in sync by the tree and have another life since, which no
    controller has seen: they may have lost the end of their logs.
    """
    live = frozenset(state.brokers)
    changes = dict(_elect_where_needed(state, live, live, allows_unclean))
    for name, brokers in came_back.items():
        if name.topic not in state.deleting:
            elected = elect_one(state, name, live.difference(brokers), allows_unclean)
            if elected is not None:
                known = changes.get(name.topic, {})
                changes[name.topic] = {**known, name.partition: elected}
    after = with_changes(state, changes)
    orders = [
        AddressedRequest(broker, order)
        for broker in after.brokers
        for order in everything(after, broker)
    ]
    decision = ControllerDecision(
        state=after, writes=tuple(state_writes(changes)), requests=tuple(orders)
    )
    return decision.then(finish_reassignments(after, topics=after.topics))


def brokers_changed(
    state: ClusterState,
    brokers: Mapping[BrokerId, BrokerNode],
    allows_unclean: AllowsUnclean,
) -> ControllerDecision:
    """A broker with another epoch is another life: it left, and came back with what it has."""
    stayed = frozenset(
        broker
        for broker, node in state.brokers.items()
        if broker in brokers and brokers[broker].epoch == node.epoch
    )
    if len(stayed) == len(state.brokers) == len(brokers):
        return ControllerDecision(state=state)
    failed = _still_failed(state, stayed)
    is_news = failed != state.failed
    state = replace(state, failed=failed)
    changes = _elect_where_needed(state, frozenset(brokers), stayed, allows_unclean)
    after = replace(
        with_changes(state, changes), brokers=dict(brokers), leaving=state.leaving & stayed
    )
    come = [broker for broker in brokers if broker not in stayed]
    orders = [
        *roles(after, changes, brokers=stayed),
        *tell(after, brokers=stayed, topics=changes, with_brokers=True, with_failed=is_news),
        *(
            AddressedRequest(broker, order)
            for broker in come
            for order in everything(after, broker)
        ),
    ]
    decision = ControllerDecision(
        state=after, writes=tuple(state_writes(changes)), requests=tuple(orders)
    )
    decision = decision.then(finish_reassignments(after, topics=changes))
    return decision.then(hide_deleted(decision.state, before=state))


def elect_leaderless(
    state: ClusterState, topics: Iterable[str], allows_unclean: AllowsUnclean
) -> ControllerDecision:
    """After a setting has changed that may allow what was not allowed."""
    some = {name: state.topics[name] for name in topics if name not in state.deleting}
    part = replace(state, topics=some)
    live = frozenset(state.brokers)
    decision = changed_partitions(state, _elect_where_needed(part, live, live, allows_unclean))
    return decision.then(finish_reassignments(decision.state, topics=some))


def elect_one(
    state: ClusterState,
    name: TopicPartition,
    stayed: frozenset[BrokerId],
    allows_unclean: AllowsUnclean,
) -> PartitionState | None:
    """None: it is as it should be."""
    topic = state.topics[name.topic]
    return _elect(state, topic, name.partition, frozenset(state.brokers), stayed, allows_unclean)


def hide_deleted(after: ClusterState, *, before: ClusterState) -> ControllerDecision:
    """Clients see no more of a topic when only brokers that are away still have its data."""
    hidden = [name for name in _away(after) if name not in set(_away(before))]
    return ControllerDecision(state=after, requests=tell(after, deleted=hidden) if hidden else ())


def stop_deleted(state: ClusterState, topics: Collection[str]) -> tuple[AddressedRequest, ...]:
    """The live brokers that must still remove these topics' data."""
    return tuple(
        AddressedRequest(broker, order)
        for broker in state.brokers
        for order in stop_replicas(
            state, broker, [name for name in topics if broker in state.deleting[name]]
        )
    )


def _away(state: ClusterState) -> Iterator[str]:
    live = state.brokers.keys()
    return (name for name, waiting in state.deleting.items() if waiting and not waiting & live)


def _elect_where_needed(
    state: ClusterState,
    live: frozenset[BrokerId],
    stayed: frozenset[BrokerId],
    allows_unclean: AllowsUnclean,
) -> Changes:
    changes: dict[str, dict[int, PartitionState]] = {}
    for name, topic in state.topics.items():
        if name in state.deleting:
            continue
        found = _elect_topic(state, topic, live, stayed, allows_unclean)
        if found:
            changes[name] = found
    return changes


def _elect_topic(
    state: ClusterState,
    topic: TopicState,
    live: frozenset[BrokerId],
    stayed: frozenset[BrokerId],
    allows_unclean: AllowsUnclean,
) -> dict[int, PartitionState]:
    found: dict[int, PartitionState] = {}
    for number, partition in enumerate(topic.partitions):
        if partition.leader in stayed and stayed.issuperset(partition.in_sync):
            continue  # nearly all of them, nearly always
        after = _elect(state, topic, number, live, stayed, allows_unclean)
        if after is not None:
            found[number] = after
    return found


def _elect(
    state: ClusterState,
    topic: TopicState,
    number: int,
    live: frozenset[BrokerId],
    stayed: frozenset[BrokerId],
    allows_unclean: AllowsUnclean,
) -> PartitionState | None:
    failed = state.failed.get(TopicPartition(topic.name, number), ())
    return next_state(
        topic.partitions[number],
        live=live.difference(failed),
        stayed=stayed.difference(failed),
        leaving=state.leaving,
        allows_unclean=lambda: allows_unclean(topic),
        controller_epoch=state.controller_epoch,
    )


def _still_failed(
    state: ClusterState, stayed: frozenset[BrokerId]
) -> dict[TopicPartition, frozenset[BrokerId]]:
    """A broker that came back says anew what it cannot serve."""
    left = ((name, brokers & stayed) for name, brokers in state.failed.items())
    return {name: brokers for name, brokers in left if brokers}
