"""The data of a classic group: members, generation, state. No decisions.

`replay` alone changes `stored`; the rest is volatile progress towards the next generation.
Invariant: in Stable and Empty the group equals its last record.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from penstock.config.setting import INT_MAX
from penstock.coordinators.group.member_bytes import (
    GROUP_BYTES,
    MEMBER_BYTES,
    PendingMembers,
    protocol_bytes,
    text_bytes,
)
from penstock.coordinators.group.records import (
    NO_TIME,
    GroupKey,
    GroupRecord,
    GroupValue,
    MemberValue,
)
from penstock.coordinators.group.requests import MemberProtocol
from penstock.coordinators.runtime.result import Waiter
from penstock.model.errors import ErrorCode

NO_ASSIGNMENT = b""


class ClassicState(StrEnum):
    """The states, with the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"  # members have to join again
    COMPLETING_REBALANCE = "CompletingRebalance"  # the leader makes the assignment
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """Owned by its group."""

    id: str
    instance: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]  # in order of preference
    assignment: bytes = NO_ASSIGNMENT
    charged_bytes: int = 0  # its share of its group's `member_bytes`
    is_new: bool = False  # no reply to its join yet, so it cannot send heartbeats
    join_waiter: Waiter | None = None  # set and cleared by its group, which counts them
    sync_waiter: Waiter | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether its request is pending, so that it cannot be late. A new member does not count,
        because its client may be gone unnoticed."""
        has_waiter = self.join_waiter is not None or self.sync_waiter is not None
        return has_waiter and not self.is_new

    def count_bytes(self) -> int:
        texts = text_bytes((self.id, self.instance, self.client_id, self.client_host))
        return MEMBER_BYTES + texts + protocol_bytes(self.protocols) + len(self.assignment)

    def find_metadata(self, protocol: str | None) -> bytes | None:
        return next((mine.metadata for mine in self.protocols if mine.name == protocol), None)


@dataclass(slots=True, eq=False)
class ClassicGroupState:
    """Owned by its shard. Deciders change it; `replay` alone changes `stored`."""

    name: str
    stored: GroupValue | None = None  # the last record; None: there is none
    state: ClassicState = ClassicState.EMPTY
    state_since_ms: int = NO_TIME
    generation: int = 0
    protocol_type: str | None = None  # None: only offsets were committed under this name
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)  # instance -> id of its member
    pending: PendingMembers = field(
        default_factory=PendingMembers
    )  # MEMBER_ID_REQUIRED sent, not joined yet (KIP-394)
    unsynced: set[str] = field(
        default_factory=set
    )  # members of this generation that have not synced
    initial_left_ms: int | None = None  # set during the initial rebalance delay
    has_newcomers: bool = False  # some joined during the current initial delay
    join_waiters: dict[Waiter, str] = field(
        default_factory=dict
    )  # -> the member that waits; thousands may join at once
    member_bytes: int = 0  # of `memory_bytes`
    _common: set[str] | None = None  # protocols that all members support; None: unknown

    @property
    def is_vacant(self) -> bool:
        """Whether it has neither members nor a record, so that it need not be kept."""
        is_new = self.state is ClassicState.EMPTY and self.stored is None
        return self.state is ClassicState.DEAD or (is_new and not (self.members or self.pending))

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def memory_bytes(self) -> int:
        """The memory that the group takes."""
        return GROUP_BYTES + len(self.name) + self.pending.bytes + self.member_bytes

    @property
    def joining(self) -> int:
        """How many members wait for the next generation."""
        return len(self.join_waiters)

    @property
    def everyone_joined(self) -> bool:
        return not self.pending and self.joining == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def waiting_to_join(self) -> Iterator[ClassicMember]:
        return (member for member in self.members.values() if member.join_waiter is not None)

    def enter(self, state: ClassicState, now_ms: int) -> None:
        self.state = state
        self.state_since_ms = now_ms

    def wait_for_generation(self, member: ClassicMember, waiter: Waiter) -> None:
        assert member.join_waiter is None, f"{member.id} waits already"
        member.join_waiter = waiter
        self.join_waiters[waiter] = member.id

    def take_join_waiter(self, member: ClassicMember) -> Waiter | None:
        """The waiter of its join, for a reply now."""
        waiter, member.join_waiter = member.join_waiter, None
        if waiter is not None:
            del self.join_waiters[waiter]
        return waiter

    def set_protocols(self, member: ClassicMember, protocols: tuple[MemberProtocol, ...]) -> None:
        if member.protocols != protocols:
            member.protocols = protocols
            self._common = None
        self.charge(member)

    def charge(self, member: ClassicMember) -> None:
        """Count what it costs now."""
        count = member.count_bytes()
        self.member_bytes += count - member.charged_bytes
        member.charged_bytes = count

    def add(self, member: ClassicMember) -> None:
        assert member.join_waiter is None, "a member waits only after it was added"
        self._common = self._common_protocols() & _names(member.protocols) if self.members else None
        self.members[member.id] = member
        self.charge(member)
        self.pending.discard(member.id)
        if member.instance is not None:
            self.instances[member.instance] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member: ClassicMember) -> None:
        assert member.join_waiter is None, "its join would never get a reply"
        del self.members[member.id]
        self.member_bytes -= member.charged_bytes
        self._common = None
        self.unsynced.discard(member.id)
        if member.instance is not None:
            del self.instances[member.instance]
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    def check_member(self, member: str, instance: str | None) -> ErrorCode:
        if instance is not None:
            owner = self.instances.get(instance)
            if owner is not None and owner != member:
                return ErrorCode.FENCED_INSTANCE_ID
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: tuple[MemberProtocol, ...]) -> bool:
        """Whether a member with these protocols could join."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type and protocols)
        offered = _names(protocols)
        return protocol_type == self.protocol_type and bool(
            offered & self._common_protocols() if self.members else offered
        )

    def elect_protocol(self) -> str:
        """Every member votes for its most preferred protocol among those that all support."""
        candidates = self._common_protocols()
        votes = Counter(
            next(mine.name for mine in member.protocols if mine.name in candidates)
            for member in self.members.values()
        )
        return max(votes, key=votes.__getitem__)

    def reset_counts(self) -> None:
        """Recount after `members` was replaced."""
        self.join_waiters = {
            member.join_waiter: member.id
            for member in self.members.values()
            if member.join_waiter is not None
        }
        self.member_bytes = 0
        for member in self.members.values():
            member.charged_bytes = 0
            self.charge(member)
        self._common = None

    def record(self, assignments: Mapping[str, bytes], now_ms: int) -> GroupRecord:
        """The record of the group with its leader's assignments."""
        members = tuple(
            _to_value(member, self.protocol, assignments.get(member.id, NO_ASSIGNMENT))
            for member in self.members.values()
        )
        value = GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_since_ms=now_ms,
            members=members,
        )
        return GroupRecord(GroupKey(self.name), value)

    def find_id_change(self, instance: str, member: str) -> GroupRecord | None:
        """The stored record with the current id of a static member; None: it has that already."""
        stored = self.stored
        ids = {value.instance: value.member for value in stored.members} if stored else {}
        old = ids.get(instance, member)
        if stored is None or old == member:
            return None
        members = tuple(
            replace(value, member=member) if value.member == old else value
            for value in stored.members
        )
        leader = member if stored.leader == old else stored.leader
        return GroupRecord(GroupKey(self.name), replace(stored, members=members, leader=leader))

    def empty_record(self, now_ms: int) -> GroupRecord:
        """The record of the group without members, in the next generation."""
        value = GroupValue(
            protocol_type=self.protocol_type or "",
            generation=next_generation(self.generation),
            protocol=None,
            leader=None,
            state_since_ms=now_ms,
        )
        return GroupRecord(GroupKey(self.name), value)

    def _common_protocols(self) -> set[str]:
        if self._common is None:
            self._common = set.intersection(
                *(_names(member.protocols) for member in self.members.values())
            )
        return self._common


