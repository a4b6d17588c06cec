"""Elections when brokers register, fail or restart, and when a controller takes over.

Pure: no clock, no I/O. `leader_election` has the rule for one partition; this module applies it to
every affected partition.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from penstock.controller.controller_requests import (
    full_state_requests,
    leader_and_isr_requests,
    stop_topic_requests,
    update_metadata_requests,
)
from penstock.controller.incomplete_replicas import list_reported
from penstock.controller.leader_election import elect_leader
from penstock.controller.partition_changes import (
    Changes,
    change_partitions,
    state_writes,
    with_changes,
)
from penstock.controller.reassignment import finish_reassignments
from penstock.controller.state import AddressedRequest, ClusterState, ControllerDecision
from penstock.model.broker_report import BrokerReport
from penstock.model.cluster import BrokerId, BrokerNode, PartitionState, TopicState
from penstock.model.ids import TopicPartition

# Whether the topic allows unclean leader election. Called only if the ISR is offline, because it
# resolves the topic's whole config.
AllowsUnclean = Callable[[TopicState], bool]

NO_BROKERS: Mapping[TopicPartition, Collection[BrokerId]] = MappingProxyType({})
NO_REPORTS: Mapping[BrokerId, BrokerReport] = MappingProxyType({})


def fail_over(
    state: ClusterState,
    allows_unclean: AllowsUnclean,
    restarted: Mapping[TopicPartition, Collection[BrokerId]] = NO_BROKERS,
) -> ControllerDecision:
    """Controller failover: elect where the stored leader is not alive, then send every broker the
    full state.

    `restarted`: members of a stored ISR that restarted while there was no controller. They may
    have lost the end of their logs.
    """
    live = frozenset(state.brokers)
    changes = dict(_elect_where_needed(state, live, live, allows_unclean))
    for tp in (*restarted, *list_reported(state)):
        if tp.topic not in state.deleting:
            stayed = live.difference(restarted.get(tp, ()))
            elected = elect_partition(state, tp, stayed, allows_unclean)
            if elected is not None:
                changes[tp.topic] = {**changes.get(tp.topic, {}), tp.partition: elected}
    after = with_changes(state, changes)
    requests = [
        AddressedRequest(broker, request)
        for broker in after.brokers
        for request in full_state_requests(after, broker)
    ]
    decision = ControllerDecision(
        state=after, writes=tuple(state_writes(changes)), requests=tuple(requests)
    )
    return decision.then(finish_reassignments(after, topics=after.topics))


def brokers_changed(
    state: ClusterState,
    brokers: Mapping[BrokerId, BrokerNode],
    allows_unclean: AllowsUnclean,
    reports: Mapping[BrokerId, BrokerReport] = NO_REPORTS,
) -> ControllerDecision:
    """A broker whose epoch changed has restarted: it failed, then registered again.

    `reports`: of the brokers that have registered, written before that.
    """
    stayed = frozenset(
        broker
        for broker, node in state.brokers.items()
        if broker in brokers and brokers[broker].epoch == node.epoch
    )
    if len(stayed) == len(state.brokers) == len(brokers):
        return ControllerDecision(state=state)
    failed = _still_failed(state, stayed)
    failed_changed = failed != state.failed
    remaining = {broker: state.reports[broker] for broker in stayed & state.reports.keys()}
    state = replace(state, failed=failed, reports={**remaining, **reports})
    changes = _elect_where_needed(state, frozenset(brokers), stayed, allows_unclean)
    after = replace(
        with_changes(state, changes),
        brokers=dict(brokers),
        shutting_down=state.shutting_down & stayed,
    )
    registered = [broker for broker in brokers if broker not in stayed]
    requests = [
        *leader_and_isr_requests(after, changes, brokers=stayed),
        *update_metadata_requests(
            after, brokers=stayed, topics=changes, with_brokers=True, with_failed=failed_changed
        ),
        *(
            AddressedRequest(broker, request)
            for broker in registered
            for request in full_state_requests(after, broker)
        ),
    ]
    decision = ControllerDecision(
        state=after, writes=tuple(state_writes(changes)), requests=tuple(requests)
    )
    decision = decision.then(finish_reassignments(after, topics=changes))
    return decision.then(unpublish_deleted(decision.state, before=state))


def elect_leaderless(
    state: ClusterState, topics: Iterable[str], allows_unclean: AllowsUnclean
) -> ControllerDecision:
    """Elect leaders after a config change that may have enabled unclean leader election."""
    selected = {name: state.topics[name] for name in topics if name not in state.deleting}
    partial = replace(state, topics=selected)
    live = frozenset(state.brokers)
    decision = change_partitions(state, _elect_where_needed(partial, live, live, allows_unclean))
    return decision.then(finish_reassignments(decision.state, topics=selected))


def elect_partition(
    state: ClusterState,
    tp: TopicPartition,
    stayed: frozenset[BrokerId],
    allows_unclean: AllowsUnclean,
) -> PartitionState | None:
    """The next state, or None if no election is needed."""
    topic = state.topics[tp.topic]
    return _elect(state, topic, tp.partition, frozenset(state.brokers), stayed, allows_unclean)


def unpublish_deleted(after: ClusterState, *, before: ClusterState) -> ControllerDecision:
    """Remove a topic from the metadata once only offline brokers still have replicas of it."""
    earlier = set(_on_offline_brokers(before))
    deleted = [name for name in _on_offline_brokers(after) if name not in earlier]
    return ControllerDecision(
        state=after, requests=update_metadata_requests(after, deleted=deleted) if deleted else ()
    )


def stop_deleted_requests(
    state: ClusterState, topics: Collection[str]
) -> tuple[AddressedRequest, ...]:
    """StopReplica to the live brokers that still have replicas of these topics."""
    return tuple(
        AddressedRequest(broker, request)
        for broker in state.brokers
        for request in stop_topic_requests(
            state, broker, [name for name in topics if broker in state.deleting[name]]
        )
    )


def _on_offline_brokers(state: ClusterState) -> Iterator[str]:
    live = state.brokers.keys()
    return (name for name, brokers in state.deleting.items() if brokers and not brokers & live)


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
        elected = _elect_topic(state, topic, live, stayed, allows_unclean)
        if elected:
            changes[name] = elected
    return changes


def _elect_topic(
    state: ClusterState,
    topic: TopicState,
    live: frozenset[BrokerId],
    stayed: frozenset[BrokerId],
    allows_unclean: AllowsUnclean,
) -> dict[int, PartitionState]:
    elected: dict[int, PartitionState] = {}
    for number, partition in enumerate(topic.partitions):
        if partition.leader in stayed and stayed.issuperset(partition.in_sync):
            continue  # the common case, checked first
        after = _elect(state, topic, number, live, stayed, allows_unclean)
        if after is not None:
            elected[number] = after
    return elected


def _elect(
    state: ClusterState,
    topic: TopicState,
    number: int,
    live: frozenset[BrokerId],
    stayed: frozenset[BrokerId],
    allows_unclean: AllowsUnclean,
) -> PartitionState | None:
    tp = TopicPartition(topic.name, number)
    failed = state.failed.get(tp, ())
    return elect_leader(
        topic.partitions[number],
        live=live.difference(failed),
        stayed=stayed.difference(failed),
        shutting_down=state.shutting_down,
        incomplete=state.incomplete_replicas(tp),
        allows_unclean=lambda: allows_unclean(topic),
        controller_epoch=state.controller_epoch,
    )


def _still_failed(
    state: ClusterState, stayed: frozenset[BrokerId]
) -> dict[TopicPartition, frozenset[BrokerId]]:
    """A restarted broker reports its failed replicas again."""
    remaining = ((tp, brokers & stayed) for tp, brokers in state.failed.items())
    return {tp: brokers for tp, brokers in remaining if brokers}
