"""The context of one command to a consumer group: applies each record to a copy as it is decided.

So every step sees the effect of the steps before it, while the group itself changes only in the
replay.
"""

from typing import TypeVar

from penstock.coordinators.group.command_context import CommandEnvironment, GroupCommandContext
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.state import ConsumerGroupState, ConsumerMember, replay
from penstock.coordinators.group.records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    GroupRecord,
    Key,
    TargetMemberKey,
    Value,
)
from penstock.coordinators.runtime.result import CoordinatorResult, Later
from penstock.model.errors import ErrorCode, Refusal

ReplyType = TypeVar("ReplyType")

# Kinds of timers, all per member.
SESSION = "consumer-session"  # no heartbeat
REBALANCE = "consumer-rebalance"  # partitions to revoke are not revoked
JOIN = "consumer-join"  # a classic member that has to join again does not
SYNC = "consumer-sync"  # a classic member that joined does not sync
TIMERS = (SESSION, REBALANCE, JOIN, SYNC)


class ConsumerCommandContext(GroupCommandContext):
    def __init__(self, group: ConsumerGroupState, environment: CommandEnvironment) -> None:
        super().__init__(group.name, environment)
        self.config = environment.config.for_group(group.name)
        self.group = group  # with the records so far applied; before the first, the group itself
        self._live = group
        self.has_checked_topics = False
        self.checks_topics_next = False  # at the next heartbeat, whenever it comes

    def result(self, reply: ReplyType | Later) -> CoordinatorResult[ReplyType, GroupRecord]:
        if self.has_checked_topics:
            self._live.checked_topics_ms = self.now_ms
        if self.checks_topics_next:
            self._live.topics_changed()
        return super().result(reply)

    def write(self, key: Key, value: Value | None) -> None:
        if self.group is self._live:
            self.group = self._live.copy()
        record = GroupRecord(key, value)
        self._records.append(record)
        replay(self.group, record)

    def prepend(self, other: CoordinatorResult[None, GroupRecord]) -> None:
        """Put the records that end another group before those that begin this one."""
        self._records[:0] = other.records
        self._replies[:0] = other.deferred_replies
        self._timers = {change.key: change for change in other.timers} | self._timers
        self._notes[:0] = other.notes

    # -- common to several commands --------------------------------------------------------

    def write_member(self, member: str, value: ConsumerMemberValue) -> None:
        """Refuses a subscription that is too large: if the log refused the record, every group of
        the shard would reload."""
        record = GroupRecord(ConsumerMemberKey(self.name, member), value)
        if not self.fits(record):
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"the subscription of member {member} does not fit into a record of "
                f"{self.config.max_record_bytes} bytes; subscribe by a pattern",
            )
        self.write(record.key, value)

    def write_current(self, member: ConsumerMember) -> None:
        self.write(CurrentMemberKey(self.name, member.id), member.current())

    def bump_epoch(self, reason: str) -> None:
        """The group gets a new target assignment."""
        self.note(
            "group_rebalance",
            f"group {self.name!r} gets epoch {self.group.epoch + 1}: {reason}",
            epoch=self.group.epoch + 1,
            protocol="consumer",
            members=len(self.group.members),
            reason=reason,
        )
        self.write(ConsumerGroupKey(self.name), ConsumerGroupValue(self.group.epoch + 1))

    def remove(self, member: str) -> None:
        """Remove a member's assignments before the member, in Kafka's order."""
        self.write(CurrentMemberKey(self.name, member), None)
        self.write(TargetMemberKey(self.name, member), None)
        self.write(ConsumerMemberKey(self.name, member), None)
        for kind in TIMERS:
            self.cancel_timer(kind, member)

    def reset_session(self, member: ConsumerMember) -> None:
        self.set_timer(SESSION, session_timeout_ms(member, self.config), member.id)


def session_timeout_ms(member: ConsumerMember, config: GroupConfig) -> int:
    classic = member.subscription.classic
    return config.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
