"""A follower's progress as its leader sees it, and the ISR rules on it. Pure: no clock, no I/O.

A follower's end offset is its fetch offset: the follower has everything below, flushed if the
topic is synchronous.
"""

from typing import Final, NamedTuple

from penstock.model.cluster import BrokerEpoch
from penstock.model.ids import Offset
from penstock.replication.high_watermark import UNKNOWN_END

NEVER_MS: Final = -(2**62)
NO_BROKER_EPOCH: Final = BrokerEpoch(-1)  # of a follower that does not send its epoch


class LagLimits(NamedTuple):
    max_ms: int  # replica.lag.time.max.ms
    max_messages: int = -1  # replica.lag.max.messages; -1 is off


class FollowerProgress(NamedTuple):
    """One follower in one leader epoch. Times are from the leader's monotonic clock."""

    end_offset: Offset  # UNKNOWN_END until its first fetch
    caught_up_ms: int  # when it last had everything up to the leader's log end offset
    fetched_ms: int  # of its last fetch
    leader_end_offset: Offset  # at its last fetch
    broker_epoch: BrokerEpoch  # of its last fetch


def first_progress(*, is_in_sync: bool, now_ms: int) -> FollowerProgress:
    """Progress before the first fetch in this epoch. An in-sync follower gets
    replica.lag.time.max.ms."""
    caught_up_ms = now_ms if is_in_sync else NEVER_MS
    return FollowerProgress(UNKNOWN_END, caught_up_ms, now_ms, UNKNOWN_END, NO_BROKER_EPOCH)


def progress_after_fetch(
    before: FollowerProgress,
    *,
    offset: Offset,
    leader_end_offset: Offset,
    broker_epoch: BrokerEpoch,
    now_ms: int,
) -> FollowerProgress:
    """A follower that fetches from at least the leader's end at its previous fetch was caught up
    then, however fast the leader's log grows."""
    caught_up_ms = before.caught_up_ms
    if offset >= leader_end_offset:
        caught_up_ms = now_ms
    elif before.end_offset != UNKNOWN_END and offset >= before.leader_end_offset:
        caught_up_ms = max(caught_up_ms, before.fetched_ms)
    return FollowerProgress(offset, caught_up_ms, now_ms, leader_end_offset, broker_epoch)


def is_lagging(
    progress: FollowerProgress, *, leader_end_offset: Offset, limits: LagLimits, now_ms: int
) -> bool:
    """A follower at the leader's log end offset is in sync regardless of elapsed time
    (KAFKA-7152)."""
    end_offset = progress.end_offset
    if end_offset == leader_end_offset:
        return False
    if now_ms - progress.caught_up_ms > limits.max_ms:
        return True
    is_limited = limits.max_messages >= 0 and end_offset != UNKNOWN_END
    return is_limited and leader_end_offset - end_offset > limits.max_messages


def is_keeping_up(
    progress: FollowerProgress, *, leader_end_offset: Offset, limits: LagLimits, now_ms: int
) -> bool:
    """Whether a follower outside the ISR is about to join it. The high watermark waits for it, or
    under steady load it would advance faster than the follower catches up."""
    if progress.end_offset == UNKNOWN_END or now_ms - progress.caught_up_ms >= limits.max_ms:
        return False
    is_limited = limits.max_messages >= 0
    return not is_limited or leader_end_offset - progress.end_offset <= limits.max_messages


def may_join(
    progress: FollowerProgress, *, high_watermark: Offset, epoch_start_offset: Offset
) -> bool:
    """Whether it has everything committed, including what an earlier leader committed and this
    leader's high watermark may not cover yet (KAFKA-7128)."""
    return progress.end_offset >= max(high_watermark, epoch_start_offset)