def _names(protocols: tuple[MemberProtocol, ...]) -> set[str]:
    return {protocol.name for protocol in protocols}


def next_generation(generation: int) -> int:
    return generation + 1 if generation < INT_MAX else 1


def replay(group: ClassicGroupState, value: GroupValue | None) -> None:
    """Applies a record, whether it was just written or is read after a restart.

    Waiters, and protocols other than the elected one, are in no record, so they are kept.
    """
    group.stored = value
    if value is not None and _is_id_change(group, value):
        return
    members = () if value is None else value.members
    protocol = None if value is None else value.protocol
    group.members = {
        member.member: _restore(group.members.get(member.member), member, protocol)
        for member in members
    }
    group.instances = {
        member.instance: member.member for member in members if member.instance is not None
    }
    group.pending.discard_all(group.members)
    group.unsynced &= group.members.keys()
    group.initial_left_ms = None
    group.reset_counts()
    if value is None:
        group.pending = PendingMembers()
        group.state = ClassicState.DEAD
        return
    group.protocol_type = value.protocol_type or None
    group.generation, group.protocol, group.leader = value.generation, protocol, value.leader
    group.state_since_ms = value.state_since_ms
    group.state = ClassicState.STABLE if members else ClassicState.EMPTY


def _is_id_change(group: ClassicGroupState, value: GroupValue) -> bool:
    """The record is of the generation before the one in progress, which continues unchanged."""
    if group.state is ClassicState.PREPARING_REBALANCE:
        return bool(value.members)
    is_other = value.generation != group.generation
    return group.state is ClassicState.COMPLETING_REBALANCE and bool(value.members) and is_other


def _to_value(member: ClassicMember, protocol: str | None, assignment: bytes) -> MemberValue:
    subscription = member.find_metadata(protocol)
    assert subscription is not None, f"{member.id} does not support {protocol}, yet it was elected"
    return MemberValue(
        member=member.id,
        instance=member.instance,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def _restore(
    current: ClassicMember | None, value: MemberValue, protocol: str | None
) -> ClassicMember:
    restored = ClassicMember(
        id=value.member,
        instance=value.instance,
        client_id=value.client_id,
        client_host=value.client_host,
        session_timeout_ms=value.session_timeout_ms,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        protocols=(MemberProtocol(protocol or "", value.subscription),),
        assignment=value.assignment,
    )
    if current is not None:
        restored.is_new = current.is_new
        restored.join_waiter, restored.sync_waiter = current.join_waiter, current.sync_waiter
        if current.find_metadata(protocol) == value.subscription:
            restored.protocols = current.protocols
    return restored
