"""Who leads one partition, given who is there. Pure: no clock, no I/O, no other partition.

A leader comes from the in-sync replicas, in the order of the assignment; from the others only
where the topic allows to lose records for it. Each new leader raises the leader epoch.
"""

from collections.abc import Callable, Collection, Iterable

from penstock.model.cluster import NO_BROKER, BrokerId, ControllerEpoch, PartitionState
from penstock.model.ids import LeaderEpoch


def next_state(
    partition: PartitionState,
    *,
    live: Collection[BrokerId],
    stayed: Collection[BrokerId],
    leaving: Collection[BrokerId] = (),
    allows_unclean: Callable[[], bool],
    controller_epoch: ControllerEpoch,
) -> PartitionState | None:
    """The partition with those brokers live, of which some stayed so all the time; None: as it is.

    One that came back may have lost the end of its log: it leads only where nobody stayed that
    was in sync, and the others must catch up with it before they are in sync again.
    """
    leader, in_sync = _elect(partition, stayed, leaving, lambda: False)
    if leader == NO_BROKER:
        leader, in_sync = _elect(partition, live, leaving, allows_unclean)
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
    """Another leadership, though perhaps of the same broker."""
    changed = partition._replace(
        leader=leader,
        in_sync=in_sync,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
    )
    return touched(changed, controller_epoch)


def touched(partition: PartitionState, controller_epoch: ControllerEpoch) -> PartitionState:
    """As it is, but for being written once more, by this controller."""
    return partition._replace(
        partition_epoch=partition.partition_epoch + 1, controller_epoch=controller_epoch
    )


def find_successor(
    candidates: Iterable[BrokerId], in_sync: Collection[BrokerId], leaving: Collection[BrokerId]
) -> BrokerId | None:
    """The first in sync of those; one that is about to leave only where there is no other."""
    able = [broker for broker in candidates if broker in in_sync]
    return next((broker for broker in able if broker not in leaving), able[0] if able else None)


def _elect(
    partition: PartitionState,
    live: Collection[BrokerId],
    leaving: Collection[BrokerId],
    allows_unclean: Callable[[], bool],
) -> tuple[BrokerId, tuple[BrokerId, ...]]:
    """Leader and in-sync replicas, where nobody else than these brokers can serve."""
    in_sync = tuple(broker for broker in partition.in_sync if broker in live)
    if partition.leader in in_sync:
        return partition.leader, in_sync
    successor = find_successor(partition.replicas, in_sync, leaving)
    if successor is not None:
        return successor, in_sync
    unclean = find_successor(partition.replicas, live, leaving)
    if unclean is not None and allows_unclean():
        return unclean, (unclean,)
    # All of the in-sync replicas are away; whichever comes back first has all that was committed.
    return NO_BROKER, partition.in_sync
