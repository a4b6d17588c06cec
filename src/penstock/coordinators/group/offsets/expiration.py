"""Expiration of committed offsets. Pure.

The group decides when the retention of an offset starts (KIP-211): never while a member reads its
topic; otherwise when the last member left, or with the commit itself.
"""

from collections.abc import Callable

from penstock.coordinators.group.offsets.commands import tombstones
from penstock.coordinators.group.offsets.store import OffsetStore
from penstock.coordinators.group.records import NO_TIME, GroupRecord, OffsetValue

# From a topic and the time of a commit; None: the offset does not expire for now.
ExpiryBase = Callable[[str, int], int | None]


def expire(
    store: OffsetStore,
    group: str,
    expiry_base_ms: ExpiryBase,
    *,
    now_ms: int,
    retention_ms: int,
) -> tuple[GroupRecord, ...]:
    """Tombstones of expired offsets. While a transaction has a pending offset for a partition, the
    committed one stays."""
    pending = store.pending_of(group)
    expired = [
        tp
        for tp, value in store.of_group(group)
        if tp not in pending
        and _is_expired(
            value,
            expiry_base_ms(tp.topic, value.committed_ms),
            now_ms=now_ms,
            retention_ms=retention_ms,
        )
    ]
    return tombstones(group, expired)


def _is_expired(value: OffsetValue, base_ms: int | None, *, now_ms: int, retention_ms: int) -> bool:
    if base_ms is None:
        return False
    if value.expires_ms != NO_TIME:  # an old client set a retention of its own
        return now_ms >= value.expires_ms
    return now_ms - base_ms >= retention_ms
