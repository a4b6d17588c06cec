"""The ISR as the controller stored it and as the leader proposed it. Pure.

While an AlterPartition is in flight, either of the two may be the stored one (KIP-497). So the high
watermark waits for the members of both, and min.insync.replicas counts only the members of both.
"""

from collections.abc import Mapping

from penstock.model.cluster import BrokerId, PartitionState
from penstock.model.ids import Offset
from penstock.replication.follower_progress import FollowerProgress, LagLimits, is_lagging, may_join

Members = tuple[BrokerId, ...]


def maximal(stored: Members, proposed: Members | None) -> Members:
    """The maximal ISR: any member may be elected next, so the high watermark waits for all."""
    if proposed is None:
        return stored
    return stored + tuple(replica for replica in proposed if replica not in stored)


def assured(stored: Members, proposed: Members | None) -> Members:
    """Replicas in sync whichever ISR is stored; min.insync.replicas counts them."""
    if proposed is None:
        return stored
    return tuple(replica for replica in stored if replica in proposed)


def without_laggards(
    state: PartitionState,
    followers: Mapping[BrokerId, FollowerProgress],
    *,
    leader_end_offset: Offset,
    limits: LagLimits,
    now_ms: int,
) -> Members:
    """The stored ISR without the lagging followers. The leader always stays."""
    return tuple(
        replica
        for replica in state.in_sync
        if replica not in followers
        or not is_lagging(
            followers[replica], leader_end_offset=leader_end_offset, limits=limits, now_ms=now_ms
        )
    )


def with_joiner(
    state: PartitionState,
    follower: BrokerId,
    progress: FollowerProgress,
    *,
    high_watermark: Offset,
    epoch_start_offset: Offset,
) -> Members:
    """The stored ISR, with the follower if it may join."""
    if follower in state.in_sync or follower not in state.replicas:
        return state.in_sync
    if not may_join(progress, high_watermark=high_watermark, epoch_start_offset=epoch_start_offset):
        return state.in_sync
    return (*state.in_sync, follower)
