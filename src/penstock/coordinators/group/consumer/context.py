"""One command's run over a consumer group: records are tried on a copy as they are decided.

So each step sees what the steps before it came to, and the group itself waits for the replay.
"""

from typing import TypeVar

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.state import ConsumerGroup, ConsumerMember, replay
from penstock.coordinators.group.dependencies import Topics
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
    encode_record,
)
from penstock.coordinators.group.result import CancelTimer, GroupResult, Reply, SetTimer, TimerKey
from penstock.model.errors import ErrorCode, Refusal

Answer = TypeVar("Answer")

SESSION = "consumer-session"  # no word from the member
REBALANCE = "consumer-rebalance"  # it does not give up what it was asked to
JOIN = "consumer-join"  # a classic member that was told to join again
SYNC = "consumer-sync"  # a classic member that joined and does not ask for its part
TIMERS = (SESSION, REBALANCE, JOIN, SYNC)

_BATCH_OVERHEAD_BYTES = 128  # header of a batch and lengths of its record, with room to spare


class ConsumerCommandContext:
    def __init__(
        self, group: ConsumerGroup, now_ms: int, config: GroupConfig, topics: Topics
    ) -> None:
        self.group = group  # as the records so far make it; before the first, the group itself
        self.now_ms = now_ms
        self.config = config
        self.topics = topics
        self._live = group
        self.has_checked_topics = False
        self._records: list[GroupRecord] = []
        self._replies: list[Reply] = []
        self._timers: dict[TimerKey, SetTimer | CancelTimer] = {}

    def outcome(self, answer: Answer) -> GroupResult[Answer]:
        if self.has_checked_topics:
            self._live.checked_topics_ms = self.now_ms
        return GroupResult(
            answer=answer,
            records=self._records,
            replies=self._replies,
            timers=list(self._timers.values()),
        )

    def write(self, key: Key, value: Value | None) -> None:
        if self.group is self._live:
            self.group = self._live.copy()
        record = GroupRecord(key, value)
        self._records.append(record)
        replay(self.group, record)

    def take_over(self, other: GroupResult[None]) -> None:
        """What ends another group comes before what begins this one."""
        self._records[:0] = other.records
        self._replies[:0] = other.replies
        self._timers = {each.key: each for each in other.timers} | self._timers

    # -- what commands have in common ------------------------------------------------------

    def write_member(self, member: str, value: ConsumerMemberValue) -> None:
        """Refusal: a record that the log refused would cost all groups of its shard their state."""
        record = GroupRecord(ConsumerMemberKey(self.group.name, member), value)
        if not fits(record, self.config):
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"what member {member} subscribes to cannot be stored in "
                f"{self.config.max_record_bytes} bytes; subscribe by a pattern",
            )
        self.write(record.key, value)

    def write_current(self, member: ConsumerMember) -> None:
        self.write(CurrentMemberKey(self.group.name, member.id), member.current())

    def bump_epoch(self) -> None:
        self.write(ConsumerGroupKey(self.group.name), ConsumerGroupValue(self.group.epoch + 1))

    def remove(self, member: str) -> None:
        """In the order of Kafka: what a member has goes before the member."""
        name = self.group.name
        self.write(CurrentMemberKey(name, member), None)
        self.write(TargetMemberKey(name, member), None)
        self.write(ConsumerMemberKey(name, member), None)
        for kind in TIMERS:
            self.cancel_timer(kind, member)

    def set_timer(self, kind: str, delay_ms: int, member: str) -> None:
        key = TimerKey(self.group.name, kind, member)
        self._timers.pop(key, None)
        self._timers[key] = SetTimer(key, max(delay_ms, 0))

    def cancel_timer(self, kind: str, member: str) -> None:
        key = TimerKey(self.group.name, kind, member)
        self._timers.pop(key, None)
        self._timers[key] = CancelTimer(key)

    def hear_from(self, member: ConsumerMember) -> None:
        """Its session begins anew."""
        self.set_timer(SESSION, session_timeout_ms(member, self.config), member.id)


def session_timeout_ms(member: ConsumerMember, config: GroupConfig) -> int:
    classic = member.subscription.classic
    return config.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms


def fits(record: GroupRecord, config: GroupConfig) -> bool:
    key, value = encode_record(record)
    size = len(key) + len(value or b"") + _BATCH_OVERHEAD_BYTES
    return size <= config.max_record_bytes
