"""Any history of halves, decisions, repeats, checks, crashes and failovers: a half message is
delivered once if and only if the first decision on its id, as the shard read it, was to commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.profile import scaled
from tests.properties.deferred_shard import ShardLog, TargetLog

from penstock.coordinators.deferred.cancel import StoredMessage
from penstock.coordinators.deferred.delivery import (
    DeliveryLimits,
    begin_delivery,
    confirm_delivery,
)
from penstock.coordinators.deferred.half_checks import (
    PlannedCheck,
    begin_checks,
    copy_expired,
    count_delivered,
    expire,
    find_due,
    forget_halves,
)
from penstock.coordinators.deferred.half_values import (
    HalfDecision,
    HalfIntake,
    HalfStatus,
    HalfWord,
    ReadUpTo,
)
from penstock.coordinators.deferred.halves import HalfLimits, take_intake
from penstock.coordinators.deferred.records import DeferredRecord, MessageRecord
from penstock.coordinators.deferred.values import DeferredMessage, HalfKey, Hold, Target
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.model.ids import TopicId

GROUP = "shop"
TOPICS = ["orders", "payments"]
TARGETS = {topic: Target(TopicId(UUID(int=1 + i)), 0) for i, topic in enumerate(TOPICS)}
EXPIRED = {topic: Target(TopicId(UUID(int=5 + i)), 0) for i, topic in enumerate(TOPICS)}
HALVES = {topic: Target(TopicId(UUID(int=9 + i)), 0) for i, topic in enumerate(TOPICS)}
DECISIONS = {
    (topic, partition): Target(TopicId(UUID(int=13 + i)), partition)
    for i, topic in enumerate(TOPICS)
    for partition in range(2)
}
CHECKS = Target(TopicId(UUID(int=20)), 0)
IDS = [*"abcdefgh"]
LIMITS = HalfLimits(
    first_check_ms=6_000, check_interval_ms=30_000, max_check_interval_ms=60_000, max_checks=3
)
FEW = DeliveryLimits(max_messages=3, max_bytes=10_000)
RETENTION_MS = 10_000_000
START_MS = 1_000 * 3_600_000

Reply = TypeVar("Reply")


@dataclass
class HalfIdHistory:
    """A half id as somebody who sees everything knows it."""

    values: list[bytes] = field(default_factory=list)
    first: HalfWord | None = None
    decided_ms: int = 0
    delays_ms: dict[bytes, int] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)


@settings(
    max_examples=scaled(test=200, verify=2_000, release=20_000),
    stateful_step_count=60,
    deadline=None,
)
class HalfMessageHistories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.log = ShardLog()
        self.state = self.log.load()
        self.targets = {
            target: TargetLog() for target in (*TARGETS.values(), *EXPIRED.values(), CHECKS)
        }
        # What clients have written, and how much of it the shard has read.
        self.halves: dict[str, list[tuple[str, bytes, int]]] = {topic: [] for topic in TOPICS}
        self.decisions: dict[tuple[str, int], list[HalfDecision]] = {key: [] for key in DECISIONS}
        self.ids: dict[str, HalfIdHistory] = {}
        self.late: set[bytes] = set()
        self.consumed = 0  # checks, by the group
        self.values = 0

    def run(
        self, decide: Callable[[], CoordinatorResult[Reply, DeferredRecord]], *, is_written: bool
    ) -> Reply | None:
        """None: the write failed, and the shard has not changed."""
        result = decide()
        if result.records and not is_written:
            return None
        for record in result.records:
            self.state.replay(*self.log.append(record))
        return result.reply  # type: ignore[return-value]

    # -- clients ---------------------------------------------------------------------------

    @rule(
        half_id=st.sampled_from(IDS),
        topic=st.sampled_from(TOPICS),
        count=st.sampled_from([1, 1, 2]),
        delay_ms=st.sampled_from([0, 0, 500_000]),
    )
    def send(self, half_id: str, topic: str, count: int, delay_ms: int) -> None:
        for _ in range(count):
            self.values += 1
            self.halves[topic].append((half_id, b"%d" % self.values, delay_ms))

    @rule(
        half_id=st.sampled_from(IDS),
        through=st.sampled_from(list(DECISIONS)),
        word=st.sampled_from([HalfWord.COMMIT, HalfWord.COMMIT, HalfWord.ROLLBACK, *HalfWord]),
    )
    def decide(self, half_id: str, through: tuple[str, int], word: HalfWord) -> None:
        self.decisions[through].append(HalfDecision(half_id, word))

    @rule(
        half_id=st.sampled_from(IDS),
        topics=st.sampled_from([TOPICS[:1], TOPICS[1:], TOPICS]),
        delay_ms=st.sampled_from([0, 500_000]),
        through=st.sampled_from(list(DECISIONS)),
        words=st.lists(st.sampled_from(list(HalfWord)), max_size=3),
        is_read=st.booleans(),
    )
    def sell(
        self,
        half_id: str,
        topics: list[str],
        delay_ms: int,
        through: tuple[str, int],
        words: list[HalfWord],
        is_read: bool,
    ) -> None:
        """What a producer does, in one step, so that histories get somewhere."""
        for topic in topics:
            self.send(half_id, topic, 1, delay_ms)
        for word in words:
            self.decide(half_id, through, word)
        if is_read:
            self.read_all()

    # -- readers ---------------------------------------------------------------------------

    @rule(
        topic=st.sampled_from(TOPICS),
        count=st.integers(1, 4),
        from_start=st.booleans(),
        is_written=st.sampled_from([True, True, False]),
    )
    def read_halves(self, topic: str, count: int, from_start: bool, is_written: bool) -> None:
        """Perhaps by a reader that does not know what another has read."""
        source = HALVES[topic]
        position = self.state.halves.position(GROUP, source)
        base = 0 if from_start else position
        some = self.halves[topic][base : base + count]
        messages = [
            DeferredMessage(
                0,
                TARGETS[topic],
                None,
                0,
                None,
                value,
                (),
                Hold(HalfKey(GROUP, half_id), topic, delay_ms),
            )
            for half_id, value, delay_ms in some
        ]
        intake = self.intake(topic, source, base, base + len(some))._replace(messages=messages)
        before = self.state.halves.position(GROUP, source)
        self.take(intake, is_written=is_written)
        if self.state.halves.position(GROUP, source) > before:
            for half_id, value, delay_ms in some:
                self.note_half(half_id, value, delay_ms, topic)

    def read_all_halves(self) -> None:
        for topic in TOPICS:
            while self.state.halves.position(GROUP, HALVES[topic]) < len(self.halves[topic]):
                self.read_halves(topic, 4, False, True)

    @rule()
    def read_all(self) -> None:
        self.read_all_halves()
        for through, decisions in self.decisions.items():
            while self.state.halves.position(GROUP, DECISIONS[through]) < len(decisions):
                self.read_decisions(through, 3, False, True, True)

    def note_half(self, half_id: str, value: bytes, delay_ms: int, topic: str) -> None:
        history = self.ids.setdefault(half_id, HalfIdHistory())
        if history.first is not None or self.is_expired.get(half_id):
            self.late.add(value)
        else:
            history.values.append(value)
            history.delays_ms[value] = delay_ms
            history.topics.add(topic)

    @property
    def is_expired(self) -> dict[str, bool]:
        return {
            key.half_id: half.status is HalfStatus.EXPIRED
            for key, half in self.state.halves.halves.items()
        }

    @rule(
        through=st.sampled_from(list(DECISIONS)),
        count=st.integers(1, 3),
        from_start=st.sampled_from([False, False, True]),
        is_written=st.sampled_from([True, True, False]),
        is_caught_up=st.sampled_from([True, True, False]),
    )
    def read_decisions(
        self,
        through: tuple[str, int],
        count: int,
        from_start: bool,
        is_written: bool,
        is_caught_up: bool,
    ) -> None:
        if is_caught_up:
            self.read_all_halves()
        source = DECISIONS[through]
        base = 0 if from_start else self.state.halves.position(GROUP, source)
        some = self.decisions[through][base : base + count]
        after = [ReadUpTo(HALVES[topic], len(halves)) for topic, halves in self.halves.items()]
        is_early = any(self.state.halves.position(GROUP, to) < end for to, end in after)
        intake = self.intake(through[0], source, base, base + len(some))._replace(
            decisions=some, after=after
        )
        before = self.state.halves.position(GROUP, source)
        expired = self.is_expired
        self.take(intake, is_written=is_written)
        if self.state.halves.position(GROUP, source) == before:
            return
        assert not is_early, "a decision was taken before all halves were read"
        for decision in some:
            self.note_decision(decision, through[0], expired)

    def note_decision(self, decision: HalfDecision, topic: str, expired: dict[str, bool]) -> None:
        history = self.ids.get(decision.half_id)
        if history is None or history.first is not None or topic not in history.topics:
            return
        if decision.word is HalfWord.REVIVE:
            expired[decision.half_id] = False
        elif decision.word is not HalfWord.CHECK and not expired.get(decision.half_id):
            history.first = decision.word
            history.decided_ms = self.now_ms

    def intake(self, topic: str, source: Target, base: int, end: int) -> HalfIntake:
        return HalfIntake(GROUP, topic, source, base, end, 0, EXPIRED[topic])

    def take(self, intake: HalfIntake, *, is_written: bool) -> None:
        self.run(
            lambda: take_intake(self.state, intake, LIMITS, now_ms=self.now_ms),
            is_written=is_written,
        )

    # -- checks ----------------------------------------------------------------------------

    @rule(
        elapsed_ms=st.sampled_from([1, 6_000, 30_000, 100_000]),
        is_written=st.sampled_from([True, True, False]),
    )
    def look_at_what_is_due(self, elapsed_ms: int, is_written: bool) -> None:
        self.now_ms += elapsed_ms
        keys = self.state.halves.take_checks(self.now_ms, 100)
        for key in keys:
            half = find_due(self.state, key, self.now_ms)
            assert half is not None
            if half.checks >= LIMITS.max_checks:
                self.run(partial(self.expire, key), is_written=is_written)
            else:
                self.ask(key, is_written=is_written)
            self.state.halves.look_again(key)

    def expire(self, key: HalfKey) -> CoordinatorResult[bool, DeferredRecord]:
        return expire(self.state, key, LIMITS, now_ms=self.now_ms)

    def ask(self, key: HalfKey, *, is_written: bool) -> None:
        held = self.state.halves.held(key)[0]
        planned = PlannedCheck(
            key, StoredMessage(held.number, self.message_at(held.offset)), CHECKS
        )
        self.run(
            lambda: begin_checks(self.state, [planned], now_ms=self.now_ms), is_written=is_written
        )

    @rule(times=st.integers(1, 4))
    def let_checks_pass(self, times: int) -> None:
        """Members of the group consume them, and decide nothing."""
        for _ in range(times):
            self.look_at_what_is_due(100_000, True)
            while self.state.find_delivery(CHECKS).numbers or self.is_ready(CHECKS):
                self.deliver(CHECKS, True, True, True)
            self.consume_checks()
            self.count_what_was_consumed(True)

    @rule()
    def consume_checks(self) -> None:
        self.consumed = len(self.targets[CHECKS].values)

    @rule(is_written=st.booleans())
    def count_what_was_consumed(self, is_written: bool) -> None:
        passed = [
            (key, check)
            for key, check in self.state.halves.unanswered.items()
            if self.consumed > check.offset
        ]
        self.run(
            lambda: count_delivered(self.state, passed, LIMITS, now_ms=self.now_ms),
            is_written=is_written,
        )

    @rule(is_written=st.booleans())
    def copy_what_has_expired(self, is_written: bool) -> None:
        for key in list(self.state.halves.uncopied):
            copied = self.state.halves.halves[key].copied
            held = self.state.halves.held(key)[copied : copied + 1]
            messages = [(self.message_at(one.offset), EXPIRED[one.topic]) for one in held]
            decide = partial(
                copy_expired, self.state, key, messages, copied=copied, now_ms=self.now_ms
            )
            self.run(decide, is_written=is_written)

    # -- delivery --------------------------------------------------------------------------

    @rule(
        elapsed_ms=st.sampled_from([0, 1_000, 500_000]),
        topic=st.sampled_from(TOPICS),
        is_begun=st.sampled_from([True, True, False]),
        is_sent=st.sampled_from([True, True, False]),
        is_confirmed=st.booleans(),
    )
    def wait_and_deliver(
        self, elapsed_ms: int, topic: str, is_begun: bool, is_sent: bool, is_confirmed: bool
    ) -> None:
        self.now_ms += elapsed_ms
        for target in (TARGETS[topic], EXPIRED[topic], CHECKS):
            self.deliver(target, is_begun, is_sent, is_confirmed)

    def deliver(self, target: Target, is_begun: bool, is_sent: bool, is_confirmed: bool) -> None:
        """As far as the shard gets before it fails."""
        self.state.take_due(self.now_ms)
        if not self.state.find_delivery(target).numbers:
            self.run(lambda: begin_delivery(self.state, target, FEW), is_written=is_begun)
        sent = self.state.find_sent(target)
        if not sent or not is_sent:
            return
        values = [self.message_at(entry.offset).value or b"" for entry in sent]
        log = self.targets[target]
        log.append(self.state.find_delivery(target).sequence, values)
        base_offset = len(log.values) - len(values)
        self.run(
            lambda: confirm_delivery(
                self.state, target, base_offset=base_offset, now_ms=self.now_ms
            ),
            is_written=is_confirmed,
        )

    @rule(compacts=st.booleans(), drops=st.booleans(), is_cleaned=st.booleans())
    def fail_over(self, compacts: bool, drops: bool, is_cleaned: bool) -> None:
        before = self.state.snapshot()
        if compacts:
            self.log.compact(drops_tombstones=drops)
        self.state = self.log.load(is_cleaned=is_cleaned)
        assert self.state.snapshot() == before

    @rule()
    def forget_messages_that_were_dropped(self) -> None:
        """Ids are kept: nothing is history of one that is forgotten."""
        records = forget_halves(self.state, decided_before_ms=0, expired_before_ms=0, limit=2)
        self.run(lambda: CoordinatorResult(reply=None, records=records), is_written=True)

    # -- what must hold --------------------------------------------------------------------

    @invariant()
    def only_what_was_committed_first_is_delivered_and_once(self) -> None:
        delivered = Counter(
            value for target in TARGETS.values() for value in self.targets[target].values
        )
        allowed = {
            value: history.decided_ms + history.delays_ms[value]
            for history in self.ids.values()
            if history.first is HalfWord.COMMIT
            for value in history.values
        }
        for value, count in delivered.items():
            assert count == 1, "twice"
            assert value in allowed, "not committed"
            assert allowed[value] <= self.now_ms, "early"

    def teardown(self) -> None:
        """In the end, all of every committed id arrives, and nothing that came late is lost."""
        self.now_ms += RETENTION_MS
        self.state = self.log.load(is_cleaned=True)
        for target in self.targets:
            while self.state.find_delivery(target).numbers or self.is_ready(target):
                self.deliver(target, True, True, True)
        delivered = Counter(
            value for target in TARGETS.values() for value in self.targets[target].values
        )
        assert delivered == Counter(
            value
            for history in self.ids.values()
            if history.first is HalfWord.COMMIT
            for value in history.values
        )
        seen = Counter(
            value for target in EXPIRED.values() for value in self.targets[target].values
        )
        for value in self.late:
            assert seen[value] == 1

    def is_ready(self, target: Target) -> bool:
        self.state.take_due(self.now_ms)
        return any(True for _ in self.state.ready(target))

    def message_at(self, offset: int) -> DeferredMessage:
        record = self.log.read(offset)
        assert isinstance(record, MessageRecord)
        assert record.value is not None
        return record.value


TestHalfMessageHistories = HalfMessageHistories.TestCase
