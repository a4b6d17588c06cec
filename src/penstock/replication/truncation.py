"""Where a follower's log diverges from its leader's, and where it truncates. Pure.

By leader epochs, never by high watermarks (KIP-101, KIP-279): a follower sends the epoch of its
last record with every fetch, and truncates and fetches again until the leader has that record.
"""

from penstock.model.ids import LeaderEpoch, Offset
from penstock.storage.leader_epoch_cache import OffsetAndEpoch


def find_divergence(
    end: OffsetAndEpoch, *, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch
) -> OffsetAndEpoch | None:
    """`end`: where, in the leader's log, the largest epoch up to the reader's last one ends. It is
    returned if the reader's log differs below its fetch offset."""
    if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    return None


def truncation_offset(
    diverging: OffsetAndEpoch, own: OffsetAndEpoch | None, *, log_end_offset: Offset
) -> Offset:
    """Where to truncate. `own`: where, in this log, the largest epoch up to `diverging` ends.

    Beyond it are records of epochs that the leader does not have; beyond the leader's end of that
    epoch are records of an epoch that both have, but which ended earlier on the leader.
    """
    if own is None:
        return min(diverging.end_offset, log_end_offset)
    return min(diverging.end_offset, own.end_offset, log_end_offset)


def restart_offset(
    *, log_end_offset: Offset, has_records: bool, leader_start_offset: Offset
) -> Offset | None:
    """Where to start over with an empty log after OFFSET_OUT_OF_RANGE; None: keep the log.

    Records are given up only if the leader's log starts beyond all of them. A leader's log that
    ends before them shows by its epochs, as a divergence.
    """
    if leader_start_offset > log_end_offset or not has_records:
        return leader_start_offset
    return None
