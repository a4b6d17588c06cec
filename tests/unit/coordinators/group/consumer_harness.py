"""A minimal coordinator for one consumer group: a log, timers, topics and a clock for tests.

Its consumers follow the protocol. Invariant: the group equals a replay of its log.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.unit.coordinators.group.fake_topics import FakeTopics

from penstock.coordinators.group.classic.group import ClassicGroup
from penstock.coordinators.group.command_context import CommandEnvironment
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.group import ConsumerGroup
from penstock.coordinators.group.consumer.partitions import Partitions, from_topics, to_topics
from penstock.coordinators.group.consumer.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from penstock.coordinators.group.group import Group
from penstock.coordinators.group.records import GroupRecord, decode_record, encode_record
from penstock.coordinators.group.state import GroupShardState
from penstock.coordinators.group.timer_key import TimerKey
from penstock.coordinators.runtime.result import LATER, CoordinatorResult, SetTimer, Waiter
from penstock.model.errors import ErrorCode

GROUP = "billing"
START_MS = 1_000_000
REBALANCE_MS = 60_000


class ConsumerGroupHarness:
    """Carries results out as a shard does; a write is committed at once."""

    def __init__(self, config: GroupConfig | None = None, **topics: int) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.topics = FakeTopics(**topics)
        self.now_ms = START_MS
        self.state = self._new_state()
        self.log: list[GroupRecord] = []
        self.timers: dict[TimerKey, int] = {}  # due times
        self._waiters = itertools.count(1)
        self._waiting: dict[Waiter, Callable[[Any], None]] = {}

    def _new_state(self) -> GroupShardState:
        return GroupShardState(topics=self.topics, config=lambda: self.config)

    @property
    def groups(self) -> dict[str, Group]:
        return self.state.groups

    @property
    def group(self) -> Group | None:
        return self.groups.get(GROUP)

    @property
    def environment(self) -> CommandEnvironment:
        return CommandEnvironment(self.now_ms, self.config, self.topics)

    @property
    def consumer(self) -> ConsumerGroup:
        group = self.group
        assert isinstance(group, ConsumerGroup), group
        return group

    @property
    def classic(self) -> ClassicGroup:
        group = self.group
        assert isinstance(group, ClassicGroup), group
        return group

    def heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        reply = self.carry_out(self.state.consumer_heartbeat(request, self.now_ms))
        assert isinstance(reply, ConsumerHeartbeatReply)
        return reply

    def ask(
        self,
        decide: Callable[[Waiter], CoordinatorResult[Any, GroupRecord]],
        on_reply: Callable[[Any], None],
    ) -> None:
        """Call `on_reply` now, or when another command completes the response."""
        waiter = Waiter(next(self._waiters))
        self._waiting[waiter] = on_reply
        reply = self.carry_out(decide(waiter))
        if reply is not LATER:
            self._waiting.pop(waiter)(reply)

    def carry_out(self, result: CoordinatorResult[Any, GroupRecord]) -> object:
        for record in result.records:
            self.log.append(decode_record(*encode_record(record)))
            self.state.replay(record, offset=len(self.log))
            if GROUP not in self.groups:
                self.timers.clear()
        for change in result.timers:
            assert isinstance(change.key, TimerKey)
            self.timers.pop(change.key, None)
            if isinstance(change, SetTimer):
                self.timers[change.key] = self.now_ms + change.delay_ms
        for deferred in result.deferred_replies:
            self._waiting.pop(deferred.waiter)(deferred.reply)
        return result.reply

    def pass_time(self, delay_ms: int) -> None:
        end_ms = self.now_ms + delay_ms
        while self.timers:
            key = min(self.timers, key=lambda timer: self.timers[timer])
            if self.timers[key] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            if self.group is not None:
                self.carry_out(self.group.on_timer(key, self.environment))
        self.now_ms = end_ms

    def restart(self) -> None:
        """Drop volatile state and replay the log; waiting clients have lost their connection."""
        self.state.groups = replay_log(self.log)
        self.timers.clear()
        self._waiting.clear()
        if self.group is not None:
            self.carry_out(self.group.on_loaded(self.environment))

    def change_topics(self) -> None:
        """Update the broker's metadata."""
        self.state.topics_changed()

    def named(self, partitions: Partitions) -> set[str]:
        return {
            f"{self.topics.find_name(topic)}-{number}"
            for topic, numbers in partitions.items()
            for number in numbers
        }


