"""InitProducerId: the id and epoch of new, repeated and replaced producers."""

import pytest
from tests.unit.coordinators.transaction.harness import (
    FIRST_ID,
    NONE,
    OLD_END,
    T0,
    T1,
    TX,
    TransactionCoordinatorHarness,
    run_scenario,
)

from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.init_producer_id import init_producer_id
from penstock.coordinators.transaction.producer_epochs import LAST_EPOCH, MAX_EPOCH
from penstock.coordinators.transaction.records import State, Transaction
from penstock.coordinators.transaction.requests import (
    NO_PRODUCER,
    InitProducerId,
    InitProducerIdReply,
    ProducerIdAndEpoch,
)
from penstock.model.errors import ErrorCode

FENCED = ErrorCode.PRODUCER_FENCED
AGAIN = ErrorCode.CONCURRENT_TRANSACTIONS


def test_the_first_producer_gets_a_new_id() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        assert await harness.producer() == (FIRST_ID, 0)
        assert await harness.producer("other") == (FIRST_ID + 1, 0)
        assert harness.transaction().state is State.EMPTY

    run_scenario(scenario)


def test_the_next_producer_gets_the_next_epoch_and_fences_the_previous_one() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        old = await harness.producer()
        new = await harness.producer()
        assert new == (old.id, old.epoch + 1)
        assert await harness.add(old, T0) is FENCED
        assert (await harness.end(old)).code is FENCED
        assert await harness.add(new, T0) is NONE

    run_scenario(scenario)


def test_an_open_transaction_is_aborted_first() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        old = await harness.producer()
        await harness.add(old, T0, T1)
        assert (await harness.init()).code is AGAIN
        await harness.turns()
        assert harness.transaction().state is State.COMPLETE_ABORT
        # One bump fences the old producer, one is for the new one (KAFKA-19367).
        assert await harness.producer() == (old.id, old.epoch + 2)
        for tp in (T0, T1):
            (marker,) = harness.partitions.markers[tp]
            assert marker.producer == (old.id, old.epoch + 1)
            assert not marker.commit

    run_scenario(scenario)


def test_init_during_marker_delivery_gets_concurrent_transactions() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.add(who, T0)
        harness.partitions.is_held = True
        await harness.end(who)
        await harness.turns()
        assert (await harness.init()).code is AGAIN
        harness.partitions.let_go()
        assert (await harness.init()).code is NONE

    run_scenario(scenario)


def test_a_repeated_init_gets_the_same_epoch() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        old = await harness.producer()
        new = await harness.producer(claimed=old)
        assert new == (old.id, old.epoch + 1)
        assert await harness.producer(claimed=old) == new  # its response was lost
        assert await harness.producer(claimed=new) == (old.id, old.epoch + 2)
        assert (await harness.init(claimed=old)).code is FENCED

    run_scenario(scenario)


def test_a_repeated_init_is_recognized_by_a_new_coordinator() -> None:
    first = TransactionCoordinatorHarness()

    async def begin(harness: TransactionCoordinatorHarness) -> None:
        old = await harness.producer()
        await harness.producer(claimed=old)

    run_scenario(begin, first)

    async def go_on(harness: TransactionCoordinatorHarness) -> None:
        assert await harness.producer(claimed=ProducerIdAndEpoch(FIRST_ID, 0)) == (FIRST_ID, 1)

    run_scenario(go_on, TransactionCoordinatorHarness(first.log, clock=first.clock))


def test_a_late_init_does_not_abort_the_next_transaction() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        old = await harness.producer()
        new = await harness.producer(claimed=old)
        await harness.add(new, T0)
        assert (await harness.init(claimed=old)).code is FENCED
        assert harness.transaction().state is State.ONGOING

    run_scenario(scenario)


def test_a_zombie_cannot_abort_its_successors_transaction() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        old = await harness.producer()
        new = await harness.producer()
        await harness.add(new, T0)
        assert (await harness.init(claimed=old)).code is FENCED
        assert harness.transaction().state is State.ONGOING
        assert (await harness.end(new)).code is NONE

    run_scenario(scenario)


def test_init_after_a_lost_response_to_a_commit_is_allowed() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.add(who, T0)
        ended = await harness.end(who)
        await harness.turns()
        assert await harness.producer(claimed=who) == (ended.producer_id, ended.producer_epoch)

    run_scenario(scenario)


def test_a_foreign_producer_id_is_fenced() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        for foreign in (
            ProducerIdAndEpoch(who.id + 1, 0),
            ProducerIdAndEpoch(0, 0),
            ProducerIdAndEpoch(2**63 - 1, MAX_EPOCH),
        ):
            assert (await harness.init(claimed=foreign)).code is FENCED

    run_scenario(scenario)


