"""How far a follower is, as its leader sees it, and what follows from it. Pure: no clock, no I/O.

A follower's end is what it has asked for next: it vouches for everything below, on its disk if the
topic is synchronous.
"""

from typing import NamedTuple

from penstock.model.cluster import BrokerEpoch
from penstock.model.ids import Offset
from penstock.replication.high_watermark import UNKNOWN_END

NEVER_MS = -(2**62)
NO_BROKER_EPOCH = BrokerEpoch(-1)  # of a follower that does not tell


class LagLimits(NamedTuple):
    max_ms: int  # replica.lag.time.max.ms
    max_messages: int = -1  # replica.lag.max.messages; -1 is off


class FollowerProgress(NamedTuple):
    """Of one follower under one leader epoch. Times are the leader's, of its steady clock."""

    end_offset: Offset  # UNKNOWN_END until its first fetch
    caught_up_ms: int  # when it last had all that the leader had
    fetched_ms: int  # of its last fetch
    leader_end_offset: Offset  # at its last fetch
    broker_epoch: BrokerEpoch  # of the life that fetched last


def first_progress(*, is_in_sync: bool, now_ms: int) -> FollowerProgress:
    """Of a follower that has not fetched under this epoch. One in sync gets the whole time to."""
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
    """A follower that always asks for what the leader had at its last fetch is never late, however
    fast the leader's log grows."""
    caught_up_ms = before.caught_up_ms
    if offset >= leader_end_offset:
        caught_up_ms = now_ms
    elif before.end_offset != UNKNOWN_END and offset >= before.leader_end_offset:
        caught_up_ms = max(caught_up_ms, before.fetched_ms)
    return FollowerProgress(offset, caught_up_ms, now_ms, leader_end_offset, broker_epoch)


def is_lagging(
    progress: FollowerProgress, *, leader_end_offset: Offset, limits: LagLimits, now_ms: int
) -> bool:
    """Who has all there is does not lag, however long nobody wrote (KAFKA-7152)."""
    end_offset = progress.end_offset
    if end_offset == leader_end_offset:
        return False
    if now_ms - progress.caught_up_ms > limits.max_ms:
        return True
    is_counted = limits.max_messages >= 0 and end_offset != UNKNOWN_END
    return is_counted and leader_end_offset - end_offset > limits.max_messages


def is_keeping_up(
    progress: FollowerProgress, *, leader_end_offset: Offset, limits: LagLimits, now_ms: int
) -> bool:
    """Outside of the in-sync set, and about to be in it: the high watermark waits for it, or under
    a steady load it would run away before the follower has reached it."""
    if progress.end_offset == UNKNOWN_END or now_ms - progress.caught_up_ms >= limits.max_ms:
        return False
    is_counted = limits.max_messages >= 0
    return not is_counted or leader_end_offset - progress.end_offset <= limits.max_messages


def may_join(
    progress: FollowerProgress, *, high_watermark: Offset, epoch_start_offset: Offset
) -> bool:
    """Whether it has all that is committed: also what an earlier leader committed, of which this
    one's high watermark may not know yet (KAFKA-7128)."""
    return progress.end_offset >= max(high_watermark, epoch_start_offset)
