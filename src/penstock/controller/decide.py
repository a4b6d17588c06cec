"""Who leads what when brokers come, go, or a controller takes over. Pure: no clock, no I/O.

A leader comes from the in-sync replicas, in the order of the assignment; from the others only
where the topic allows to lose records for it. Each change raises the partition's leader epoch.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from penstock.controller.orders import everything, roles, stop_replicas, tell
from penstock.controller.state import Addressed, ClusterState, Decision, Writes
from penstock.controller.znodes import encode_state, state_path
from penstock.coordination.interface import SetData
from penstock.model.cluster import (
    NO_BROKER,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    PartitionState,
    TopicState,
)
from penstock.model.ids import LeaderEpoch
from penstock.model.values import dataclass

# Whether a topic's partitions may be led by a replica that was not in sync. Asked only where it
# matters, since the answer means to resolve all of the topic's settings.
AllowsUnclean = Callable[[TopicState], bool]


def take_over(state: ClusterState, allows_unclean: AllowsUnclean) -> Decision:
    """A controller begins: elect where the tree's leader is not alive, then tell every broker."""
    elected = _elect_where_needed(state, state.brokers, frozenset(state.brokers), allows_unclean)
    after = state.with_topics(elected.topics)
    orders = [
        Addressed(broker, order) for broker in after.brokers for order in everything(after, broker)
    ]
    return Decision(state=after, writes=elected.writes, orders=tuple(orders))


def brokers_changed(
    state: ClusterState,
    brokers: Mapping[BrokerId, BrokerNode],
    allows_unclean: AllowsUnclean,
) -> Decision:
    """A broker with another epoch is another life: it left, and came back with what it has."""
    stayed = frozenset(
        broker
        for broker, node in state.brokers.items()
        if broker in brokers and brokers[broker].epoch == node.epoch
    )
    if len(stayed) == len(state.brokers) == len(brokers):
        return Decision(state=state)
    elected = _elect_where_needed(state, brokers, stayed, allows_unclean)
    after = replace(state.with_topics(elected.topics), brokers=dict(brokers))
    come = [broker for broker in brokers if broker not in stayed]
    orders = [
        *roles(after, elected.changed, brokers=stayed),
        *tell(after, brokers=stayed, topics=elected.changed, with_brokers=True),
        *(Addressed(broker, order) for broker in come for order in everything(after, broker)),
    ]
    decision = Decision(state=after, writes=elected.writes, orders=tuple(orders))
    return decision.then(hide_deleted(after, before=state))


def elect_leaderless(
    state: ClusterState, topics: Iterable[str], allows_unclean: AllowsUnclean
) -> Decision:
    """After a setting has changed that may allow what was not allowed."""
    some = {name: state.topics[name] for name in topics if name not in state.deleting}
    part = replace(state, topics=some)
    elected = _elect_where_needed(part, state.brokers, frozenset(state.brokers), allows_unclean)
    after = state.with_topics(elected.topics)
    if not elected.changed:
        return Decision(state=after)
    orders = roles(after, elected.changed, brokers=after.brokers)
    return Decision(
        state=after, writes=elected.writes, orders=orders + tell(after, topics=elected.changed)
    )


def next_state(
    partition: PartitionState,
    *,
    live: Collection[BrokerId],
    stayed: Collection[BrokerId],
    allows_unclean: Callable[[], bool],
    controller_epoch: ControllerEpoch,
) -> PartitionState | None:
    """The partition with those brokers live, of which some stayed so all the time; None: as it is.

    One that came back may have lost the end of its log: it leads only where nobody stayed that
    was in sync, and the others must catch up with it before they are in sync again.
    """
    leader, in_sync = _elect(partition, stayed, lambda: False)
    if leader == NO_BROKER:
        leader, in_sync = _elect(partition, live, allows_unclean)
        in_sync = in_sync if leader == NO_BROKER else (leader,)
    is_same_leader = leader == partition.leader and (leader in stayed or leader == NO_BROKER)
    if is_same_leader and in_sync == partition.in_sync:
        return None
    return raised(partition, leader=leader, in_sync=in_sync, controller_epoch=controller_epoch)


