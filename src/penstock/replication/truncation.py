"""Where a follower's log and its leader's part, and what the follower does about it. Pure.

By leader epochs, never by high watermarks (KIP-101, KIP-279): a follower tells the epoch of its
last record with every fetch, and cuts and asks again until the leader knows that record.
"""

from penstock.model.ids import LeaderEpoch, Offset
from penstock.storage.leader_epoch_cache import EpochEndOffset


def find_divergence(
    end: EpochEndOffset, *, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch
) -> EpochEndOffset | None:
    """`end`: where, in the leader's log, the largest epoch up to the reader's last one ends. The
    answer is that again if the reader has something else below its fetch offset."""
    if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    return None


def truncation_offset(
    diverging: EpochEndOffset, own: EpochEndOffset | None, *, log_end_offset: Offset
) -> Offset:
    """Where to cut. `own`: where, in this log, the largest epoch up to the leader's answer ends.

    Beyond it are records of epochs that the leader has not; beyond the leader's end of that epoch
    are some of an epoch that both know, but which the leader ended earlier.
    """
    if own is None:
        return min(diverging.end_offset, log_end_offset)
    return min(diverging.end_offset, own.end_offset, log_end_offset)


def restart_offset(
    *, log_end_offset: Offset, has_records: bool, leader_start_offset: Offset
) -> Offset | None:
    """Where to go on, empty, after the leader has nothing at this log's end; None: not like that.

    Records are given up only where the leader begins behind all of them. That it ends before them
    is told by epochs, as a divergence.
    """
    if leader_start_offset > log_end_offset or not has_records:
        return leader_start_offset
    return None
