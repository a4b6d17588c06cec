"""The coordinator of deferred messages: due ones arrive once, whatever fails in between."""

import asyncio
from errno import ENOSPC

from tests.unit.coordinators.deferred.harness import (
    FIRST,
    SECOND,
    TOPIC,
    DeferredCoordinatorHarness,
    run_scenario,
)

from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.config import DeferredConfig
from penstock.coordinators.deferred.coordinator import shard_name
from penstock.coordinators.deferred.defer import SentBy
from penstock.coordinators.deferred.due_index import HOUR_MS
from penstock.coordinators.deferred.shard import FORGOTTEN_AT_ONCE
from penstock.coordinators.deferred.target_delivery import FIRST_PAUSE_MS, MAX_PAUSE_MS
from penstock.coordinators.deferred.values import DelayKey, SequenceRange
from penstock.coordinators.runtime.coordinator_runtime import RELOAD_PAUSE_MS
from penstock.model.errors import ErrorCode


def test_a_message_is_delivered_when_it_is_due_and_not_before() -> None:
    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            late = harness.message(3 * HOUR_MS, b"late")
            await harness.defer(harness.message(1000, b"soon"), late)
            await harness.advance_ms(999)
            assert harness.targets.values[FIRST] == []
            await harness.advance_ms(1)
            assert harness.targets.values[FIRST] == [b"soon"]
            for _ in range(4):
                await harness.advance_ms(HOUR_MS - 300)
            assert harness.targets.values[FIRST] == [b"soon", b"late"]
            assert len(harness.shard.state.pending) == 0

    run_scenario(scenario)


def test_a_lost_answer_is_asked_for_again_and_nothing_arrives_twice() -> None:
    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            harness.targets.loses_answers = True
            await harness.defer(harness.message(0, b"one"), harness.message(5, b"two"))
            await harness.advance_ms(0)
            await harness.advance_ms(5)
            assert harness.targets.values[FIRST] == [b"one"]
            harness.targets.loses_answers = False
            await harness.advance_ms(2 * FIRST_PAUSE_MS)
            assert harness.targets.values[FIRST] == [b"one", b"two"]
            assert len(harness.shard.state.pending) == 0

    run_scenario(scenario)


def test_the_next_leader_sends_the_same_again() -> None:
    """It has all values from the log, and the target drops what it has."""

    async def scenario() -> None:
        before = DeferredCoordinatorHarness()
        async with before.running():
            before.targets.loses_answers = True
            await before.defer(before.message(0, b"one"))
            await before.defer(before.message(1, b"two"), before.message(HOUR_MS * 5, b"three"))
            await before.advance_ms(1)
        before.targets.loses_answers = False
        after = DeferredCoordinatorHarness(before.log, clock=before.clock, targets=before.targets)
        async with after.running():
            await after.settle()
            assert after.targets.values[FIRST] == [b"one", b"two"]
            await after.advance_ms(HOUR_MS * 5)
            await after.advance_ms(0)
            assert after.targets.values[FIRST] == [b"one", b"two", b"three"]

    run_scenario(scenario)


def test_nothing_is_sent_before_its_delivery_is_committed() -> None:
    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            await harness.defer(harness.message(10, b"one"))
            harness.log.is_held = True
            await harness.advance_ms(10)
            assert harness.shard.state.find_delivery(FIRST).numbers == (0,)
            harness.log.time_out()
            await harness.advance_ms(FIRST_PAUSE_MS)
            assert harness.targets.attempts == 0
            harness.log.is_held = False
            harness.log.commit()
            await harness.settle()
            await harness.advance_ms(4 * FIRST_PAUSE_MS)
            assert harness.targets.values[FIRST] == [b"one"]

    run_scenario(scenario)


def test_a_target_that_refuses_holds_up_no_other() -> None:
    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            harness.targets.refusals[FIRST] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            await harness.defer(
                harness.message(0, b"one"), harness.message(0, b"two", target=SECOND)
            )
            await harness.advance_ms(0)
            assert harness.targets.values[SECOND] == [b"two"]
            for _ in range(20):
                await harness.advance_ms(MAX_PAUSE_MS)
            assert harness.targets.attempts < 25, "it backs off"
            assert sum("did not take" in line for line in harness.reports) == 1
            harness.targets.refusals.clear()
            await harness.advance_ms(MAX_PAUSE_MS)
            assert harness.targets.values[FIRST] == [b"one"]

    run_scenario(scenario)


def test_messages_to_a_deleted_topic_are_dropped_and_reported() -> None:
    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            harness.targets.refusals[FIRST] = ErrorCode.UNKNOWN_TOPIC_ID
            await harness.defer(harness.message(0, b"one", delay_id="x"))
            await harness.advance_ms(0)
            assert len(harness.shard.state.pending) == 0
            assert any("is deleted" in line for line in harness.reports)
            assert await harness.cancel(DelayKey(TOPIC, "x")) is CancelReply.UNKNOWN

    run_scenario(scenario)


