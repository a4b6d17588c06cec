"""Any history of sends, repeats, cancels, transactions, crashes and failovers: a message is
delivered once, when it is due, unless it was cancelled, replaced or aborted; and the answer to a
cancel is true for ever."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.profile import scaled
from tests.properties.deferred_shard import Marker, ShardLog, TargetLog

from penstock.coordinators.deferred.cancel import (
    CancelReply,
    cancel_message,
    forget_ended,
    forget_replaced,
)
from penstock.coordinators.deferred.defer import DONE, DeferLimits, SentBy, defer_messages
from penstock.coordinators.deferred.delivery import (
    DeliveryLimits,
    begin_delivery,
    confirm_delivery,
)
from penstock.coordinators.deferred.due_index import HOUR_MS
from penstock.coordinators.deferred.records import (
    DeferredRecord,
    MessageRecord,
)
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    SequenceRange,
    Target,
)
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.model.ids import TopicId

TOPIC = TopicId(UUID(int=7))
TARGETS = [Target(TOPIC, partition) for partition in range(2)]
IDS = ["a", "b"]
TRANSACTIONAL_IDS = [21, 22]  # of producers
LIMITS = DeferLimits(max_delay_ms=100 * HOUR_MS, max_pending=1000)
FEW = DeliveryLimits(max_messages=3, max_bytes=1000)
START_MS = 1_000 * HOUR_MS
SKEW_MS = 2_000

Reply = TypeVar("Reply")


class LastStep(Enum):
    """Of a delivery, before the shard fails."""

    NONE = 0
    BEGUN = 1  # written down
    SENT = 2
    CONFIRMED = 3


LAST_STEPS = [*LastStep, LastStep.CONFIRMED, LastStep.CONFIRMED]


@dataclass
class Sent:
    """A message as its sender knows it."""

    due_ms: int
    delay_id: str | None
    is_cancelled: bool = False
    must_arrive: bool = False  # somebody was told that it is delivered
    delivered: int = 0


class Uncommitted(NamedTuple):
    value: bytes
    due_ms: int
    delay_ms: int
    delay_id: str | None


@settings(
    max_examples=scaled(test=200, verify=2_000, release=20_000),
    stateful_step_count=60,
    deadline=None,
)
class DeferredMessages(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.skew_ms = 0  # by which the leader's clock is behind
        self.log = ShardLog()
        self.state = self.log.load()
        self.messages: dict[bytes, Sent] = {}
        self.targets = {target: TargetLog() for target in TARGETS}
        self.sequence = 0
        self.last_batch: tuple[list[DeferredMessage], SentBy] | None = None
        self.transactions: dict[int, list[Uncommitted]] = {}  # the open ones, by producer id

    def run(
        self, decide: Callable[[], CoordinatorResult[Reply, DeferredRecord]], *, is_written: bool
    ) -> Reply | None:
        """None: the write failed, and the shard has not changed."""
        self.forget_replaced()  # as the shard does before any decision
        return self.write(decide(), is_written=is_written)

    def write(
        self, result: CoordinatorResult[Reply, DeferredRecord], *, is_written: bool
    ) -> Reply | None:
        if result.records and not is_written:
            return None
        for record in result.records:
            self.state.replay(*self.log.append(record, result.written_by.producer_id))
        return result.reply  # type: ignore[return-value]

    # -- senders ---------------------------------------------------------------------------

    @rule(
        to=st.sampled_from(TARGETS),
        delays_ms=st.lists(
            st.sampled_from([-5, 0, 1, 1_000, 1_000, HOUR_MS - 1, 50 * HOUR_MS]),
            min_size=1,
            max_size=3,
        ),
        delay_id=st.sampled_from([None, *IDS]),
        is_idempotent=st.booleans(),
        is_written=st.sampled_from([True, True, False]),
    )
    def send(
        self,
        to: Target,
        delays_ms: list[int],
        delay_id: str | None,
        is_idempotent: bool,
        is_written: bool,
    ) -> None:
        batch = []
        for index, delay_ms in enumerate(delays_ms):
            value = b"%d" % len(self.messages)
            message_id = delay_id if index == 0 else None
            due_ms = self.now_ms + delay_ms
            batch.append(DeferredMessage(due_ms, to, message_id, due_ms, None, value, ()))
            self.messages[value] = Sent(due_ms, message_id)
        sequences = SequenceRange(self.sequence, self.sequence + len(batch) - 1)
        sent_by = SentBy(to, 5, 0, sequences)
        if self.defer(batch, sent_by if is_idempotent else None, is_written=is_written):
            if is_idempotent:
                self.last_batch = batch, sent_by
                self.sequence += len(batch)
        else:
            for message in batch:
                del self.messages[message.value or b""]

    def defer(
        self, batch: list[DeferredMessage], sent_by: SentBy | None, *, is_written: bool
    ) -> bool:
        key = None if batch[0].delay_id is None else DelayKey(TOPIC, batch[0].delay_id)
        number = None if key is None else self.state.by_delay_key.get(key)
        replaced = None if number is None or self.state.is_sent(number) else self.value_of(number)
        reply = self.run(
            lambda: defer_messages(self.state, batch, sent_by, LIMITS, now_ms=self.now_ms),
            is_written=is_written,
        )
        assert reply in (DONE, None)
        if reply is not None and replaced is not None:
            self.messages[replaced].is_cancelled = True
        return reply is not None

    @precondition(lambda self: self.last_batch is not None)
    @rule()
    def repeat_the_last_batch(self) -> None:
        assert self.last_batch is not None
        batch, sent_by = self.last_batch
        before = self.state.snapshot()
        reply = self.run(
            lambda: defer_messages(self.state, batch, sent_by, LIMITS, now_ms=self.now_ms),
            is_written=True,
        )
        assert reply == DONE
        assert self.state.snapshot() == before

    @rule(delay_id=st.sampled_from(IDS), is_written=st.booleans())
    def cancel(self, delay_id: str, is_written: bool) -> None:
        key = DelayKey(TOPIC, delay_id)
        number = self.state.by_delay_key.get(key)
        if number is not None and self.state.is_sent(number) and key in self.state.ended:
            number = None  # a later one of this id has ended
        reply = self.run(
            lambda: cancel_message(self.state, key, now_ms=self.now_ms), is_written=is_written
        )
        if number is None:
            assert reply is not None
            self.check_answer_about_the_last(delay_id, reply)
        elif reply is CancelReply.CANCELLED:
            self.messages[self.value_of(number)].is_cancelled = True
        elif reply is not None:
            assert reply is CancelReply.DELIVERED
            self.messages[self.value_of(number)].must_arrive = True

    def check_answer_about_the_last(self, delay_id: str, reply: CancelReply) -> None:
        """Nothing with this id waits."""
        last = [sent for sent in self.messages.values() if sent.delay_id == delay_id]
        if reply is CancelReply.DELIVERED:
            assert last[-1].delivered
        elif reply is CancelReply.CANCELLED:
            assert last[-1].is_cancelled
        else:
            assert all(sent.delivered or sent.is_cancelled for sent in last)

    # -- transactions ----------------------------------------------------------------------

    @rule(
        producer_id=st.sampled_from(TRANSACTIONAL_IDS),
        to=st.sampled_from(TARGETS),
        delays_ms=st.lists(st.sampled_from([0, 1, 1_000, 50 * HOUR_MS]), min_size=1, max_size=3),
        delay_id=st.sampled_from([None, *IDS]),
        is_at=st.booleans(),
        is_written=st.sampled_from([True, True, False]),
    )
    def send_in_transaction(
        self,
        producer_id: int,
        to: Target,
        delays_ms: list[int],
        delay_id: str | None,
        is_at: bool,
        is_written: bool,
    ) -> None:
        """`is_at`: at a time, whenever that is in relation to the commit."""
        sent: list[Uncommitted] = []
        for index, delay_ms in enumerate(delays_ms):
            due_ms, after_ms = (self.now_ms + delay_ms, 0) if is_at else (0, delay_ms)
            value = b"%d" % (len(self.messages) + len(sent))
            sent.append(Uncommitted(value, due_ms, after_ms, None if index else delay_id))
        batch = [
            DeferredMessage(
                one.due_ms, to, one.delay_id, 0, None, one.value, (), None, one.delay_ms
            )
            for one in sent
        ]
        sent_by = SentBy(
            to, producer_id, 0, SequenceRange(self.sequence, self.sequence + len(batch) - 1)
        )
        reply = self.run(
            lambda: defer_messages(
                self.state, batch, sent_by, LIMITS, now_ms=self.now_ms, is_transactional=True
            ),
            is_written=is_written,
        )
        if reply is not None:
            self.sequence += len(batch)
            self.transactions.setdefault(producer_id, []).extend(sent)
            self.messages |= {one.value: Sent(sys.maxsize, None) for one in sent}

    @rule(
        producer_id=st.sampled_from(TRANSACTIONAL_IDS), commit=st.booleans(), forgets=st.booleans()
    )
    def end_transaction(self, producer_id: int, commit: bool, forgets: bool) -> None:
        """Also if none is open: markers are repeated."""
        for one in self.transactions.pop(producer_id, []):
            sent = self.messages.pop(one.value)
            if commit:
                self.replace(one.delay_id)
                sent.delay_id = one.delay_id
                sent.due_ms = max(one.due_ms, self.now_ms + one.delay_ms)
            sent.is_cancelled = not commit
            self.messages[one.value] = sent  # from now on it is the newest
        self.log.append_marker(Marker(producer_id, commit, self.now_ms))
        self.state.end_transaction(producer_id, commit=commit, ended_ms=self.now_ms)
        if forgets:
            self.forget_replaced()

    def replace(self, delay_id: str | None) -> None:
        """Neither the newest of the id, if it is not sent, nor one of the same transaction."""
        newest = [sent for sent in self.messages.values() if delay_id and sent.delay_id == delay_id]
        number = self.state.by_delay_key.get(DelayKey(TOPIC, delay_id or ""))
        is_sent = number is not None and self.state.is_sent(number)
        if newest and not newest[-1].delivered and not (is_sent and self.is_of(number, newest[-1])):
            newest[-1].is_cancelled = True

    def is_of(self, number: int | None, sent: Sent) -> bool:
        assert number is not None
        return self.messages[self.value_of(number)] is sent

    def forget_replaced(self) -> None:
        while self.state.has_replaced:
            records = forget_replaced(self.state, 1)
            self.write(CoordinatorResult(reply=None, records=records), is_written=True)

    # -- time, and those who deliver -------------------------------------------------------

    @rule(elapsed_ms=st.sampled_from([1, 999, 60_000, HOUR_MS, 200 * HOUR_MS]))
    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms

    @rule(
        elapsed_ms=st.sampled_from([0, 1_000, HOUR_MS]),
        ends=st.tuples(*[st.sampled_from(LAST_STEPS) for _ in TARGETS]),
    )
    def wait_and_deliver(self, elapsed_ms: int, ends: tuple[LastStep, ...]) -> None:
        self.now_ms += elapsed_ms
        for target, last_step in zip(TARGETS, ends, strict=True):
            self.deliver(target, last_step)

    def deliver(self, target: Target, last_step: LastStep) -> None:
        """As far as the shard gets before it fails."""
        self.state.take_due(self.now_ms - self.skew_ms)
        if not self.state.find_delivery(target).numbers:
            is_begun = last_step is not LastStep.NONE
            self.run(lambda: begin_delivery(self.state, target, FEW), is_written=is_begun)
        sent = self.state.find_sent(target)
        if not sent or last_step in (LastStep.NONE, LastStep.BEGUN):
            return
        values = [self.value_at(entry.offset, entry.number) for entry in sent]
        sequence = self.state.find_delivery(target).sequence
        if self.targets[target].append(sequence, values):
            for value in values:
                assert self.now_ms - self.skew_ms >= self.messages[value].due_ms, "early"
                self.messages[value].delivered += 1
        self.run(
            lambda: confirm_delivery(self.state, target, now_ms=self.now_ms),
            is_written=last_step is LastStep.CONFIRMED,
        )

    @rule(
        skew_ms=st.sampled_from([0, SKEW_MS]),
        compacts=st.booleans(),
        drops=st.booleans(),
        is_cleaned=st.booleans(),
    )
    def fail_over(self, skew_ms: int, compacts: bool, drops: bool, is_cleaned: bool) -> None:
        if drops:  # it takes a day until they may be
            self.forget_replaced()
        if compacts:
            self.log.compact(drops_tombstones=drops)
        before, self.state = self.state, self.log.load(is_cleaned=is_cleaned)
        for state in (before, self.state):  # what an aborted transaction has left is of no use
            for producer in list(state.producers):
                if producer[1] in TRANSACTIONAL_IDS:
                    del state.producers[producer]
        assert self.state.snapshot() == before.snapshot()
        self.skew_ms = skew_ms

    @rule()
    def forget(self) -> None:
        records = forget_ended(self.state, ended_before_ms=self.now_ms - HOUR_MS)
        self.run(lambda: CoordinatorResult(reply=None, records=records), is_written=True)

    # -- what must hold --------------------------------------------------------------------

    @invariant()
    def nothing_is_delivered_twice_or_in_spite_of_a_cancel(self) -> None:
        for sent in self.messages.values():
            assert sent.delivered <= (0 if sent.is_cancelled else 1)
        counts = Counter(value for log in self.targets.values() for value in log.values)
        assert counts == {value: 1 for value, sent in self.messages.items() if sent.delivered}

    def teardown(self) -> None:
        """In the end, all that was not cancelled arrives."""
        for producer_id in TRANSACTIONAL_IDS:
            self.end_transaction(producer_id, commit=False, forgets=True)
        self.now_ms += 200 * HOUR_MS
        for target in TARGETS:
            while self.state.find_delivery(target).numbers or self.is_ready(target):
                self.deliver(target, LastStep.CONFIRMED)
        assert len(self.state.pending) == 0
        for sent in self.messages.values():
            assert sent.delivered == (0 if sent.is_cancelled else 1)
            assert sent.delivered or not sent.must_arrive

    def is_ready(self, target: Target) -> bool:
        self.state.take_due(self.now_ms - self.skew_ms)
        return any(True for _ in self.state.ready(target))

    def value_at(self, offset: int, number: int) -> bytes:
        record = self.log.read(offset)
        assert isinstance(record, MessageRecord)
        assert record.number == number
        assert record.value is not None
        assert record.value.value is not None
        return record.value.value

    def value_of(self, number: int) -> bytes:
        """Of a pending message, whose record is the only one with its number."""
        for offset in self.log.offsets():
            record = self.log.read(offset)
            if isinstance(record, MessageRecord) and record.number == number and record.value:
                return self.value_at(offset, number)
        raise AssertionError(number)


TestDeferredMessages = DeferredMessages.TestCase
