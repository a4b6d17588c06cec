"""What a member does next: start where, retry or give up. Pure: time is an argument."""

from typing import NamedTuple


class Retry(NamedTuple):
    wait_s: float
    gives_up: bool = False


def next_retry(
    *, failed_for_s: float, max_retries: int, backoff_s: float, slack_s: float = 0.0
) -> Retry:
    """After a failed attempt, `failed_for_s` after the first one since the group last changed.

    A claim that conflicts is tried again as soon as its owner lets go, so that retries are counted
    in back-offs that have passed, not in attempts.
    """
    left_s = max_retries * backoff_s + slack_s - failed_for_s
    return Retry(wait_s=max(0.0, min(backoff_s, left_s)), gives_up=left_s <= 0)


def start_offset(
    *, stored: int | None, last_stored: int | None, position: int | None
) -> int | None:
    """Where to read a partition that was just claimed; None: by auto.offset.reset.

    `stored` is in the store now, `last_stored` what this member knew to be there, `position` the
    offset after the last message that this member returned, if it has read the partition before.
    If nobody has committed since, everything below the position was returned here, so that reading
    on there repeats nothing and skips nothing.
    """
    if position is not None and stored is not None and stored == last_stored:
        return max(position, stored)
    return stored


def newest_offset(*stored: int | None) -> int | None:
    """Of several stores: the largest, because a store that was not written lags behind."""
    return max((offset for offset in stored if offset is not None), default=None)
