"""Which committed offsets have outlived their use: pure, from the store and the group's word.

The group says since when an offset has been without use (KIP-211): while a member reads its topic
it never is; else from when the last member left, or from its own commit on.
"""

from collections.abc import Callable

from penstock.coordinators.group.offsets.commands import tombstones
from penstock.coordinators.group.offsets.store import OffsetStore
from penstock.coordinators.group.records import NO_TIME, GroupRecord, OffsetValue

# Of a topic and the time of a commit; None: in use, or not to be touched for now.
UnusedSince = Callable[[str, int], int | None]


def expire(
    store: OffsetStore,
    group: str,
    unused_since_ms: UnusedSince,
    *,
    now_ms: int,
    retention_ms: int,
) -> tuple[GroupRecord, ...]:
    """Tombstones of what is over. What an open transaction commits to stays until its end."""
    pending = store.pending_of(group)
    over = [
        partition
        for partition, value in store.of_group(group)
        if partition not in pending
        and _is_over(
            value,
            unused_since_ms(partition.topic, value.committed_ms),
            now_ms=now_ms,
            retention_ms=retention_ms,
        )
    ]
    return tombstones(group, over)


def _is_over(value: OffsetValue, since_ms: int | None, *, now_ms: int, retention_ms: int) -> bool:
    if since_ms is None:
        return False
    if value.expires_ms != NO_TIME:  # an old client asked for a retention of its own
        return now_ms >= value.expires_ms
    return now_ms - since_ms >= retention_ms
