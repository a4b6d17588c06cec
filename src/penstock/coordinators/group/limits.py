"""The settings that limit how many members groups have, and the refusal that names one of them.

Counts nothing: `member_bytes` and the protocols do.
"""

from penstock.model.errors import ErrorCode, Refusal

MAX_SIZE = "group.max.size"
MAX_PENDING = "group.max.pending.members"
CONSUMER_MAX_SIZE = "group.consumer.max.size"
MAX_BYTES = "group.max.bytes"
COORDINATOR_MAX_BYTES = "group.coordinator.max.bytes"  # of all groups together


class LimitReached(Refusal):
    """A member is refused because of a setting."""

    def __init__(self, limit: str, message: str | None = None) -> None:
        super().__init__(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        self.limit = limit


def find_limit(refusal: Refusal) -> str | None:
    return refusal.limit if isinstance(refusal, LimitReached) else None
