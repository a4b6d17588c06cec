"""Messages of transactions: their producer's marker decides, on whichever leader it finds them."""

import asyncio

from tests.unit.coordinators.deferred.harness import (
    FIRST,
    TOPIC,
    DeferredCoordinatorHarness,
    run_scenario,
)

from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.config import DeferredConfig
from penstock.coordinators.deferred.defer import SentBy
from penstock.coordinators.deferred.values import DeferredMessage, DelayKey, SequenceRange
from penstock.model.errors import ErrorCode
from penstock.model.markers import TransactionMarker

PRODUCER = 7
DELAY_MS = 1_000


async def send(
    harness: DeferredCoordinatorHarness,
    *values: bytes,
    first: int = 0,
    delay_id: str | None = None,
    code: ErrorCode = ErrorCode.NONE,
) -> ErrorCode:
    """A batch of the producer's transaction; `code`: what the transaction's coordinator says."""
    messages = [
        DeferredMessage(0, FIRST, delay_id, 0, None, value, (), commit_delay_ms=DELAY_MS)
        for value in values
    ]
    sent_by = SentBy(FIRST, PRODUCER, 0, SequenceRange(first, first + len(values) - 1))
    return (await harness.coordinator.defer(0, messages, sent_by, lambda: code)).code


async def end(harness: DeferredCoordinatorHarness, *, commit: bool) -> None:
    marker = TransactionMarker(PRODUCER, 0, commit, coordinator_epoch=1)
    assert await harness.coordinator.end_transaction(0, marker) is ErrorCode.NONE


def test_a_delay_counts_from_the_commit() -> None:
    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            assert await send(harness, b"one", b"two") is ErrorCode.NONE
            assert await send(harness, b"one", b"two") is ErrorCode.NONE  # a repeat
            await harness.advance_ms(10 * DELAY_MS)
            assert harness.targets.values[FIRST] == []
            await end(harness, commit=True)
            await harness.advance_ms(DELAY_MS - 1)
            assert harness.targets.values[FIRST] == []
            await harness.advance_ms(1)
            assert harness.targets.values[FIRST] == [b"one", b"two"]
            await end(harness, commit=True)  # a marker may come twice
            await harness.advance_ms(2 * DELAY_MS)
            assert harness.targets.values[FIRST] == [b"one", b"two"]

    run_scenario(scenario)


def test_an_abort_forgets() -> None:
    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            await send(harness, b"aborted")
            await end(harness, commit=False)
            await send(harness, b"committed", first=1)
            await end(harness, commit=True)
            await harness.advance_ms(DELAY_MS)
            assert harness.targets.values[FIRST] == [b"committed"]
            assert len(harness.shard.state.pending) == 0
            assert len(harness.shard.state.transactions) == 0

    run_scenario(scenario)


def test_the_next_leader_finds_open_and_committed_transactions() -> None:
    async def scenario() -> None:
        first = DeferredCoordinatorHarness()
        async with first.running():
            await send(first, b"committed by the next leader")
        second = DeferredCoordinatorHarness(first.log, clock=first.clock, targets=first.targets)
        async with second.running():
            assert len(second.shard.state.transactions) == 1
            await end(second, commit=True)
            snapshot = second.shard.state.snapshot()
        third = DeferredCoordinatorHarness(first.log, clock=first.clock, targets=first.targets)
        async with third.running():
            assert third.shard.state.snapshot() == snapshot
            await third.advance_ms(DELAY_MS - 1)
            assert third.targets.values[FIRST] == []
            await third.advance_ms(1)
            assert third.targets.values[FIRST] == [b"committed by the next leader"]

    run_scenario(scenario)


def test_nothing_is_written_for_a_transaction_that_is_over() -> None:
    async def scenario() -> None:
        async with DeferredCoordinatorHarness().running() as harness:
            before = harness.shard.state.snapshot()
            code = await send(harness, b"late", code=ErrorCode.TRANSACTION_ABORTABLE)
            assert code is ErrorCode.TRANSACTION_ABORTABLE
            assert harness.shard.state.snapshot() == before

    run_scenario(scenario)


def test_messages_of_open_transactions_count_towards_the_limit() -> None:
    async def scenario() -> None:
        config = DeferredConfig(max_pending=2)
        async with DeferredCoordinatorHarness(config=config).running() as harness:
            assert await send(harness, b"one", b"two") is ErrorCode.NONE
            refused = await harness.coordinator.defer(0, [harness.message(5, b"x")], None)
            assert refused.code is ErrorCode.POLICY_VIOLATION
            await end(harness, commit=False)
            await harness.defer(harness.message(5, b"x"))

    run_scenario(scenario)


def test_a_commit_replaces_what_waits_under_its_delay_id() -> None:
    """Before the commit, a cancel finds the earlier message; records of what was replaced are
    removed without anybody's asking, because the marker is not kept for ever."""

    async def scenario() -> None:
        key = DelayKey(TOPIC, "x")
        async with DeferredCoordinatorHarness().running() as harness:
            await harness.defer(harness.message(5_000, b"cancelled", delay_id="x"))
            await send(harness, b"first", delay_id="x")
            assert await harness.cancel(key) is CancelReply.CANCELLED
            await end(harness, commit=True)
            assert key not in harness.shard.state.ended
            assert harness.shard.state.reused == {key: None}
            await send(harness, b"second", first=1, delay_id="x")
            assert not harness.shard.state.has_replaced  # before anything else is decided
            await end(harness, commit=True)
            assert len(harness.shard.state.replaced) == 1
            await harness.advance_ms(1)
            assert not harness.shard.state.has_replaced
            await harness.advance_ms(10 * DELAY_MS)
            assert harness.targets.values[FIRST] == [b"second"]
            assert await harness.cancel(key) is CancelReply.DELIVERED
            snapshot = harness.shard.state.snapshot()
        after = DeferredCoordinatorHarness(harness.log, clock=harness.clock)
        async with after.running():
            await after.advance_ms(10 * DELAY_MS)
            assert after.targets.values[FIRST] == []
            assert after.shard.state.snapshot() == snapshot

    run_scenario(scenario)


def test_a_shard_that_is_not_loaded_lets_the_marker_come_again() -> None:
    async def scenario() -> None:
        harness = DeferredCoordinatorHarness()
        marker = TransactionMarker(PRODUCER, 0, True, coordinator_epoch=1)
        code = await harness.coordinator.end_transaction(0, marker)
        assert code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        await asyncio.sleep(0)

    run_scenario(scenario)
