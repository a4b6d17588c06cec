"""The memory that members of groups cost, as an estimate that is the same on every machine.

Not a measurement: texts, metadata and partitions at their size, and a flat share for the objects
around them. Invariant: what a member adds to its group's sum, its removal takes away.
"""

from collections.abc import Iterable

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.limits import COORDINATOR_MAX_BYTES, MAX_BYTES

GROUP_BYTES = 1024  # of a group without members
MEMBER_BYTES = 1024  # of a member: its object, its session timer and its waiting request
PENDING_BYTES = 512  # of an id that was given out: its timer
NAME_BYTES = 128  # of a protocol or a topic besides its text
PARTITION_BYTES = 64  # of an assigned partition


def text_bytes(texts: Iterable[str | None]) -> int:
    return sum(len(text) for text in texts if text)


def protocol_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(NAME_BYTES + len(name) + len(metadata) for name, metadata in protocols)


class PendingMembers(set[str]):
    """Ids that were given out with MEMBER_ID_REQUIRED, and what they cost."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def add(self, member: str) -> None:
        if member not in self:
            self.bytes += PENDING_BYTES + len(member)
            super().add(member)

    def discard(self, member: object) -> None:
        if isinstance(member, str) and member in self:
            self.bytes -= PENDING_BYTES + len(member)
            super().discard(member)

    def discard_all(self, members: Iterable[str]) -> None:
        for member in self.intersection(members):
            self.discard(member)


def find_memory_limit(
    added_bytes: int, group_bytes: int, *, config: GroupConfig, free_bytes: int
) -> str | None:
    """The setting by which a group may not grow so much: the group's own, or the coordinator's by
    what it has left. A group that does not grow may always change."""
    if added_bytes <= 0:
        return None
    if group_bytes + added_bytes > config.group_max_bytes:
        return MAX_BYTES
    return COORDINATOR_MAX_BYTES if added_bytes > free_bytes else None


class MemberBudget:
    """The memory of all groups that a broker coordinates. Owned by the coordinator.

    It admits nobody itself: a group that a replay brings back is charged even above the limit.
    """

    def __init__(self) -> None:
        self.used_bytes = 0


class GroupCharges:
    """One shard's share of the budget, by group. Owned by the shard's state."""

    def __init__(self, budget: MemberBudget) -> None:
        self._budget = budget
        self._charged: dict[str, int] = {}

    def free_bytes(self, config: GroupConfig) -> int:
        return config.coordinator_max_bytes - self._budget.used_bytes

    def charge(self, group: str, count: int) -> None:
        """The group costs this now; 0: it is gone."""
        self._budget.used_bytes += count - self._charged.pop(group, 0)
        if count:
            self._charged[group] = count

    def release(self) -> None:
        """The state is dropped as a whole."""
        for group in list(self._charged):
            self.charge(group, 0)
