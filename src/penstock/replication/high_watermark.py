"""How far a partition is committed. Pure: offsets in, an offset out."""

from collections.abc import Iterable

from penstock.model.ids import Offset

UNKNOWN_END = Offset(-1)  # of a follower that has not fetched from this leader yet


def next_high_watermark(current: Offset, in_sync_end_offsets: Iterable[Offset]) -> Offset:
    """Everything below is on every replica that is in sync, the leader's own among them.

    Never back: what readers have seen stays committed, whoever joins the set.
    """
    return max(current, min(in_sync_end_offsets, default=current))
