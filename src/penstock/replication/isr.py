"""Who is in sync with a leader: as the controller stored it, and as the leader proposed. Pure.

While a proposal is open nobody knows which of the two sets is the cluster's (KIP-497). So what is
committed must be on every member of both, and only members of both may be counted on.
"""

from collections.abc import Mapping

from penstock.model.cluster import BrokerId, PartitionState
from penstock.model.ids import Offset
from penstock.replication.follower_progress import FollowerProgress, LagLimits, is_lagging, may_join

Members = tuple[BrokerId, ...]


def maximal(stored: Members, proposed: Members | None) -> Members:
    """Of whom each may be elected next: the high watermark waits for them all."""
    if proposed is None:
        return stored
    return stored + tuple(each for each in proposed if each not in stored)


def assured(stored: Members, proposed: Members | None) -> Members:
    """Who is in sync whatever becomes of the proposal: min.insync.replicas counts them."""
    if proposed is None:
        return stored
    return tuple(each for each in stored if each in proposed)


def without_laggards(
    state: PartitionState,
    followers: Mapping[BrokerId, FollowerProgress],
    *,
    leader_end_offset: Offset,
    limits: LagLimits,
    now_ms: int,
) -> Members:
    """The stored set less the followers that lag. The leader stays: it is none of them."""
    return tuple(
        each
        for each in state.in_sync
        if each not in followers
        or not is_lagging(
            followers[each], leader_end_offset=leader_end_offset, limits=limits, now_ms=now_ms
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
    """The stored set, with the follower if it has earned it."""
    if follower in state.in_sync or follower not in state.replicas:
        return state.in_sync
    if not may_join(progress, high_watermark=high_watermark, epoch_start_offset=epoch_start_offset):
        return state.in_sync
    return (*state.in_sync, follower)
