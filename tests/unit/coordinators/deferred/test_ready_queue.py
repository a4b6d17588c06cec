"""What is due and cannot be delivered yet: in order, and few of it in memory."""

from uuid import UUID

from tests.unit.coordinators.deferred.runs import MemoryRuns

from penstock.coordinators.deferred.cancel import cancel_message
from penstock.coordinators.deferred.delivery import (
    DeliveryLimits,
    begin_delivery,
    confirm_delivery,
)
from penstock.coordinators.deferred.ready_queue import MAX_IN_MEMORY, RUN_ENTRIES
from penstock.coordinators.deferred.records import MessageRecord
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.coordinators.deferred.values import DeferredMessage, DelayKey, Target
from penstock.model.ids import TopicId

TOPIC = TopicId(UUID(int=9))
REFUSES, OTHER = Target(TOPIC, 0), Target(TOPIC, 1)
LIMITS = DeliveryLimits(500, 1 << 20)
COUNT = MAX_IN_MEMORY + 3 * RUN_ENTRIES + 7


class Shard:
    def __init__(self) -> None:
        self.runs = MemoryRuns()
        self.state = DeferredShardState(self.runs)

    def add(self, number: int, target: Target, delay_id: str | None = None) -> None:
        message = DeferredMessage(number, target, delay_id, 0, None, b"v", ())
        self.state.replay(MessageRecord(number, message), number)

    def deliver(self, target: Target) -> tuple[int, ...]:
        """One batch, confirmed at once."""
        for record in begin_delivery(self.state, target, LIMITS).records:
            self.state.replay(record, COUNT)
        numbers = self.state.find_delivery(target).numbers
        for record in confirm_delivery(self.state, target, now_ms=COUNT).records:
            self.state.replay(record, COUNT)
        return numbers


def test_a_target_that_refuses_for_long_keeps_its_messages_in_runs_and_in_order() -> None:
    shard = Shard()
    for number in range(COUNT):
        shard.add(number, REFUSES)
    shard.add(COUNT, OTHER)
    shard.state.take_due(COUNT)
    assert len(shard.runs.by_hour) == 3
    assert max(shard.runs.by_hour) < 0, "the runs of hours are not touched"
    assert shard.state.find_oldest_due_ms() == 0
    assert shard.deliver(OTHER) == (COUNT,), "others do not wait for it"
    delivered = [number for _ in range(COUNT // 500 + 1) for number in shard.deliver(REFUSES)]
    assert delivered == list(range(COUNT))
    assert shard.state.ready_targets() == []
    assert shard.runs.by_hour == {}


def test_what_is_cancelled_in_a_run_is_not_delivered() -> None:
    shard = Shard()
    last = COUNT - 1
    for number in range(COUNT):
        shard.add(number, REFUSES, "x" if number == last else None)
    shard.state.take_due(COUNT)
    for record in cancel_message(shard.state, DelayKey(TOPIC, "x"), now_ms=COUNT).records:
        shard.state.replay(record, COUNT)
    delivered = [number for _ in range(COUNT // 500 + 1) for number in shard.deliver(REFUSES)]
    assert delivered == list(range(last))
    assert shard.state.ready_targets() == []


def test_what_becomes_due_later_comes_after_what_is_in_runs() -> None:
    shard = Shard()
    for number in range(COUNT):
        shard.add(number, REFUSES)
        if number in (COUNT // 2, COUNT - 1):
            shard.state.take_due(number)
            assert shard.deliver(REFUSES)[0] == (0 if number < COUNT - 1 else 500)
    delivered = [number for _ in range(COUNT // 500 + 1) for number in shard.deliver(REFUSES)]
    assert delivered == list(range(1000, COUNT))
