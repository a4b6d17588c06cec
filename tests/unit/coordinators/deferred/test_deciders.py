"""Deferring, delivering and cancelling: limits, repeats and answers, each on a small state."""

from __future__ import annotations

from uuid import UUID

from tests.unit.coordinators.deferred.runs import MemoryRuns

from penstock.coordinators.deferred.cancel import CancelReply, cancel_message, cancel_messages
from penstock.coordinators.deferred.defer import (
    DONE,
    REMEMBERED_BATCHES,
    DeferLimits,
    DeferReply,
    SentBy,
    defer_messages,
)
from penstock.coordinators.deferred.delivery import (
    DeliveryLimits,
    begin_delivery,
    confirm_delivery,
)
from penstock.coordinators.deferred.records import DeferredRecord
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    Delivery,
    SequenceRange,
    Target,
)
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId

TOPIC = TopicId(UUID(int=1))
TARGET = Target(TOPIC, 0)
NOW_MS = 1_700_000_000_000
LIMITS = DeferLimits(max_delay_ms=10_000, max_pending=5)
MANY = DeliveryLimits(max_messages=100, max_bytes=1_000_000)


class Shard:
    def __init__(self) -> None:
        self.state = DeferredShardState(MemoryRuns())
        self._end_offset = 0

    def apply(self, result: CoordinatorResult[object, DeferredRecord]) -> None:
        for record in result.records:
            self.state.replay(record, self._end_offset)
            self._end_offset += 1

    def defer(
        self,
        *messages: DeferredMessage,
        sent_by: SentBy | None = None,
        limits: DeferLimits = LIMITS,
    ) -> DeferReply:
        result = defer_messages(self.state, messages, sent_by, limits, now_ms=NOW_MS)
        self.apply(result)
        assert isinstance(result.reply, DeferReply)
        return result.reply

    def begin(self, limits: DeliveryLimits = MANY, *, now_ms: int = NOW_MS) -> tuple[int, ...]:
        self.state.take_due(now_ms)
        self.apply(begin_delivery(self.state, TARGET, limits))
        return self.state.find_delivery(TARGET).numbers

    def confirm(self) -> None:
        self.apply(confirm_delivery(self.state, TARGET, now_ms=NOW_MS))

    def cancel(self, delay_id: str) -> object:
        result = cancel_message(self.state, DelayKey(TOPIC, delay_id), now_ms=NOW_MS)
        self.apply(result)
        return result.reply


def message(
    delay_ms: int = 0, *, delay_id: str | None = None, value: bytes = b"v"
) -> DeferredMessage:
    return DeferredMessage(NOW_MS + delay_ms, TARGET, delay_id, NOW_MS, None, value, ())


def batch(first: int, last: int, *, epoch: int = 0) -> SentBy:
    return SentBy(TARGET, 5, epoch, SequenceRange(first, last))


def test_what_is_above_a_limit_is_refused_whole_and_says_which() -> None:
    shard = Shard()
    refused = shard.defer(message(), message(10_001))
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "penstock.delayed.max.ms" in str(refused.message)
    assert len(shard.state.pending) == 0
    assert shard.defer(*[message()] * 5) == DONE
    refused = shard.defer(message())
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "penstock.delayed.max.pending" in str(refused.message)
    assert len(shard.state.pending) == 5


def test_a_repeated_batch_is_deferred_once_and_an_older_epoch_is_fenced() -> None:
    shard = Shard()
    assert shard.defer(message(), sent_by=batch(0, 0, epoch=1)) == DONE
    assert shard.defer(message(), sent_by=batch(0, 0, epoch=1)) == DONE
    assert len(shard.state.pending) == 1
    fenced = shard.defer(message(), sent_by=batch(1, 1, epoch=0))
    assert fenced.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert shard.defer(message(), sent_by=batch(0, 0, epoch=2)) == DONE
    assert len(shard.state.pending) == 2


def test_as_many_batches_are_remembered_as_a_producer_may_have_in_flight() -> None:
    shard, limits = Shard(), LIMITS._replace(max_pending=100)
    for sequence in range(REMEMBERED_BATCHES + 1):
        shard.defer(message(), sent_by=batch(sequence, sequence), limits=limits)
    before = len(shard.state.pending)
    for sequence in range(1, REMEMBERED_BATCHES + 1):
        shard.defer(message(), sent_by=batch(sequence, sequence), limits=limits)
    assert len(shard.state.pending) == before