def replay_log(log: Iterable[GroupRecord]) -> dict[str, Group]:
    state = GroupShardState(topics=FakeTopics(), config=GroupConfig)
    for offset, record in enumerate(log):
        state.replay(record, offset=offset)
    return state.groups


def compacted(log: Iterable[GroupRecord], *, keep_tombstones: bool = True) -> list[GroupRecord]:
    """Return the last record of each key, in log order."""
    keyed = [(encode_record(record)[0], record) for record in log]
    last = {key: index for index, (key, _) in enumerate(keyed)}
    return [
        record
        for index, (key, record) in enumerate(keyed)
        if last[key] == index and (keep_tombstones or record.value is not None)
    ]


def durable(groups: Mapping[str, Group]) -> object:
    """Return what is durable; equal for equal states."""
    snapshots = {name: group.snapshot() for name, group in groups.items()}
    return {name: snapshot for name, snapshot in snapshots.items() if snapshot is not None}


@dataclass(slots=True)
class Consumer:
    """A consumer that applies its assignment at once."""

    harness: ConsumerGroupHarness
    id: str
    topics: tuple[str, ...] | None = ("orders",)
    regex: str | None = None
    instance: str | None = None
    assignor: str | None = None
    epoch: int = JOIN_EPOCH
    owned: Partitions = field(default_factory=dict)
    reply: ConsumerHeartbeatReply | None = None

    def join(self, **changes: object) -> ConsumerHeartbeatReply:
        self.epoch, self.owned = JOIN_EPOCH, {}
        given: dict[str, object] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topics": self.topics,
            "topic_regex": self.regex,
            "assignor": self.assignor,
            "owned": (),
        }
        return self.send(**(given | changes))

    def beat(self, **changes: object) -> ConsumerHeartbeatReply:
        """Send a heartbeat with its owned partitions."""
        return self.send(owned=to_topics(self.owned), **changes)

    def send(self, **fields: object) -> ConsumerHeartbeatReply:
        """Send a heartbeat and apply the response."""
        reply = self.harness.heartbeat(self.request(**fields))
        self.take(reply)
        return reply

    def take(self, reply: ConsumerHeartbeatReply) -> None:
        self.reply = reply
        if reply.error is ErrorCode.NONE:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.owned = from_topics(reply.assignment)
        elif reply.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = JOIN_EPOCH, {}

    def request(self, **fields: object) -> ConsumerHeartbeat:
        given: dict[str, Any] = {
            "group": GROUP,
            "member": self.id,
            "member_epoch": self.epoch,
            "client_id": "app",
            "client_host": "/10.0.0.1",
            "instance": self.instance,
        }
        return ConsumerHeartbeat(**(given | fields))

    def leave(self) -> ConsumerHeartbeatReply:
        reply = self.harness.heartbeat(self.request(member_epoch=LEAVE_EPOCH))
        self.owned = {}
        return reply

    def pause(self) -> ConsumerHeartbeatReply:
        """Leave temporarily, as a static member."""
        reply = self.harness.heartbeat(self.request(member_epoch=STATIC_LEAVE_EPOCH))
        self.owned = {}
        return reply

    @property
    def work(self) -> set[str]:
        return self.harness.named(self.owned)


def settle(*consumers: Consumer, rounds: int = 6) -> None:
    """Let all send heartbeats until nothing changes."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat() if consumer.epoch != JOIN_EPOCH else consumer.join()
