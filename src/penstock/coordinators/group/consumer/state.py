"""The data of a consumer group (KIP-848): members, target assignment, epochs. No decisions.

`replay` alone changes what is stored. Invariant: `owners` and `instances` derive from `members`.
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
from penstock.coordinators.group.member_bytes import (
    GROUP_BYTES,
    MEMBER_BYTES,
    NAME_BYTES,
    PARTITION_BYTES,
    protocol_bytes,
    text_bytes,
)
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
    """A member's progress towards its target assignment; numbered as in Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # has to revoke some before it may move to the next epoch
    UNRELEASED_PARTITIONS = 2  # some of its target are still owned by others
    UNKNOWN = 127  # of a later version


class ConsumerState(StrEnum):
    """The states, with the names that clients see."""

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
    pending_revocation: Partitions = field(
        default_factory=dict
    )  # still owned, until the member confirms

    @property
    def instance(self) -> str | None:
        return self.subscription.instance

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None

    def count_bytes(self) -> int:
        owned = count_partitions(self.assigned) + count_partitions(self.pending_revocation)
        return count_subscription(self.id, self.subscription) + PARTITION_BYTES * owned

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
class ConsumerGroupState:
    """Owned by its shard."""

    name: str
    epoch: int = 0
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    is_stored: bool = False  # the log has a record of it
    # Derived from the above:
    instances: dict[str, str] = field(default_factory=dict)  # instance -> id of its member
    owners: dict[TopicId, dict[int, str]] = field(default_factory=dict)  # at most one per partition
    member_bytes: int = 0  # of `memory_bytes`, with their targets
    # Volatile, forgotten by a reload:
    checked_topics_ms: int | None = (
        None  # None: topics may have changed since the last target assignment
    )
    matches: dict[str, frozenset[str]] = field(default_factory=dict)  # pattern -> topics
    rejoining: set[str] = field(default_factory=set)  # classic members that have to join again

    def copy(self) -> Self:
        """A copy to apply records to."""
        return replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            instances=dict(self.instances),
            owners={topic: dict(owners) for topic, owners in self.owners.items()},
        )

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerState.ASSIGNING
        if all(member.is_reconciled(self.target_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def memory_bytes(self) -> int:
        """The memory that the group takes."""
        return GROUP_BYTES + len(self.name) + self.member_bytes

    def snapshot(self) -> object:
        """The durable state; equal for equal states."""
        return (
            (self.epoch, self.target_epoch, self.members, self.targets),
            (self.instances, self.owners),
        )

    def topics_changed(self) -> None:
        """The next heartbeat checks whether the target assignment still covers its topics."""
        self.checked_topics_ms = None

    def target(self, member: str) -> Partitions:
        return self.targets.get(member, NOTHING)

    def find_instance(self, instance: str | None) -> ConsumerMember | None:
        member = None if instance is None else self.instances.get(instance)
        return None if member is None else self.members.get(member)

    def free_for(self, member: str, partitions: Partitions) -> Partitions:
        """The partitions that no other member owns."""
        free: dict[TopicId, frozenset[int]] = {}
        for topic, wanted in partitions.items():
            owners = self.owners.get(topic, {})
            unowned = frozenset(
                partition for partition in wanted if owners.get(partition, member) == member
            )
            if unowned:
                free[topic] = unowned
        return free


def replay(group: ConsumerGroupState, record: GroupRecord) -> None:
    """Applies a record, whether it was just written or is read after a restart.

    Compaction may have removed any record but the last of its key, so none relies on another.
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
            _put_target(group, key.member, from_topics(value.assigned))
            group.is_stored = True
        case TargetMemberKey(), None:
            _put_target(group, key.member, NOTHING)
            group.targets.pop(key.member, None)
        case ConsumerMemberKey(), ConsumerMemberValue():
            member = group.members.get(key.member) or ConsumerMember(id=key.member)
            _put(group, replace(member, subscription=value))
        case ConsumerMemberKey(), None:
            _remove(group, key.member)
        case CurrentMemberKey(), CurrentMemberValue():
            member = group.members.get(key.member) or ConsumerMember(id=key.member)
            _put(group, _with_current(member, value))
        case CurrentMemberKey(), None:
            if (left := group.members.get(key.member)) is not None:
                _put(group, _without_current(left))
        case _:
            pass  # of a kind that does not concern this group


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


def _without_current(member: ConsumerMember) -> ConsumerMember:
    """The member after it left; its other tombstones follow."""
    return replace(
        member,
        epoch=LEAVE_EPOCH,
        previous_epoch=LEAVE_EPOCH,
        state=MemberState.STABLE,
        assigned=NOTHING,
        pending_revocation=NOTHING,
    )


def count_subscription(member_id: str, value: ConsumerMemberValue) -> int:
    """The memory that a member takes, without its partitions."""
    texts = (value.instance, value.rack, value.client_id, value.client_host, value.topic_regex)
    topics = sum(NAME_BYTES + len(topic) for topic in value.topics)
    protocols = 0 if value.classic is None else protocol_bytes(value.classic.protocols)
    return MEMBER_BYTES + len(member_id) + text_bytes(texts) + topics + protocols


def count_sent(value: ConsumerMemberValue) -> int:
    """The names and metadata of a subscription, without what their objects cost."""
    protocols = () if value.classic is None else value.classic.protocols
    metadata = sum(len(name) + len(metadata) for name, metadata in protocols)
    return text_bytes((*value.topics, value.topic_regex)) + metadata


def count_partitions(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def _put_target(group: ConsumerGroupState, member: str, target: Partitions) -> None:
    growth = count_partitions(target) - count_partitions(group.target(member))
    group.member_bytes += PARTITION_BYTES * growth
    group.targets[member] = target


def _put(group: ConsumerGroupState, member: ConsumerMember) -> None:
    before = group.members.get(member.id)
    group.member_bytes += member.count_bytes()
    if before is not None:
        group.member_bytes -= before.count_bytes()
        _remove_owner(group, before)
        _remove_instance(group, before)
    group.members[member.id] = member
    group.is_stored = True
    if member.instance is not None:
        group.instances[member.instance] = member.id
    for owned in (member.assigned, member.pending_revocation):
        for topic, partitions in owned.items():
            group.owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member.id))


def _remove(group: ConsumerGroupState, member_id: str) -> None:
    member = group.members.pop(member_id, None)
    if member is not None:
        group.member_bytes -= member.count_bytes()
        _remove_owner(group, member)
        _remove_instance(group, member)
    group.rejoining.discard(member_id)


def _remove_instance(group: ConsumerGroupState, member: ConsumerMember) -> None:
    if member.instance is not None and group.instances.get(member.instance) == member.id:
        del group.instances[member.instance]


def _remove_owner(group: ConsumerGroupState, member: ConsumerMember) -> None:
    """A compacted log may have the record of the next owner before the one that releases."""
    for owned in (member.assigned, member.pending_revocation):
        for topic, partitions in owned.items():
            owners = group.owners.get(topic, {})
            for partition in partitions:
                if owners.get(partition) == member.id:
                    del owners[partition]
            if not owners:
                group.owners.pop(topic, None)


def _clear(group: ConsumerGroupState) -> None:
    group.epoch, group.target_epoch, group.is_stored = 0, 0, False
    group.member_bytes = 0
    for table in (group.members, group.targets, group.instances, group.owners):
        table.clear()
    group.rejoining.clear()
    group.checked_topics_ms = None
