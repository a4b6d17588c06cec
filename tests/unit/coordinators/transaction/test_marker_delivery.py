"""Markers are sent after the decision is committed, retried until written, and never mixed up."""

import asyncio

import pytest
from tests.unit.coordinators.group.coordinator_harness import TableLog
from tests.unit.coordinators.transaction.harness import (
    NEW_END,
    NONE,
    OLD_END,
    T0,
    T1,
    TX,
    U0,
    FakePartitions,
    TransactionCoordinatorHarness,
    replay_log,
    run_scenario,
)

from penstock.coordinators.transaction.marker_delivery import (
    FIRST_BACKOFF_MS,
    MAX_BACKOFF_MS,
    REFUSED_BACKOFF_MS,
)
from penstock.coordinators.transaction.pending_markers import ALREADY_ENDED, REFUSED_AS_STALE
from penstock.coordinators.transaction.producer_epochs import MAX_EPOCH
from penstock.coordinators.transaction.records import State
from penstock.coordinators.transaction.requests import ProducerIdAndEpoch
from penstock.model.errors import ErrorCode

GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def ended(
    harness: TransactionCoordinatorHarness, *, commit: bool = True
) -> ProducerIdAndEpoch:
    """End a transaction over all partitions, whose decision is just committed."""
    who = await harness.producer()
    assert await harness.add(who, T0, T1, U0) is NONE
    reply = await harness.end(who, commit=commit)
    assert reply.code is NONE
    await harness.turns()
    return ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)


def test_a_transaction_completes_when_every_partition_has_its_marker() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        after = await ended(harness)
        assert harness.transaction().state is State.COMPLETE_COMMIT
        assert not harness.transaction().partitions
        for tp in (T0, T1, U0):
            assert harness.partitions.markers[tp] == [(after, True, 0)]
        assert harness.shard.pending_markers == 0

    run_scenario(scenario)


def test_no_marker_is_sent_before_the_decision_is_committed() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.add(who, T0)
        harness.log.is_held = True
        ending = asyncio.create_task(harness.end(who))
        await harness.turns()
        assert not ending.done()
        assert not harness.partitions.sent
        assert harness.shard.pending_markers == 1
        harness.log.commit()
        await harness.turns()
        assert (await ending).code is NONE
        assert len(harness.partitions.markers[T0]) == 1

    run_scenario(scenario)


def test_markers_are_sent_when_a_slow_decision_is_committed() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.add(who, T0)
        harness.log.is_held = True
        ending = asyncio.create_task(harness.end(who))
        await harness.turns()
        harness.log.time_out()
        assert (await ending).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        harness.clock.advance_ms(10_000)
        await harness.turns()
        assert not harness.partitions.sent
        harness.log.is_held = False
        harness.log.commit()
        harness.clock.advance_ms(1_000)
        await harness.turns()
        assert len(harness.partitions.markers[T0]) == 1
        assert harness.transaction().state is State.COMPLETE_COMMIT
        again = await harness.end(who)
        assert (again.code, again.producer_epoch) == (NONE, who.epoch + 1)

    run_scenario(scenario)


def test_no_marker_is_sent_after_the_leadership_is_lost() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.add(who, T0)
        harness.log.is_held = True
        ending = asyncio.create_task(harness.end(who))
        await harness.turns()
        harness.log.lose()
        assert (await ending).code is ErrorCode.NOT_COORDINATOR
        harness.log.commit()  # as another broker may
        harness.clock.advance_ms(60_000)
        await harness.turns()
        assert not harness.partitions.sent

    run_scenario(scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        GONE,  # the topic exists: that leader has stale metadata
    ],
)
def test_only_failed_markers_are_retried(code: ErrorCode) -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.refusals[T1] = code
        await ended(harness)
        for _ in range(3):
            harness.clock.advance_ms(MAX_BACKOFF_MS)
        assert harness.transaction().state is State.PREPARE_COMMIT
        assert {marker.partitions for marker in harness.partitions.sent[1:]} == {(T1,)}
        del harness.partitions.refusals[T1]
        harness.clock.advance_ms(MAX_BACKOFF_MS)
        assert harness.transaction().state is State.COMPLETE_COMMIT
        assert [len(marker) for marker in harness.partitions.markers.values()] == [1, 1, 1]

    run_scenario(scenario)


