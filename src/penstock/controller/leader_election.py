"""Leader election for one partition, given the live brokers. Pure: no clock, no I/O.

The leader is the first replica of the assignment that is in the ISR. A replica outside the ISR
leads only if the topic allows unclean election, because records are lost then. A member of the ISR
that has lost records leads only if every member has. Every election raises the leader epoch.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from penstock.model.broker_report import NEVER_CREATED, LogPosition
from penstock.model.cluster import NO_BROKER, BrokerId, ControllerEpoch, PartitionState
from penstock.model.ids import LeaderEpoch

Incomplete = Mapping[BrokerId, LogPosition]  # live brokers that have lost records of a partition

NONE_INCOMPLETE: Incomplete = MappingProxyType({})

_Elected = tuple[BrokerId, tuple[BrokerId, ...]]  # leader and ISR


def elect_leader(
    partition: PartitionState,
    *,
    live: Collection[BrokerId],
    stayed: Collection[BrokerId],
    shutting_down: Collection[BrokerId] = (),
    incomplete: Incomplete = NONE_INCOMPLETE,
    allows_unclean: Callable[[], bool],
    controller_epoch: ControllerEpoch,
) -> PartitionState | None:
    """The partition's next state, or None if nothing changes.

    `stayed` are the live brokers that have not restarted. A restarted broker may have lost the end
    of its log, so it leads only if no broker of the ISR stayed; the other replicas must then catch
    up with it before they are in sync again. One in `incomplete` has lost records for certain.
    """
    whole_stayed = [broker for broker in stayed if broker not in incomplete]
    leader, in_sync = _elect_clean(partition, whole_stayed, shutting_down)
    if leader == NO_BROKER:
        leader, in_sync = _elect_restarted(
            partition, live, shutting_down, incomplete, allows_unclean
        )
    is_same_leader = leader == partition.leader and leader in (NO_BROKER, *whole_stayed)
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


def find_unclean_leader(
    partition: PartitionState,
    live: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
    incomplete: Incomplete,
) -> BrokerId | None:
    """The live replica that loses the fewest records: an in-sync replica with a log, as all of
    these are incomplete; else one that is not known to be incomplete; at last one without a log."""
    with_log = [broker for broker, position in incomplete.items() if position.has_records]
    in_sync = [broker for broker in partition.in_sync if broker in live and broker in with_log]
    if in_sync:
        return _longest(partition, in_sync, incomplete)
    whole = [broker for broker in live if broker not in incomplete]
    leader = find_successor(partition.replicas, whole, shutting_down)
    return find_successor(partition.replicas, live, shutting_down) if leader is None else leader


def _elect_clean(
    partition: PartitionState, live: Collection[BrokerId], shutting_down: Collection[BrokerId]
) -> _Elected:
    """The election if only the brokers of `live` can serve."""
    in_sync = tuple(broker for broker in partition.in_sync if broker in live)
    if partition.leader in in_sync:
        return partition.leader, in_sync
    successor = find_successor(partition.replicas, in_sync, shutting_down)
    if successor is not None:
        return successor, in_sync
    # The whole ISR is offline. Keep it: any of its members has every committed record.
    return NO_BROKER, partition.in_sync


def _elect_restarted(
    partition: PartitionState,
    live: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
    incomplete: Incomplete,
    allows_unclean: Callable[[], bool],
) -> _Elected:
    """The election if no broker of the ISR stayed. The leader is alone in sync."""
    whole = [broker for broker in live if broker not in incomplete]
    leader, in_sync = _elect_clean(partition, whole, shutting_down)
    if leader != NO_BROKER:
        return leader, (leader,)
    leader, in_sync = _elect_incomplete(partition, live, incomplete)
    if leader != NO_BROKER:
        return leader, in_sync
    # A replica without a log leads only on request: the setting accepts the loss of some records.
    with_log = [
        broker for broker in live if broker not in incomplete or incomplete[broker].has_records
    ]
    unclean = find_unclean_leader(partition, with_log, shutting_down, incomplete)
    if unclean is not None and allows_unclean():
        return unclean, (unclean,)
    return NO_BROKER, partition.in_sync


def _elect_incomplete(
    partition: PartitionState, live: Collection[BrokerId], incomplete: Incomplete
) -> _Elected:
    """The longest log of the ISR, if every member is back and has lost records, as after a power
    cut of all. Without any log an operator decides, because the disks may come back; unless
    creation was cut short everywhere, or there is no other replica to wait for."""
    in_sync = partition.in_sync
    if not all(broker in live and broker in incomplete for broker in in_sync):
        return NO_BROKER, in_sync
    leader = _longest(partition, in_sync, incomplete)
    if incomplete[leader].has_records:
        return leader, (leader,)
    is_new = all(incomplete[broker] == NEVER_CREATED for broker in in_sync)
    if set(partition.replicas) <= set(in_sync) and (is_new or len(partition.replicas) == 1):
        return leader, in_sync
    return NO_BROKER, in_sync  # a replica outside the ISR may have most of the records


def _longest(
    partition: PartitionState, brokers: Collection[BrokerId], incomplete: Incomplete
) -> BrokerId:
    """The first in the assignment's order if several are equally long."""
    candidates = [broker for broker in partition.replicas if broker in brokers]
    return max(candidates, key=lambda broker: incomplete[broker])
