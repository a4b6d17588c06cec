"""A group of the classic protocol: its members, generation and phase. Data and its questions only.

What was stored changes by `replay` alone; the rest is the work towards the next generation.
Invariant: in Stable and Empty the group is what its last record says.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from penstock.config.setting import INT_MAX
from penstock.coordinators.group.records import (
    NO_TIME,
    GroupKey,
    GroupRecord,
    GroupValue,
    MemberValue,
)
from penstock.coordinators.group.requests import MemberProtocol
from penstock.coordinators.runtime.pending_replies import Waiter
from penstock.model.errors import ErrorCode

NO_ASSIGNMENT = b""


class ClassicState(StrEnum):
    """Named as clients see them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"  # members are called to join again
    COMPLETING_REBALANCE = "CompletingRebalance"  # the leader makes the assignment
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, kw_only=True)
class Member:
    """Owned by its group."""

    id: str
    instance: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]  # in the order of its liking
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False  # has not been answered a join yet, so it cannot send heartbeats
    join_waiter: Waiter | None = None  # set and cleared by its group, which counts
    sync_waiter: Waiter | None = None

    @property
    def is_heard(self) -> bool:
        """A member that waits for us cannot be late; only a new one may have gone unseen."""
        waits = self.join_waiter is not None or self.sync_waiter is not None
        return waits and not self.is_new

    def find_metadata(self, protocol: str | None) -> bytes | None:
        return next((each.metadata for each in self.protocols if each.name == protocol), None)


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """Owned by its shard; deciders change it, `replay` alone changes `stored`."""

    name: str
    stored: GroupValue | None = None  # as of the last record; None: there is none
    state: ClassicState = ClassicState.EMPTY
    state_since_ms: int = NO_TIME
    generation: int = 0
    protocol_type: str | None = None  # None: only offsets were committed under this name
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)  # instance -> id of its member
    pending: set[str] = field(default_factory=set)  # ids handed out, owner not back (KIP-394)
    unsynced: set[str] = field(default_factory=set)  # members of this generation yet to sync
    initial_left_ms: int | None = None  # set while the first members are waited for
    has_newcomers: bool = False  # some came during the initial delay that runs
    joining: int = 0  # members whose join waits; counted, as thousands may come at a time
    _common: set[str] | None = None  # names of protocols that all members offer; None: look

    @property
    def is_vacant(self) -> bool:
        """Nothing is known of it: if it has no offsets either, it need not be kept."""
        is_new = self.state is ClassicState.EMPTY and self.stored is None
        return self.state is ClassicState.DEAD or (is_new and not (self.members or self.pending))

    @property
    def everyone_joined(self) -> bool:
        return not self.pending and self.joining == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def waiting_to_join(self) -> Iterator[Member]:
        return (each for each in self.members.values() if each.join_waiter is not None)

    def enter(self, state: ClassicState, now_ms: int) -> None:
        self.state = state
        self.state_since_ms = now_ms

    def wait_for_generation(self, member: Member, waiter: Waiter) -> None:
        assert member.join_waiter is None, f"{member.id} waits already"
        member.join_waiter = waiter
        self.joining += 1

    def take_join_waiter(self, member: Member) -> Waiter | None:
        """Whoever waits for it to join, who is to be answered now."""
        waiter, member.join_waiter = member.join_waiter, None
        self.joining -= waiter is not None
        return waiter

    def set_protocols(self, member: Member, protocols: tuple[MemberProtocol, ...]) -> None:
        if member.protocols != protocols:
            member.protocols = protocols
            self._common = None

    def add(self, member: Member) -> None:
        assert member.join_waiter is None, "it begins to wait when it is in"
        self._common = self._common_protocols() & _names(member.protocols) if self.members else None
        self.members[member.id] = member
        self.pending.discard(member.id)
        if member.instance is not None:
            self.instances[member.instance] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member: Member) -> None:
        assert member.join_waiter is None, "it would never be answered"
        del self.members[member.id]
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
        """Whether a member that offers these could be one of the group."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type and protocols)
        offered = _names(protocols)
        return protocol_type == self.protocol_type and bool(
            offered & self._common_protocols() if self.members else offered
        )

    def elect_protocol(self) -> str:
        """Every member votes for the one it likes best of those that all know."""
        candidates = self._common_protocols()
        votes = Counter(
            next(each.name for each in member.protocols if each.name in candidates)
            for member in self.members.values()
        )
        return max(votes, key=votes.__getitem__)

    def forget_counts(self) -> None:
        """After its members were exchanged."""
        self.joining = sum(1 for _ in self.waiting_to_join())
        self._common = None

    def record(self, assignments: Mapping[str, bytes], now_ms: int) -> GroupRecord:
        """The group as it shall stand, with what its leader assigned."""
        members = tuple(
            _to_value(each, self.protocol, assignments.get(each.id, NO_ASSIGNMENT))
            for each in self.members.values()
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

    def find_renaming(self, instance: str, member: str) -> GroupRecord | None:
        """What is stored, but with the id that a static member has now; None: it has it already."""
        stored = self.stored
        names = {each.instance: each.member for each in stored.members} if stored else {}
        old = names.get(instance, member)
        if stored is None or old == member:
            return None
        members = tuple(
            replace(each, member=member) if each.member == old else each for each in stored.members
        )
        leader = member if stored.leader == old else stored.leader
        return GroupRecord(GroupKey(self.name), replace(stored, members=members, leader=leader))

    def empty_record(self, now_ms: int) -> GroupRecord:
        """The group of nobody, a generation on."""
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
                *(_names(each.protocols) for each in self.members.values())
            )
        return self._common


def _names(protocols: tuple[MemberProtocol, ...]) -> set[str]:
    return {each.name for each in protocols}


def next_generation(generation: int) -> int:
    return generation + 1 if generation < INT_MAX else 1


def replay(group: ClassicGroup, value: GroupValue | None) -> None:
    """Makes the group what a record says, whether it was just written or is read after a restart.

    Waiters and what members offer besides the elected protocol are in no record: they are kept.
    """
    group.stored = value
    if value is not None and _is_renaming(group, value):
        return
    members = () if value is None else value.members
    protocol = None if value is None else value.protocol
    group.members = {
        each.member: _restore(group.members.get(each.member), each, protocol) for each in members
    }
    group.instances = {each.instance: each.member for each in members if each.instance is not None}
    group.pending -= group.members.keys()
    group.unsynced &= group.members.keys()
    group.initial_left_ms = None
    group.forget_counts()
    if value is None:
        group.pending.clear()
        group.state = ClassicState.DEAD
        return
    group.protocol_type = value.protocol_type or None
    group.generation, group.protocol, group.leader = value.generation, protocol, value.leader
    group.state_since_ms = value.state_since_ms
    group.state = ClassicState.STABLE if members else ClassicState.EMPTY


def _is_renaming(group: ClassicGroup, value: GroupValue) -> bool:
    """It is about the generation before the one that is being made, which goes on unchanged."""
    if group.state is ClassicState.PREPARING_REBALANCE:
        return bool(value.members)
    is_other = value.generation != group.generation
    return group.state is ClassicState.COMPLETING_REBALANCE and bool(value.members) and is_other


def _to_value(member: Member, protocol: str | None, assignment: bytes) -> MemberValue:
    subscription = member.find_metadata(protocol)
    assert subscription is not None, f"{member.id} does not offer {protocol}, yet it was elected"
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


def _restore(known: Member | None, value: MemberValue, protocol: str | None) -> Member:
    restored = Member(
        id=value.member,
        instance=value.instance,
        client_id=value.client_id,
        client_host=value.client_host,
        session_timeout_ms=value.session_timeout_ms,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        protocols=(MemberProtocol(protocol or "", value.subscription),),
        assignment=value.assignment,
    )
    if known is not None:
        restored.is_new = known.is_new
        restored.join_waiter, restored.sync_waiter = known.join_waiter, known.sync_waiter
        if known.find_metadata(protocol) == value.subscription:
            restored.protocols = known.protocols
    return restored