def test_the_end_of_a_message_is_known_for_its_retention() -> None:
    async def scenario() -> None:
        config = DeferredConfig(ended_retention_ms=10_000, forget_interval_ms=1_000)
        async with DeferredCoordinatorHarness(config=config).running() as harness:
            await harness.defer(harness.message(500, b"one", delay_id="x"))
            key = DelayKey(TOPIC, "x")
            assert await harness.cancel(key) is CancelReply.CANCELLED
            await harness.advance_ms(9_000)
            assert await harness.cancel(key) is CancelReply.CANCELLED
            for _ in range(3):
                await harness.advance_ms(1_000)
            assert await harness.cancel(key) is CancelReply.UNKNOWN
            assert harness.targets.values[FIRST] == []

    run_scenario(scenario)


def test_a_delay_id_has_one_shard_whatever_the_partition() -> None:
    assert shard_name(FIRST, "x") == shard_name(SECOND, "x")
    assert shard_name(FIRST, None) != shard_name(SECOND, None)
    assert shard_name(FIRST, "0") != shard_name(FIRST, None)


def test_a_shard_that_is_led_elsewhere_sends_nothing_more() -> None:
    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            harness.targets.refusals[FIRST] = ErrorCode.REQUEST_TIMED_OUT
            await harness.defer(harness.message(0, b"one"))
            await harness.advance_ms(0)
            attempts = harness.targets.attempts
            harness.log.lose()
            harness.coordinator.drop_partition(0)
            for _ in range(5):
                await harness.advance_ms(MAX_PAUSE_MS)
            assert harness.targets.attempts == attempts
            reply = await harness.coordinator.defer(0, [harness.message(0, b"two")], None)
            assert reply.code is ErrorCode.NOT_COORDINATOR

    run_scenario(scenario)


def test_a_message_that_becomes_due_while_a_delivery_ends_is_not_forgotten() -> None:
    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            await harness.defer(harness.message(10, b"one"))
            harness.log.is_held = True
            other = harness.message(HOUR_MS, b"other", target=SECOND)
            uncommitted = asyncio.create_task(harness.defer(other))
            await harness.settle()
            harness.shard._start_delivery(FIRST)  # nothing is ready; the answer waits for the log
            await harness.settle()
            await harness.advance_ms(10)
            harness.log.is_held = False
            harness.log.commit()
            await uncommitted
            await harness.settle()
            assert harness.targets.values[FIRST] == [b"one"]

    run_scenario(scenario)


def test_an_unexpected_error_of_a_delivery_reloads_the_shard() -> None:
    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            harness.targets.error = ZeroDivisionError("a bug")
            await harness.defer(harness.message(0, b"one"))
            await harness.advance_ms(0)
            assert any("ZeroDivisionError" in line for line in harness.reports)
            harness.targets.error = None
            await harness.advance_ms(RELOAD_PAUSE_MS)
            assert harness.targets.values[FIRST] == [b"one"]

    run_scenario(scenario)


def test_a_run_that_cannot_be_read_reloads_the_shard_and_nothing_else_ends() -> None:
    """On a full disk, for one. A timer that raises would end the broker."""

    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            await harness.defer(harness.message(3 * HOUR_MS, b"late"))
            for runs in harness.runs:
                runs.error = OSError(ENOSPC, "no space left")
            for _ in range(2):
                await harness.advance_ms(HOUR_MS)
            assert "no space left" in harness.reports[0]
            await harness.advance_ms(RELOAD_PAUSE_MS)
            await harness.advance_ms(HOUR_MS)
            assert harness.targets.values[FIRST] == [b"late"]

    run_scenario(scenario)


def test_ended_ids_and_idle_producers_are_forgotten() -> None:
    async def scenario() -> None:
        config = DeferredConfig(
            ended_retention_ms=1_000, producer_expiration_ms=1_000, forget_interval_ms=100
        )
        async with DeferredCoordinatorHarness(config=config).running() as harness:
            count = FORGOTTEN_AT_ONCE + 10
            batch = [harness.message(0, b"v", delay_id=str(number)) for number in range(count)]
            sent_by = SentBy(FIRST, 5, 0, SequenceRange(0, count - 1))
            await harness.coordinator.defer(0, batch, sent_by)
            for _ in range(5):
                await harness.advance_ms(1)
            assert len(harness.shard.state.ended) == count
            assert len(harness.shard.state.producers) == 1
            await harness.advance_ms(1_100)
            await harness.advance_ms(1)
            assert not harness.shard.state.ended
            assert not harness.shard.state.producers

    run_scenario(scenario)