def raised(
    partition: PartitionState,
    *,
    leader: BrokerId,
    in_sync: tuple[BrokerId, ...],
    controller_epoch: ControllerEpoch,
) -> PartitionState:
    return partition._replace(
        leader=leader,
        in_sync=in_sync,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        partition_epoch=partition.partition_epoch + 1,
        controller_epoch=controller_epoch,
    )


def hide_deleted(after: ClusterState, *, before: ClusterState) -> Decision:
    """Clients see no more of a topic when only brokers that are away still have its data."""
    hidden = [name for name in _away(after) if name not in set(_away(before))]
    return Decision(state=after, orders=tell(after, deleted=hidden) if hidden else ())


def stop_deleted(state: ClusterState, topics: Collection[str]) -> tuple[Addressed, ...]:
    """The live brokers that must still remove these topics' data."""
    return tuple(
        Addressed(broker, order)
        for broker in state.brokers
        for order in stop_replicas(
            state, broker, [name for name in topics if broker in state.deleting[name]]
        )
    )


def _away(state: ClusterState) -> Iterator[str]:
    live = state.brokers.keys()
    return (name for name, waiting in state.deleting.items() if waiting and not waiting & live)


def _elect(
    partition: PartitionState, live: Collection[BrokerId], allows_unclean: Callable[[], bool]
) -> tuple[BrokerId, tuple[BrokerId, ...]]:
    """Leader and in-sync replicas, where nobody else than these brokers can serve."""
    in_sync = tuple(broker for broker in partition.in_sync if broker in live)
    if partition.leader in in_sync:
        return partition.leader, in_sync
    for broker in partition.replicas:
        if broker in in_sync:
            return broker, in_sync
    for broker in partition.replicas:
        if broker in live and allows_unclean():
            return broker, (broker,)
    # All of the in-sync replicas are away; whichever comes back first has all that was committed.
    return NO_BROKER, partition.in_sync


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elected:
    topics: tuple[TopicState, ...]
    changed: Mapping[str, tuple[int, ...]]
    writes: tuple[Writes, ...]


def _elect_where_needed(
    state: ClusterState,
    live: Collection[BrokerId],
    stayed: frozenset[BrokerId],
    allows_unclean: AllowsUnclean,
) -> _Elected:
    topics: list[TopicState] = []
    changed: dict[str, tuple[int, ...]] = {}
    for name, topic in state.topics.items():
        if name in state.deleting:
            continue
        found = _elect_topic(state, topic, live, stayed, allows_unclean)
        if found:
            changed[name] = tuple(found)
            partitions = [found.get(n, each) for n, each in enumerate(topic.partitions)]
            topics.append(replace(topic, partitions=tuple(partitions)))
    writes = [(_state_write(topic, number),) for topic in topics for number in changed[topic.name]]
    return _Elected(topics=tuple(topics), changed=changed, writes=tuple(writes))


def _elect_topic(
    state: ClusterState,
    topic: TopicState,
    live: Collection[BrokerId],
    stayed: frozenset[BrokerId],
    allows_unclean: AllowsUnclean,
) -> dict[int, PartitionState]:
    found: dict[int, PartitionState] = {}
    for number, partition in enumerate(topic.partitions):
        if partition.leader in stayed and stayed.issuperset(partition.in_sync):
            continue  # nearly all of them, nearly always
        after = next_state(
            partition,
            live=live,
            stayed=stayed,
            allows_unclean=lambda: allows_unclean(topic),
            controller_epoch=state.controller_epoch,
        )
        if after is not None:
            found[number] = after
    return found


def _state_write(topic: TopicState, number: int) -> SetData:
    partition = topic.partitions[number]
    return SetData(
        path=state_path(topic.name, number),
        data=encode_state(partition),
        version=partition.partition_epoch - 1,
    )
