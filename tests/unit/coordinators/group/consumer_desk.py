"""A coordinator in small for one group of the newer protocol: a log, timers, topics, and a clock
that tests move; and consumers as they behave.

Invariant: the group is what the log replays to, which every command checks.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from penstock.coordinators.group import either_protocol as consumer_or_classic
from penstock.coordinators.group.classic.state import ClassicGroup
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer import protocol as consumer
from penstock.coordinators.group.consumer.partitions import Partitions, from_topics, to_topics
from penstock.coordinators.group.consumer.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from penstock.coordinators.group.consumer.state import ConsumerGroup
from penstock.coordinators.group.dependencies import TopicView
from penstock.coordinators.group.either_protocol import Group
from penstock.coordinators.group.records import GroupRecord, decode_record, encode_record
from penstock.coordinators.group.result import LATER, GroupResult, SetTimer, TimerKey
from penstock.coordinators.runtime.pending_replies import Waiter
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId

GROUP = "billing"
START_MS = 1_000_000
REBALANCE_MS = 60_000


class TopicsTwin:
    """Topics as the broker knows them."""

    def __init__(self, **partitions: int) -> None:
        self._views: dict[str, TopicView] = {}
        self._created = 0
        for name, count in partitions.items():
            self.create(name, count)

    def create(self, name: str, partitions: int) -> None:
        self._created += 1
        self._views[name] = TopicView(TopicId(UUID(int=self._created)), partitions)

    def grow(self, name: str, partitions: int) -> None:
        self._views[name] = self._views[name]._replace(partitions=partitions)

    def delete(self, name: str) -> None:
        del self._views[name]

    def find(self, name: str) -> TopicView | None:
        return self._views.get(name)

    def all(self) -> Mapping[str, TopicView]:
        return self._views

    def find_name(self, topic_id: TopicId) -> str | None:
        named = (name for name, view in self._views.items() if view.topic_id == topic_id)
        return next(named, None)


class ConsumerDesk:
    """Carries outcomes out as a shard does; a write is committed at once."""

    def __init__(self, config: GroupConfig | None = None, **topics: int) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.topics = TopicsTwin(**topics)
        self.now_ms = START_MS
        self.groups: dict[str, Group] = {}
        self.log: list[GroupRecord] = []
        self.timers: dict[TimerKey, int] = {}  # when they are due
        self._waiters = itertools.count(1)
        self._waiting: dict[Waiter, Callable[[Any], None]] = {}

    @property
    def group(self) -> Group | None:
        return self.groups.get(GROUP)

    @property
    def living(self) -> ConsumerGroup:
        group = self.group
        assert isinstance(group, ConsumerGroup), f"there is none, but {group}"
        return group

    @property
    def classic(self) -> ClassicGroup:
        group = self.group
        assert isinstance(group, ClassicGroup), f"there is none, but {group}"
        return group

    def heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        answer = self.carry_out(
            consumer.heartbeat(self.group, request, self.now_ms, self.config, self.topics)
        )
        assert isinstance(answer, ConsumerHeartbeatReply)
        return answer

    def ask(
        self, decide: Callable[[Waiter], GroupResult[Any]], told: Callable[[Any], None]
    ) -> None:
        """`told` the answer, now or when another command brings it."""
        waiter = Waiter(next(self._waiters))
        self._waiting[waiter] = told
        answer = self.carry_out(decide(waiter))
        if answer is not LATER:
            self._waiting.pop(waiter)(answer)

    def carry_out(self, outcome: GroupResult[Any]) -> object:
        for record in outcome.records:
            self.log.append(decode_record(*encode_record(record)))
            consumer_or_classic.replay(self.groups, record)
            if GROUP not in self.groups:
                self.timers.clear()
        for change in outcome.timers:
            self.timers.pop(change.key, None)
            if isinstance(change, SetTimer):
                self.timers[change.key] = self.now_ms + change.delay_ms
        for reply in outcome.replies:
            self._waiting.pop(reply.to)(reply.answer)
        return outcome.answer

    def pass_time(self, delay_ms: int) -> None:
        end_ms = self.now_ms + delay_ms
        while self.timers:
            key = min(self.timers, key=lambda timer: self.timers[timer])
            if self.timers[key] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            if self.group is not None:
                self.carry_out(
                    consumer_or_classic.on_timer(
                        self.group, key, self.now_ms, self.config, self.topics
                    )
                )
        self.now_ms = end_ms

    def restart(self) -> None:
        """What is soft is forgotten, the log is read; whoever waits has lost the connection."""
        self.groups = replayed(self.log)
        self.timers.clear()
        self._waiting.clear()
        if self.group is not None:
            self.carry_out(
                consumer_or_classic.on_loaded(self.group, self.now_ms, self.config, self.topics)
            )

    def change_topics(self) -> None:
        """After the topics were changed: the broker tells."""
        if isinstance(self.group, ConsumerGroup):
            self.group.topics_changed()

    def named(self, partitions: Partitions) -> set[str]:
        return {
            f"{self.topics.find_name(topic)}-{number}"
            for topic, numbers in partitions.items()
            for number in numbers
        }


def replayed(log: Iterable[GroupRecord]) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    for record in log:
        consumer_or_classic.replay(groups, record)
    return groups


def compacted(log: Iterable[GroupRecord], *, keep_tombstones: bool = True) -> list[GroupRecord]:
    """The last record of each key, in the order of the log."""
    keyed = [(encode_record(record)[0], record) for record in log]
    last = {key: place for place, (key, _) in enumerate(keyed)}
    return [
        record
        for place, (key, record) in enumerate(keyed)
        if last[key] == place and (keep_tombstones or record.value is not None)
    ]


def durable(groups: Mapping[str, Group]) -> object:
    """What the log decides; equal for equal states."""
    states = {name: consumer_or_classic.snapshot(each) for name, each in groups.items()}
    return {name: each for name, each in states.items() if each is not None}


@dataclass(slots=True)
class Consumer:
    """A consumer that does as it is told: gives up at once what it is not assigned any more."""

    desk: ConsumerDesk
    id: str
    topics: tuple[str, ...] | None = ("orders",)
    regex: str | None = None
    instance: str | None = None
    assignor: str | None = None
    epoch: int = JOIN_EPOCH
    owned: Partitions = field(default_factory=dict)
    answer: ConsumerHeartbeatReply | None = None

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
        """A heartbeat that says what it owns."""
        return self.send(owned=to_topics(self.owned), **changes)

    def send(self, **fields: object) -> ConsumerHeartbeatReply:
        """And takes what it is answered."""
        answer = self.desk.heartbeat(self.request(**fields))
        self.take(answer)
        return answer

    def take(self, answer: ConsumerHeartbeatReply) -> None:
        self.answer = answer
        if answer.error is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = from_topics(answer.assignment)
        elif answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
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
        answer = self.desk.heartbeat(self.request(member_epoch=LEAVE_EPOCH))
        self.owned = {}
        return answer

    def pause(self) -> ConsumerHeartbeatReply:
        """A static member goes for a while."""
        answer = self.desk.heartbeat(self.request(member_epoch=STATIC_LEAVE_EPOCH))
        self.owned = {}
        return answer

    @property
    def work(self) -> set[str]:
        return self.desk.named(self.owned)


def settle(*consumers: Consumer, rounds: int = 6) -> None:
    """Everybody sends heartbeats until nothing changes."""
    for _ in range(rounds):
        for each in consumers:
            each.beat() if each.epoch != JOIN_EPOCH else each.join()
