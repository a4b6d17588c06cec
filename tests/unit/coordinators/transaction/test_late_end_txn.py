"""A late EndTxn, whose client has repeated it and begun its next transaction."""

from tests.unit.coordinators.transaction.harness import (
    NONE,
    OLD_ADD,
    OLD_END,
    T0,
    T1,
    TransactionCoordinatorHarness,
    run_scenario,
)

from penstock.coordinators.transaction.records import State
from penstock.coordinators.transaction.requests import ProducerIdAndEpoch
from penstock.model.errors import ErrorCode

AGAIN = ErrorCode.CONCURRENT_TRANSACTIONS
FIRST, SECOND, THIRD = 1, 2, 3  # connections, in order of creation


async def producer_in_second_transaction(
    harness: TransactionCoordinatorHarness, version: int
) -> tuple[ProducerIdAndEpoch, ProducerIdAndEpoch]:
    """A producer in its second transaction, which repeated EndTxn over another connection."""
    old = await harness.producer()
    assert await harness.add(old, T0, version=OLD_ADD, connection=FIRST) is NONE
    ended = await harness.end(old, version=version, connection=SECOND)
    await harness.turns()
    new = ProducerIdAndEpoch(ended.producer_id, ended.producer_epoch)
    assert await harness.add(new, T1, version=OLD_ADD, connection=SECOND) is NONE
    return old, new


def test_in_v2_the_epoch_identifies_a_late_end() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        old, new = await producer_in_second_transaction(harness, 5)
        for commit in (True, False):
            late = await harness.end(old, commit=commit, version=5)
            assert late.code is ErrorCode.PRODUCER_FENCED
        assert harness.transaction().state is State.ONGOING
        assert (await harness.end(new, version=5)).code is NONE

    run_scenario(scenario)


def test_before_v2_the_connection_identifies_a_late_end() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        old, new = await producer_in_second_transaction(harness, OLD_END)
        assert old == new
        for commit in (True, False):
            late = await harness.end(old, commit=commit, version=OLD_END, connection=FIRST)
            assert late.code is AGAIN
        assert harness.transaction().state is State.ONGOING
        assert not harness.partitions.markers[T1]
        assert (await harness.end(new, version=OLD_END, connection=SECOND)).code is NONE

    run_scenario(scenario)


def test_a_client_that_reconnects_is_not_late() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        _, new = await producer_in_second_transaction(harness, OLD_END)
        assert (await harness.end(new, version=OLD_END, connection=THIRD)).code is NONE

    run_scenario(scenario)


def test_a_client_with_a_separate_connection_for_ends_is_not_late() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.add(who, T0, connection=SECOND)
        assert (await harness.end(who, version=OLD_END, connection=FIRST)).code is NONE

    run_scenario(scenario)


def test_a_client_that_alternates_connections_is_not_late() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        for connection in (FIRST, SECOND, FIRST, SECOND, FIRST):
            await harness.add(who, T0, connection=connection)
            code = (await harness.end(who, version=OLD_END, connection=connection)).code
            await harness.turns()
            assert code is NONE

    run_scenario(scenario)


def test_a_fenced_producer_does_not_make_the_owner_look_late() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        _, new = await producer_in_second_transaction(harness, OLD_END)
        zombie = ProducerIdAndEpoch(new.id, new.epoch - 1)
        assert await harness.add(zombie, T0, connection=THIRD) is ErrorCode.PRODUCER_FENCED
        assert (await harness.end(new, version=OLD_END, connection=SECOND)).code is NONE

    run_scenario(scenario)


def test_a_zombie_is_fenced_even_over_an_abandoned_connection() -> None:
    """With a retriable code it would retry until its successor's transaction times out."""

    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        _, new = await producer_in_second_transaction(harness, OLD_END)
        zombie = ProducerIdAndEpoch(new.id, new.epoch - 1)
        late = await harness.end(zombie, version=OLD_END, connection=FIRST)
        assert late.code is ErrorCode.PRODUCER_FENCED
        assert harness.transaction().state is State.ONGOING

    run_scenario(scenario)


def test_a_repeated_end_succeeds_over_any_connection_once_nothing_is_open() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        _, new = await producer_in_second_transaction(harness, OLD_END)
        await harness.end(new, version=OLD_END, connection=SECOND)
        await harness.turns()
        again = await harness.end(new, version=OLD_END, connection=FIRST)
        assert again.code is NONE  # a repetition, over whichever connection

    run_scenario(scenario)
