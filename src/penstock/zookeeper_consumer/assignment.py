"""Which member reads which partition. Pure: every member computes it from what it has read.

Invariant: members that have read the same view and use the same rule compute shares that do not
overlap and leave no partition of a subscribed topic out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.zookeeper_consumer.group_znodes import AssignmentRule, Registration, thread_id


class RegisteredMember(NamedTuple):
    id: str
    registration: Registration
    czxid: int = 0  # the order in which members came


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """What one member has read of its group and of the brokers."""

    members: tuple[RegisteredMember, ...]
    partitions: Mapping[str, tuple[int, ...]]  # sorted, of the reader's own topics
    brokers: Mapping[str, str]  # addresses by id

    def find(self, member: str) -> RegisteredMember | None:
        return next((other for other in self.members if other.id == member), None)


def assign(view: GroupView, rule: AssignmentRule) -> dict[TopicPartition, str]:
    """The thread that reads each partition of the view."""
    threads: dict[TopicPartition, str] = {}
    for topic, partitions in view.partitions.items():
        readers = _threads_of(topic, view.members)
        for thread, share in zip(readers, shares(partitions, len(readers), rule), strict=True):
            threads |= {TopicPartition(topic, partition): thread for partition in share}
    return threads


def share_of(view: GroupView, member: str, rule: AssignmentRule) -> dict[TopicPartition, str]:
    """The partitions of one member, with its thread."""
    own = {thread_id(member, number) for number in range(_most_streams(view, member))}
    return {tp: thread for tp, thread in assign(view, rule).items() if thread in own}


def shares(partitions: Sequence[int], readers: int, rule: AssignmentRule) -> list[tuple[int, ...]]:
    """Cut sorted partitions into one run for each reader.

    range: floor(P/C), and the first P mod C readers get one more. ceil-range: ceil(P/C), as far as
    they go, so that the last readers may get none.
    """
    if not readers:
        return []
    whole, more = divmod(len(partitions), readers)
    if rule is AssignmentRule.CEIL_RANGE:
        each_gets = whole + (more > 0)
        starts = [index * each_gets for index in range(readers + 1)]
    else:
        starts = [index * whole + min(index, more) for index in range(readers + 1)]
    return [tuple(partitions[start:end]) for start, end in pairwise(starts)]


def find_conflict(
    own: RegisteredMember, members: Iterable[RegisteredMember], *, is_registered: bool
) -> RegisteredMember | None:
    """The member because of which this one must not take part: it assigns by another rule.

    Of two of our members the later one gives way, so that a running group goes on. A client that is
    not ours never gives way, and uses range.
    """
    for other in members:
        if other.id == own.id or other.registration.rule is own.registration.rule:
            continue
        is_earlier = not is_registered or other.czxid < own.czxid
        if is_earlier or not other.registration.names_rule:
            return other
    return None


def without_conflicts(view: GroupView, rule: AssignmentRule) -> GroupView:
    """The view without later members of another rule, which are about to give way."""
    members = tuple(member for member in view.members if member.registration.rule is rule)
    return GroupView(members=members, partitions=view.partitions, brokers=view.brokers)


def _threads_of(topic: str, members: Iterable[RegisteredMember]) -> list[str]:
    """In the order of their names, as every client sorts them."""
    return sorted(
        thread_id(member.id, number)
        for member in members
        for number in range(member.registration.streams_of(topic))
    )


def _most_streams(view: GroupView, member: str) -> int:
    own = view.find(member)
    return 0 if own is None else max(own.registration.subscription.values(), default=0)
