"""A group of the newer protocol (KIP-848): members, target assignment, epochs. Data, no decisions.

What is stored changes by `replay` alone. Invariant: `owners` and `instances` follow from `members`.
"""

from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Self

from penstock.coordinators.group.consumer.partitions import (
    NOTHING,
    Partitions,
    from_topics,
    to_topics,
)
from penstock.coordinators.group.consumer.requests import LEAVE_EPOCH
from penstock.coordinators.group.records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    CurrentMemberValue,
    GroupRecord,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
)
from penstock.model.ids import TopicId

NO_TARGET = -1


class MemberState(IntEnum):
    """How far a member has come towards its target; numbered as in Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it has to give some up before it may go on to the next epoch
    UNRELEASED_PARTITIONS = 2  # some of its target are not free yet
    UNKNOWN = 127  # a later version's


class ConsumerState(StrEnum):
    """Named as clients see them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


NO_SUBSCRIPTION = ConsumerMemberValue(
    instance=None,
    rack=None,
    client_id="",
    client_host="",
    topics=(),
    topic_regex=None,
    rebalance_timeout_ms=-1,
    assignor=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    id: str
    subscription: ConsumerMemberValue = NO_SUBSCRIPTION
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    pending_revocation: Partitions = field(default_factory=dict)  # still its own until it says so

    @property
    def instance(self) -> str | None:
        return self.subscription.instance

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def current(self) -> CurrentMemberValue:
        return CurrentMemberValue(
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=self.state.value,
            assigned=to_topics(self.assigned),
            pending_revocation=to_topics(self.pending_revocation),
        )


@dataclass(slots=True, kw_only=True)
class ConsumerGroup:
    """Owned by its shard."""

    name: str
    epoch: int = 0
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    is_stored: bool = False  # some record speaks of it
    # From what is above:
    instances: dict[str, str] = field(default_factory=dict)  # instance -> id of its member
    owners: dict[TopicId, dict[int, str]] = field(default_factory=dict)  # nobody else may have it
    # Soft, forgotten by a reload:
    checked_topics_ms: int | None = None  # None: topics may have changed since the target was made
    matches: dict[str, frozenset[str]] = field(default_factory=dict)  # pattern -> topics
    rejoining: set[str] = field(default_factory=set)  # classic members that were told to join again

    def copy(self) -> Self:
        """To try records on."""
        return replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            instances=dict(self.instances),
            owners={topic: dict(each) for topic, each in self.owners.items()},
        )

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerState.ASSIGNING
        if all(each.is_reconciled(self.target_epoch) for each in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    def snapshot(self) -> object:
        """What the log decides; equal for equal states."""
        return (
            (self.epoch, self.target_epoch, self.members, self.targets),
            (self.instances, self.owners),
        )

    def topics_changed(self) -> None:
        """Some topic came, went or grew: the next heartbeat looks whether it is one of ours."""
        self.checked_topics_ms = None

    def target(self, member: str) -> Partitions:
        return self.targets.get(member, NOTHING)

    def find_instance(self, instance: str | None) -> ConsumerMember | None:
        member = None if instance is None else self.instances.get(instance)
        return None if member is None else self.members.get(member)

    def free_for(self, member: str, partitions: Partitions) -> Partitions:
        """Those that no other member has."""
        free: dict[TopicId, frozenset[int]] = {}
        for topic, wanted in partitions.items():
            owners = self.owners.get(topic, {})
            found = frozenset(each for each in wanted if owners.get(each, member) == member)
            if found:
                free[topic] = found
        return free


def replay(group: ConsumerGroup, record: GroupRecord) -> None:
    """Makes the group what a record says, whether it was just written or is read after a restart.

    Of a compacted log, some records before the last of a key may be missing: none is counted on.
    """
    key, value = record
    match key, value:
        case ConsumerGroupKey(), ConsumerGroupValue():
            group.epoch, group.is_stored = value.epoch, True
        case ConsumerGroupKey(), None:
            _clear(group)
        case TargetEpochKey(), TargetEpochValue():
            group.target_epoch, group.is_stored = value.epoch, True
        case TargetEpochKey(), None:
            group.target_epoch = NO_TARGET
        case TargetMemberKey(), TargetMemberValue():
            group.targets[key.member], group.is_stored = from_topics(value.assigned), True
        case TargetMemberKey(), None:
            group.targets.pop(key.member, None)
        case ConsumerMemberKey(), ConsumerMemberValue():
            known = group.members.get(key.member) or ConsumerMember(id=key.member)
            _put(group, replace(known, subscription=value))
        case ConsumerMemberKey(), None:
            _remove(group, key.member)
        case CurrentMemberKey(), CurrentMemberValue():
            known = group.members.get(key.member) or ConsumerMember(id=key.member)
            _put(group, _with_current(known, value))
        case CurrentMemberKey(), None:
            if (gone := group.members.get(key.member)) is not None:
                _put(group, _gone(gone))
        case _:
            pass  # of a kind that says nothing about this group


def _with_current(member: ConsumerMember, value: CurrentMemberValue) -> ConsumerMember:
    known_states = MemberState._value2member_map_
    return replace(
        member,
        epoch=value.epoch,
        previous_epoch=value.previous_epoch,
        state=MemberState(value.state) if value.state in known_states else MemberState.UNKNOWN,
        assigned=from_topics(value.assigned),
        pending_revocation=from_topics(value.pending_revocation),
    )


def _gone(member: ConsumerMember) -> ConsumerMember:
    """Its other tombstones follow."""
    return replace(
        member,
        epoch=LEAVE_EPOCH,
        previous_epoch=LEAVE_EPOCH,
        state=MemberState.STABLE,
        assigned=NOTHING,
        pending_revocation=NOTHING,
    )


def _put(group: ConsumerGroup, member: ConsumerMember) -> None:
    known = group.members.get(member.id)
    if known is not None:
        _disown(group, known)
        _unname(group, known)
    group.members[member.id] = member
    group.is_stored = True
    if member.instance is not None:
        group.instances[member.instance] = member.id
    for held in (member.assigned, member.pending_revocation):
        for topic, partitions in held.items():
            group.owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member.id))


def _remove(group: ConsumerGroup, member: str) -> None:
    known = group.members.pop(member, None)
    if known is not None:
        _disown(group, known)
        _unname(group, known)
    group.rejoining.discard(member)


def _unname(group: ConsumerGroup, member: ConsumerMember) -> None:
    if member.instance is not None and group.instances.get(member.instance) == member.id:
        del group.instances[member.instance]


def _disown(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Of a compacted log, the next owner's record may stand before the one that lets go."""
    for held in (member.assigned, member.pending_revocation):
        for topic, partitions in held.items():
            owners = group.owners.get(topic, {})
            for each in partitions:
                if owners.get(each) == member.id:
                    del owners[each]
            if not owners:
                group.owners.pop(topic, None)


def _clear(group: ConsumerGroup) -> None:
    group.epoch, group.target_epoch, group.is_stored = 0, 0, False
    for each in (group.members, group.targets, group.instances, group.owners):
        each.clear()
    group.rejoining.clear()
    group.checked_topics_ms = None
