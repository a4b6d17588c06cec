"""The high watermark rule. Pure: offsets in, an offset out."""

from collections.abc import Iterable

from penstock.model.ids import Offset

UNKNOWN_END = Offset(-1)  # the follower has not fetched from this leader yet


def next_high_watermark(current: Offset, in_sync_end_offsets: Iterable[Offset]) -> Offset:
    """Everything below is on every in-sync replica, the leader included.

    It never moves back: what consumers have seen stays committed, whichever replica joins the ISR.
    """
    return max(current, min(in_sync_end_offsets, default=current))
