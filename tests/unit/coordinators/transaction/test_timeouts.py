"""Timeouts of transactions and expiry of transactional ids."""

import pytest
from tests.unit.coordinators.transaction.harness import (
    FIRST_ID,
    NONE,
    OLD_END,
    T0,
    T1,
    TX,
    TransactionCoordinatorHarness,
    replay_log,
    run_scenario,
)
from tests.unit.coordinators.transaction.test_end_transaction import in_state

from penstock.coordinators.transaction.end_transaction import abort
from penstock.coordinators.transaction.producer_epochs import LAST_EPOCH, MAX_EPOCH
from penstock.coordinators.transaction.records import State
from penstock.coordinators.transaction.requests import EndTxnReply, ProducerIdAndEpoch
from penstock.coordinators.transaction.timeouts import is_timed_out
from penstock.model.errors import ErrorCode

FENCED = ErrorCode.PRODUCER_FENCED
DAY_MS = 86_400_000


def test_a_timed_out_transaction_is_aborted_and_its_producer_fenced() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer(timeout_ms=25_000)
        await harness.add(who, T0, T1)
        harness.clock.advance_ms(20_000)
        assert harness.transaction().state is State.ONGOING
        harness.clock.advance_ms(10_000)
        await harness.turns()
        assert harness.transaction().state is State.COMPLETE_ABORT
        assert harness.coordinator.statistics().timed_out == 1
        for tp in (T0, T1):
            (marker,) = harness.partitions.markers[tp]
            assert (marker.producer, marker.commit) == ((who.id, who.epoch + 1), False)
        assert await harness.add(who, T0) is FENCED
        assert (await harness.end(who, version=OLD_END)).code is FENCED
        assert (await harness.end(who, version=OLD_END, commit=False)).code is FENCED

    run_scenario(scenario)


def test_a_commit_after_the_timeout_is_fenced_and_an_abort_succeeds() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer(timeout_ms=1)
        await harness.add(who, T0)
        harness.clock.advance_ms(10_000)
        await harness.turns()
        assert (await harness.end(who, commit=True)).code is FENCED
        ended = await harness.end(who, commit=False)
        assert ended == EndTxnReply(NONE, who.id, who.epoch + 1)
        assert await harness.add(ProducerIdAndEpoch(*ended[1:]), T0) is NONE

    run_scenario(scenario)


def test_a_timed_out_producer_may_get_its_next_epoch() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer(timeout_ms=1)
        await harness.add(who, T0)
        harness.clock.advance_ms(10_000)
        await harness.turns()
        assert await harness.producer(claimed=who) == (who.id, who.epoch + 1)

    run_scenario(scenario)


def test_a_replaced_producer_may_not_get_its_next_epoch() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.add(who, T0)
        await harness.init()
        await harness.turns()
        assert (await harness.init(claimed=who)).code is FENCED

    run_scenario(scenario)


def test_the_timeout_starts_with_the_first_partition() -> None:
    started = in_state(State.ONGOING, started_ms=1_000, updated_ms=9_000, timeout_ms=500)
    assert not is_timed_out(started, 1_500)
    assert is_timed_out(started, 1_501)


@pytest.mark.parametrize("state", [number for number in State if number is not State.ONGOING])
def test_only_an_ongoing_transaction_times_out(state: State) -> None:
    assert not is_timed_out(in_state(state), 10**15)


@pytest.mark.parametrize(
    ("epoch", "fencing"), [(0, 1), (LAST_EPOCH, MAX_EPOCH), (MAX_EPOCH, MAX_EPOCH)]
)
def test_an_abort_always_has_an_epoch_to_fence_with(epoch: int, fencing: int) -> None:
    transaction = in_state(State.ONGOING, producer_epoch=epoch)
    decided = abort(transaction, now_ms=1, may_come_back=True)
    assert (decided.producer_id, decided.producer_epoch) == (7, fencing)


def test_an_abort_that_could_not_be_written_is_retried() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer(timeout_ms=1)
        await harness.add(who, T0)
        harness.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        harness.clock.advance_ms(10_000)
        assert harness.transaction().state is State.ONGOING
        harness.log.refusal = None
        harness.clock.advance_ms(10_000)
        await harness.turns()
        assert harness.transaction().state is State.COMPLETE_ABORT

    run_scenario(scenario)


def test_a_sweep_covers_more_ids_than_one_step() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        for number in range(450):
            who = await harness.producer(f"t{number}", timeout_ms=1)
            await harness.add(who, T0, name=f"t{number}")
        harness.clock.advance_ms(10_000)
        for _ in range(3):
            harness.clock.advance_ms(1)
        await harness.turns()
        assert harness.coordinator.statistics().ongoing == 0

    run_scenario(scenario)


# -- transactional ids ---------------------------------------------------------------------


@pytest.mark.parametrize("commit", [None, True, False])
def test_an_idle_transactional_id_expires(commit: bool | None) -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        if commit is not None:
            await harness.add(who, T0)
            await harness.end(who, commit=commit)
            await harness.turns()
        harness.clock.advance_ms(6 * DAY_MS)
        assert harness.coordinator.describe(TX).code is NONE
        harness.clock.advance_ms(DAY_MS)
        assert harness.coordinator.describe(TX).code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert not replay_log(harness.log).transactions
        assert await harness.add(who, T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await harness.producer() == (FIRST_ID + 1, 0)

    run_scenario(scenario)


def test_an_id_with_pending_markers_does_not_expire() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.add(who, T0)
        harness.partitions.is_held = True
        await harness.end(who)
        await harness.turns()
        harness.clock.advance_ms(30 * DAY_MS)
        assert harness.transaction().state is State.PREPARE_COMMIT

    run_scenario(scenario)