def test_a_repeat_is_recognised_however_late_it_is() -> None:
    """A broker may have waited for the shard while the producer went on through another."""
    shard, limits = Shard(), LIMITS._replace(max_pending=100)
    wrap = 2**31
    sequences = [(wrap - 10 + number) % wrap for number in range(20)]
    for sequence in sequences:
        shard.defer(message(), sent_by=batch(sequence, sequence), limits=limits)
    assert len(shard.state.pending) == len(sequences)
    for sequence in sequences:
        assert shard.defer(message(), sent_by=batch(sequence, sequence), limits=limits) == DONE
    assert len(shard.state.pending) == len(sequences)


def test_a_batch_in_parts_is_deferred_part_by_part() -> None:
    """Each part ends further in the batch; a repeat finds how far it has come."""
    shard = Shard()
    for last in (1, 3, 1, 3, 4, 4, 3):
        assert shard.defer(message(), sent_by=batch(0, last)) == DONE
    assert len(shard.state.pending) == 3


def test_a_delivery_takes_what_fits_in_the_order_of_time() -> None:
    shard = Shard()
    shard.defer(message(2, value=bytes(500)), message(1), message(3), message(9_000))
    assert shard.begin(MANY._replace(max_bytes=650), now_ms=NOW_MS + 3) == (1, 0)
    shard.confirm()
    assert shard.begin(MANY._replace(max_messages=1), now_ms=NOW_MS + 3) == (2,)
    shard.confirm()
    assert shard.begin(now_ms=NOW_MS + 8_999) == ()
    assert shard.state.find_delivery(TARGET) == Delivery(3, ())


def test_a_message_above_every_limit_is_delivered_alone() -> None:
    shard = Shard()
    shard.defer(message(value=bytes(5_000)), message())
    assert shard.begin(DeliveryLimits(max_messages=10, max_bytes=100)) == (0,)


def test_sequences_start_again_after_the_largest() -> None:
    shard = Shard()
    shard.defer(message(), message())
    shard.state.deliveries[TARGET] = Delivery(2**31 - 1, ())
    shard.begin()
    shard.confirm()
    assert shard.state.find_delivery(TARGET).sequence == 1


def test_a_cancel_is_answered_exactly_and_twice_the_same() -> None:
    shard = Shard()
    assert shard.cancel("x") is CancelReply.UNKNOWN
    shard.defer(message(delay_id="x"), message(delay_id="y"))
    assert shard.cancel("x") is CancelReply.CANCELLED
    assert shard.cancel("x") is CancelReply.CANCELLED
    assert shard.begin() == (1,)
    assert shard.cancel("y") is CancelReply.DELIVERED, "it is on its way"
    shard.confirm()
    assert shard.cancel("y") is CancelReply.DELIVERED
    assert len(shard.state.pending) == 0


def test_different_messages_are_cancelled_by_one_decision() -> None:
    shard = Shard()
    shard.defer(message(delay_id="x"), message(), message(delay_id="y"), message(delay_id="z"))
    shard.cancel("z")
    keys = [DelayKey(TOPIC, delay_id) for delay_id in ("y", "unknown", "z", "x")]
    result = cancel_messages(shard.state, keys, now_ms=NOW_MS)
    done, unknown = CancelReply.CANCELLED, CancelReply.UNKNOWN
    assert result.reply == (done, unknown, done, done)
    shard.apply(result)
    assert shard.begin() == (1,), "only the one without an id is left"


def test_the_newest_message_of_an_id_replaces_the_one_before() -> None:
    shard = Shard()
    shard.defer(message(delay_id="x"), message(delay_id="x"))
    assert shard.begin() == (1,)
    shard.defer(message(delay_id="x"))
    shard.confirm()
    assert shard.begin() == (2,), "one that was sent stays"
    shard.confirm()
    assert shard.cancel("x") is CancelReply.DELIVERED


def test_a_number_is_not_given_again_when_compaction_has_removed_the_first() -> None:
    """Another replica may still have the first message and its end."""
    cleaned = Shard()
    cleaned.state.on_loaded(end_offset=7)
    cleaned.defer(message())
    assert 7 in cleaned.state.pending
    assert len(cleaned.state.pending) == 1


def test_a_cancel_is_about_the_newest_message_of_an_id() -> None:
    """Also while an older one is on its way, and until the end of the newest is forgotten."""
    shard = Shard()
    shard.defer(message(delay_id="x"))
    assert shard.begin() == (0,)
    shard.defer(message(delay_id="x"))
    assert shard.cancel("x") is CancelReply.CANCELLED
    assert shard.cancel("x") is CancelReply.CANCELLED
    assert shard.state.by_delay_key == {DelayKey(TOPIC, "x"): 0}
    shard.confirm()
    assert shard.cancel("x") is CancelReply.CANCELLED
    shard.defer(message(delay_id="x"))
    assert not shard.state.ended, "the id is used again"
    assert shard.cancel("x") is CancelReply.CANCELLED
