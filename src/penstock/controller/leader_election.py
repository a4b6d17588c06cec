"""Leader election for one partition, given the live brokers. Pure: no clock, no I/O.

The leader is the first replica of the assignment that is in the ISR. A replica outside the ISR
leads only if the topic allows unclean election, because records are lost then. Every election
raises the leader epoch.
"""

from collections.abc import Callable, Collection, Iterable

from penstock.model.cluster import NO_BROKER, BrokerId, ControllerEpoch, PartitionState
from penstock.model.ids import LeaderEpoch


def elect_leader(
    partition: PartitionState,
    *,
    live: Collection[BrokerId],
    stayed: Collection[BrokerId],
    shutting_down: Collection[BrokerId] = (),
    allows_unclean: Callable[[], bool],
    controller_epoch: ControllerEpoch,
) -> PartitionState | None:
    """The partition's next state, or None if nothing changes.

    `stayed` are the live brokers that have not restarted. A restarted broker may have lost the end
    of its log, so it leads only if no broker of the ISR stayed; the other replicas must then catch
    up with it before they are in sync again.
    """
    leader, in_sync = _elect(partition, stayed, shutting_down, lambda: False)
    if leader == NO_BROKER:
        leader, in_sync = _elect(partition, live, shutting_down, allows_unclean)
        in_sync = in_sync if leader == NO_BROKER else (leader,)
    is_same_leader = leader == partition.leader and (leader in stayed or leader == NO_BROKER)
    if is_same_leader and in_sync == partition.in_sync:
        return None
    return with_new_leader_epoch(
        partition, leader=leader, in_sync=in_sync, controller_epoch=controller_epoch
    )


def with_new_leader_epoch(
    partition: PartitionState,
    *,
    leader: BrokerId,
    in_sync: tuple[BrokerId, ...],
    controller_epoch: ControllerEpoch,
) -> PartitionState:
    """A new leadership, possibly of the same broker."""
    changed = partition._replace(
        leader=leader,
        in_sync=in_sync,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
    )
    return with_new_partition_epoch(changed, controller_epoch)


def with_new_partition_epoch(
    partition: PartitionState, controller_epoch: ControllerEpoch
) -> PartitionState:
    """The same leadership, written once more, by this controller."""
    return partition._replace(
        partition_epoch=partition.partition_epoch + 1, controller_epoch=controller_epoch
    )


def find_successor(
    candidates: Iterable[BrokerId],
    in_sync: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
) -> BrokerId | None:
    """The first candidate in sync; one in controlled shutdown only if there is no other."""
    eligible = [broker for broker in candidates if broker in in_sync]
    staying = (broker for broker in eligible if broker not in shutting_down)
    return next(staying, eligible[0] if eligible else None)


def _elect(
    partition: PartitionState,
    live: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
    allows_unclean: Callable[[], bool],
) -> tuple[BrokerId, tuple[BrokerId, ...]]:
    """Leader and ISR if only the brokers of `live` can serve."""
    in_sync = tuple(broker for broker in partition.in_sync if broker in live)
    if partition.leader in in_sync:
        return partition.leader, in_sync
    successor = find_successor(partition.replicas, in_sync, shutting_down)
    if successor is not None:
        return successor, in_sync
    unclean = find_successor(partition.replicas, live, shutting_down)
    if unclean is not None and allows_unclean():
        return unclean, (unclean,)
    # The whole ISR is offline. Keep it: any of its members has every committed record.
    return NO_BROKER, partition.in_sync
