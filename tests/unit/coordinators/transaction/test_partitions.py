"""Adding partitions to a transaction and verifying them, one row per state."""

import asyncio

import pytest
from tests.unit.coordinators.transaction.harness import (
    NONE,
    OLD_ADD,
    T0,
    T1,
    U0,
    TransactionCoordinatorHarness,
    run_scenario,
)
from tests.unit.coordinators.transaction.test_end_transaction import NOW_MS, OWNER, in_state

from penstock.coordinators.transaction.partitions import add_partitions, verify_partitions
from penstock.coordinators.transaction.producer_epochs import MAX_EPOCH
from penstock.coordinators.transaction.records import State, Transaction
from penstock.coordinators.transaction.requests import ProducerIdAndEpoch
from penstock.coordinators.transaction.transaction_version import BUMPING
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

FENCED = ErrorCode.PRODUCER_FENCED
WRONG_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING
AGAIN = ErrorCode.CONCURRENT_TRANSACTIONS
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE

STRANGERS = [
    (ProducerIdAndEpoch(7, 3), FENCED),
    (ProducerIdAndEpoch(7, 0), FENCED),
    (ProducerIdAndEpoch(7, 5), FENCED),
    (ProducerIdAndEpoch(8, 4), WRONG_ID),
    (ProducerIdAndEpoch(-1, -1), WRONG_ID),
]


def add(
    transaction: Transaction | None, who: ProducerIdAndEpoch, *partitions: TopicPartition
) -> ErrorCode:
    reply = add_partitions(
        {} if transaction is None else {"t": transaction},
        "t",
        who,
        partitions,
        version=BUMPING,
        now_ms=NOW_MS,
    ).reply
    assert isinstance(reply, ErrorCode)
    return reply


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (State.EMPTY, NONE),
        (State.ONGOING, NONE),
        (State.PREPARE_COMMIT, AGAIN),
        (State.PREPARE_ABORT, AGAIN),
        (State.COMPLETE_COMMIT, NONE),
        (State.COMPLETE_ABORT, NONE),
    ],
)
def test_the_owner_adds_partitions_except_while_markers_are_pending(
    state: State, code: ErrorCode
) -> None:
    assert add(in_state(state), OWNER, T1) is code


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(("who", "code"), STRANGERS)
def test_the_producer_epoch_is_checked_in_every_state(
    state: State, who: ProducerIdAndEpoch, code: ErrorCode
) -> None:
    assert add(in_state(state), who, T1) is code
    assert verify_partitions({"t": in_state(state)}, "t", who, [T0]) == {T0: code}


def test_the_max_epoch_owns_nothing() -> None:
    transaction = in_state(State.COMPLETE_ABORT, producer_epoch=MAX_EPOCH)
    assert add(transaction, ProducerIdAndEpoch(7, MAX_EPOCH), T0) is FENCED


def test_an_unknown_transactional_id_gets_invalid_producer_id_mapping() -> None:
    assert add(None, OWNER, T0) is WRONG_ID
    assert verify_partitions({}, "t", OWNER, [T0]) == {T0: WRONG_ID}


@pytest.mark.parametrize(
    ("state", "of_it", "others"),
    [
        (State.EMPTY, ABORTABLE, ABORTABLE),
        (State.ONGOING, NONE, ABORTABLE),
        (State.PREPARE_COMMIT, AGAIN, AGAIN),
        (State.PREPARE_ABORT, AGAIN, AGAIN),
        (State.COMPLETE_COMMIT, ABORTABLE, ABORTABLE),
        (State.COMPLETE_ABORT, ABORTABLE, ABORTABLE),
    ],
)
def test_only_added_partitions_are_verified(
    state: State, of_it: ErrorCode, others: ErrorCode
) -> None:
    codes = verify_partitions({"t": in_state(state)}, "t", OWNER, [T0, T1])
    assert codes == {T0: of_it, T1: others}


def test_partitions_accumulate_until_the_end() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        harness.clock.advance_ms(10)
        began_ms = harness.clock.wall_ms()
        assert await harness.add(who, T0) is NONE
        harness.clock.advance_ms(10)
        assert await harness.add(who, T1, U0, version=OLD_ADD) is NONE
        transaction = harness.transaction()
        assert transaction.partitions == {T0, T1, U0}
        assert (transaction.started_ms, transaction.updated_ms) == (began_ms, began_ms + 10)
        assert transaction.state is State.ONGOING

    run_scenario(scenario)


def test_partitions_already_added_are_not_written_again() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.add(who, T0, T1)
        written = harness.log.appends
        assert await harness.add(who, T1) is NONE
        assert await harness.add(who) is NONE
        assert harness.log.appends == written

    run_scenario(scenario)


def test_an_unknown_partition_is_not_added() -> None:
    """It would get no marker, because a partition unknown at that time counts as deleted."""

    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        new = TopicPartition("new", 0)
        assert await harness.add(who, T0, new) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert harness.transaction().state is State.EMPTY
        assert await harness.add(ProducerIdAndEpoch(who.id, 9), new) is FENCED
        harness.partitions.markers[new] = []
        assert await harness.add(who, T0, new) is NONE

    run_scenario(scenario)


def test_a_partition_is_verified_only_when_its_record_is_committed() -> None:
    """A verified partition opens the transaction in its log."""

    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        harness.log.is_held = True
        adding = asyncio.create_task(harness.add(who, T0))
        await harness.turns()
        asking = asyncio.create_task(
            harness.coordinator.verify_partitions("payments", who.id, who.epoch, [T0])
        )
        await harness.turns()
        assert not adding.done()
        assert not asking.done()
        harness.log.commit()
        assert await adding is NONE
        assert await asking == {T0: NONE}

    run_scenario(scenario)


def test_more_partitions_than_fit_into_a_record_are_rejected() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        many = [TopicPartition("t" * 200 + str(number), 0) for number in range(10_000)]
        harness.partitions.markers.update({tp: [] for tp in many})
        assert await harness.add(who, *many) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert harness.transaction().state is State.EMPTY
        assert "'payments' takes" in harness.reports[-1]
        assert await harness.add(who, T0) is NONE

    run_scenario(scenario)