def test_a_leader_change_retries_at_once() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.refusals[T1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await ended(harness)
        del harness.partitions.refusals[T1]
        harness.coordinator.on_leaders_changed()
        assert harness.transaction().state is State.COMPLETE_COMMIT

    run_scenario(scenario)


def test_a_leader_change_does_not_resend_markers_in_flight() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.is_held = True
        await ended(harness)
        harness.coordinator.on_leaders_changed()
        assert len(harness.partitions.sent) == 1

    run_scenario(scenario)


def test_a_partition_of_a_deleted_topic_needs_no_marker() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.add(who, T0, U0)
        del harness.partitions.markers[U0]
        assert (await harness.end(who)).code is NONE
        await harness.turns()
        assert harness.transaction().state is State.COMPLETE_COMMIT

    run_scenario(scenario)


def test_a_topic_deleted_during_delivery_does_not_block_the_transaction() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.refusals[U0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await ended(harness)
        harness.partitions.refusals[U0] = GONE
        del harness.partitions.markers[U0]
        harness.coordinator.on_leaders_changed()
        assert harness.transaction().state is State.COMPLETE_COMMIT

    run_scenario(scenario)


@pytest.mark.parametrize("code", REFUSED_AS_STALE)
def test_a_marker_refused_as_stale_is_reported_once_and_retried_seldom(
    code: ErrorCode,
) -> None:
    """One of the sides lost its state: the transaction can still be ended."""

    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.refusals[T1] = code
        await ended(harness)
        for _ in range(3):
            harness.clock.advance_ms(REFUSED_BACKOFF_MS)
        (line,) = harness.reports
        assert "'payments'" in line
        assert f"orders-1: {code.name}" in line
        assert "penstock transaction find-hanging" in line
        assert [marker.partitions for marker in harness.partitions.sent[1:]] == [(T1,)] * 3
        assert harness.transaction().state is State.PREPARE_COMMIT
        del harness.partitions.refusals[T1]
        harness.clock.advance_ms(REFUSED_BACKOFF_MS)
        assert harness.transaction().state is State.COMPLETE_COMMIT
        await check_begins_with_another_id(harness)

    run_scenario(scenario)


@pytest.mark.parametrize("version", [OLD_END, NEW_END])
def test_an_already_ended_transaction_completes_and_its_id_gets_a_new_producer_id(
    version: int,
) -> None:
    """Otherwise lost epochs would be used again.

    Records of the new owner would then look like those of the old one.
    """

    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.refusals[T1] = ALREADY_ENDED
        who = await harness.producer()
        await harness.add(who, T0, T1)
        after = await harness.end(who, version=version)
        await harness.turns()
        assert harness.transaction().state is State.COMPLETE_COMMIT
        assert "orders-1: PRODUCER_FENCED" in harness.reports[0]
        go_on = ProducerIdAndEpoch(after.producer_id, after.producer_epoch)
        assert await harness.add(go_on, T0) is ErrorCode.PRODUCER_FENCED
        await check_begins_with_another_id(harness)

    run_scenario(scenario)


async def check_begins_with_another_id(harness: TransactionCoordinatorHarness) -> None:
    before = harness.transaction()
    assert before.owner.epoch == MAX_EPOCH
    heir = await harness.producer()
    assert heir.id != before.producer_id
    assert heir.epoch == 0


def test_a_stale_refusal_does_not_raise_the_backoff_of_others() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.refusals[T1] = ErrorCode.INVALID_PRODUCER_EPOCH
        await ended(harness)
        harness.partitions.refusals[U0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for number in range(8):  # without a reset each would double the backoff
            other = await harness.producer(f"other-{number}")
            await harness.add(other, U0, name=f"other-{number}")
            await harness.end(other, name=f"other-{number}")
            await harness.turns()
            del harness.partitions.refusals[U0]
            harness.clock.advance_ms(FIRST_BACKOFF_MS)
            assert harness.transaction(f"other-{number}").state is State.COMPLETE_COMMIT
            harness.partitions.refusals[U0] = ErrorCode.NOT_LEADER_OR_FOLLOWER

    run_scenario(scenario)


def test_a_stale_refusal_does_not_delay_other_partitions() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.refusals[T0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        harness.partitions.refusals[T1] = ErrorCode.INVALID_PRODUCER_EPOCH
        await ended(harness)
        del harness.partitions.refusals[T0]
        harness.clock.advance_ms(FIRST_BACKOFF_MS)
        assert [len(harness.partitions.markers[tp]) for tp in (T0, T1, U0)] == [1, 0, 1]

    run_scenario(scenario)


def test_a_partition_with_a_newer_transaction_is_not_described() -> None:
    """So a search for hanging transactions finds it."""

    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.refusals |= {
            T0: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            T1: ErrorCode.INVALID_PRODUCER_EPOCH,
            U0: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        }
        await ended(harness)
        assert harness.coordinator.describe(TX).partitions == (T0, U0)
        harness.partitions.is_held = True
        harness.clock.advance_ms(REFUSED_BACKOFF_MS)  # retried, still without a result
        assert harness.coordinator.describe(TX).partitions == (T0, U0)
        harness.partitions.refusals.clear()
        harness.partitions.let_go()
        assert harness.transaction().state is State.COMPLETE_COMMIT

    run_scenario(scenario)


def test_the_next_transaction_begins_after_completion() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.is_held = True
        after = await ended(harness)
        assert await harness.add(after, T0) is ErrorCode.CONCURRENT_TRANSACTIONS
        harness.partitions.let_go()
        assert await harness.add(after, T0) is NONE

    run_scenario(scenario)


def test_a_failed_completion_is_retried_without_new_markers() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.is_held = True
        await ended(harness)
        harness.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        harness.partitions.let_go()
        assert harness.transaction().state is State.PREPARE_COMMIT
        harness.log.refusal = None
        harness.clock.advance_ms(MAX_BACKOFF_MS)
        assert harness.transaction().state is State.COMPLETE_COMMIT
        assert len(harness.partitions.sent) == 1

    run_scenario(scenario)


def decided_before_failover(commit: bool = True) -> tuple[TableLog, FakePartitions]:
    """Return a log and partitions whose coordinator stopped before it sent the markers."""
    harness = TransactionCoordinatorHarness()

    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.is_held = True
        await ended(harness, commit=commit)

    run_scenario(scenario, harness)
    harness.log.lead()
    return harness.log, harness.partitions


@pytest.mark.parametrize("commit", [True, False])
def test_a_new_coordinator_sends_the_markers_of_prepared_transactions(commit: bool) -> None:
    log, partitions = decided_before_failover(commit)

    async def scenario() -> None:
        partitions.is_held = False
        async with TransactionCoordinatorHarness(log, partitions=partitions).running(
            leader_epoch=3
        ) as harness:
            await harness.turns()
            assert harness.transaction().state.is_complete
            for tp in (T0, T1, U0):
                (marker,) = (one for one in partitions.markers[tp] if one.coordinator_epoch == 3)
                assert marker.commit is commit

    asyncio.run(scenario())


def test_results_of_a_former_coordinators_markers_are_ignored() -> None:
    """They do not stop the new coordinator's markers either (KAFKA-9777)."""

    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.partitions.is_held = True
        await ended(harness)
        harness.shard.reload(ErrorCode.NOT_COORDINATOR)
        harness.clock.advance_ms(100)
        await harness.loaded()
        written = harness.log.appends
        harness.partitions.refusals = dict.fromkeys((T0, T1, U0), ErrorCode.REQUEST_TIMED_OUT)
        first, second = harness.partitions.sent
        assert first == second
        harness.partitions.let_go()
        assert harness.log.appends == written
        harness.partitions.refusals.clear()
        harness.partitions.is_held = False
        harness.clock.advance_ms(MAX_BACKOFF_MS)
        assert harness.transaction().state is State.COMPLETE_COMMIT

    run_scenario(scenario)


def test_markers_carry_the_current_coordinator_epoch() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.coordinator.take_partition(0, 8)  # still the same leadership
        await ended(harness)
        assert {marker.coordinator_epoch for marker in harness.partitions.sent} == {8}

    run_scenario(scenario)


def test_a_transaction_without_partitions_sends_no_markers() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        reply = await harness.end(who, commit=False)
        assert (reply.code, reply.producer_epoch) == (NONE, who.epoch + 1)
        assert harness.transaction().state is State.COMPLETE_ABORT
        assert not harness.partitions.sent
        assert replay_log(harness.log).snapshot() == harness.shard.state.snapshot()

    run_scenario(scenario)