def test_a_claimed_id_is_replaced_if_the_transactional_id_is_unknown() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        assert await harness.producer(claimed=ProducerIdAndEpoch(5, 5)) == (FIRST_ID, 0)

    run_scenario(scenario)


def test_producer_id_and_epoch_are_set_together() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        assert (
            await harness.init(claimed=ProducerIdAndEpoch(5, -1))
        ).code is ErrorCode.INVALID_REQUEST
        assert (
            await harness.init(claimed=ProducerIdAndEpoch(-1, 5))
        ).code is ErrorCode.INVALID_REQUEST

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [
        (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (1, NONE),
        (5_000, NONE),
        (5_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (2**31 - 1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_the_transaction_timeout_is_bounded(timeout_ms: int, code: ErrorCode) -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        assert (await harness.init(timeout_ms=timeout_ms)).code is code

    run_scenario(
        scenario, TransactionCoordinatorHarness(config=TransactionConfig(max_timeout_ms=5_000))
    )


@pytest.mark.parametrize("name", ["", "x" * 32_768, "é" * 16_384])
def test_a_transactional_id_too_long_for_a_record_is_rejected(name: str) -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = ProducerIdAndEpoch(1, 1)
        assert (await harness.init(name)).code is ErrorCode.INVALID_REQUEST
        assert await harness.add(who, T0, name=name) is ErrorCode.INVALID_REQUEST
        assert (await harness.end(who, name=name)).code is ErrorCode.INVALID_REQUEST
        assert harness.coordinator.describe(name).code is ErrorCode.INVALID_REQUEST

    run_scenario(scenario)


def test_the_longest_transactional_id_is_accepted() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        assert (await harness.init("x" * 32_767)).code is NONE

    run_scenario(scenario)


def test_a_failed_allocation_of_a_producer_id_is_an_error() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.ids.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await harness.init()).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        harness.ids.refusal = None
        assert (await harness.init()).code is NONE

    run_scenario(scenario)


# -- the last epochs -----------------------------------------------------------------------


def complete_at(epoch: int, **more: int) -> Transaction:
    return Transaction(
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=1,
        state=State.COMPLETE_COMMIT,
        updated_ms=0,
        **more,  # type: ignore[arg-type]
    )


def ask(transaction: Transaction, claimed: ProducerIdAndEpoch = NO_PRODUCER) -> InitProducerIdReply:
    request = InitProducerId(
        transactional_id="t",
        timeout_ms=1,
        producer_id=claimed.id,
        producer_epoch=claimed.epoch,
    )
    reply = init_producer_id({"t": transaction}, request, new_producer_id=99, now_ms=0).reply
    assert isinstance(reply, InitProducerIdReply)
    return reply


@pytest.mark.parametrize(
    ("epoch", "given"),
    [
        (0, (7, 1)),
        (LAST_EPOCH - 1, (7, LAST_EPOCH)),
        (LAST_EPOCH, (99, 0)),
        (MAX_EPOCH, (99, 0)),  # used by the abort of a timed-out transaction
    ],
)
def test_after_the_last_epoch_the_producer_gets_another_id(
    epoch: int, given: tuple[int, int]
) -> None:
    reply = ask(complete_at(epoch))
    assert (reply.producer_id, reply.producer_epoch) == given


def test_a_repeated_init_after_a_change_of_id_gets_the_new_id() -> None:
    first = init_producer_id(
        {"t": complete_at(LAST_EPOCH)},
        InitProducerId(
            transactional_id="t", timeout_ms=1, producer_id=7, producer_epoch=LAST_EPOCH
        ),
        new_producer_id=99,
        now_ms=0,
    )
    after = first.records[0].value
    assert after is not None
    again = ask(after, ProducerIdAndEpoch(7, LAST_EPOCH))
    assert (again.code, again.producer_id, again.producer_epoch) == (NONE, 99, 0)
    assert ask(after, ProducerIdAndEpoch(7, LAST_EPOCH - 1)).code is FENCED


def test_a_timed_out_producer_at_the_last_epoch_gets_another_id() -> None:
    """The abort used the epoch that is reserved for fencing."""
    transaction = complete_at(MAX_EPOCH, last_producer_epoch=LAST_EPOCH)
    reply = ask(transaction, ProducerIdAndEpoch(7, LAST_EPOCH))
    assert (reply.producer_id, reply.producer_epoch) == (99, 0)


def test_v1_and_v2_clients_may_alternate() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        for version in (OLD_END, 5, OLD_END, 5):
            assert await harness.add(who, T0) is NONE
            ended = await harness.end(who, version=version)
            assert ended.code is NONE
            await harness.turns()
            who = ProducerIdAndEpoch(ended.producer_id, ended.producer_epoch)
        assert who == (FIRST_ID, 2)
        assert [marker.commit for marker in harness.partitions.markers[T0]] == [True] * 4
        assert harness.coordinator.describe(TX).state == "CompleteCommit"

    run_scenario(scenario)
