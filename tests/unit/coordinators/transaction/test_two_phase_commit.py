"""Two-phase commit (KIP-939): prepared transactions stay until they are decided."""

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
from tests.unit.coordinators.transaction.test_end_transaction import NOW_MS, in_state

from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.end_transaction import end_transaction
from penstock.coordinators.transaction.init_producer_id import init_producer_id
from penstock.coordinators.transaction.producer_epochs import LAST_EPOCH, MAX_EPOCH
from penstock.coordinators.transaction.records import State, Transaction
from penstock.coordinators.transaction.requests import (
    EndTxnReply,
    InitProducerId,
    InitProducerIdReply,
    ProducerIdAndEpoch,
)
from penstock.coordinators.transaction.transaction_version import BUMPING
from penstock.model.errors import ErrorCode

FENCED = ErrorCode.PRODUCER_FENCED
YEAR_MS = 365 * 86_400_000


def test_a_broker_with_two_phase_commit_disabled_refuses_it() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        reply = await harness.init(two_phase=True)
        assert reply.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    run_scenario(
        scenario, TransactionCoordinatorHarness(config=TransactionConfig(two_phase_enabled=False))
    )


def test_only_a_two_phase_producer_can_keep_a_transaction() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        assert (await harness.init(keep_prepared=True)).code is ErrorCode.INVALID_REQUEST

    run_scenario(scenario)


def test_a_two_phase_transaction_never_times_out_or_expires() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer(two_phase=True)
        await harness.add(who, T0)
        for _ in range(3):
            harness.clock.advance_ms(YEAR_MS)
        assert harness.transaction().state is State.ONGOING
        assert harness.coordinator.describe(TX).is_two_phase
        assert (await harness.end(who)).code is NONE

    run_scenario(scenario)


def test_a_kept_transaction_is_ended_by_its_new_owner() -> None:
    for commit in (True, False):

        async def scenario(harness: TransactionCoordinatorHarness, commit: bool = commit) -> None:
            old = await harness.producer(two_phase=True)
            await harness.add(old, T0, T1)
            reply = await harness.init(two_phase=True, keep_prepared=True)
            assert reply == InitProducerIdReply(
                code=NONE,
                producer_id=old.id,
                producer_epoch=old.epoch + 1,
                ongoing_producer_id=old.id,
                ongoing_producer_epoch=old.epoch,
            )
            new = ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)
            ended = await harness.end(new, commit=commit)
            assert ended == EndTxnReply(NONE, new.id, new.epoch + 1)
            await harness.turns()
            for tp in (T0, T1):
                (marker,) = harness.partitions.markers[tp]
                assert (marker.producer, marker.commit) == ((new.id, new.epoch + 1), commit)
            assert await harness.end(new, commit=commit) == ended  # its response was lost
            assert await harness.add(ProducerIdAndEpoch(*ended[1:]), T0) is NONE

        run_scenario(scenario)


def test_a_prepared_transaction_survives_every_kind_of_restart() -> None:
    first = TransactionCoordinatorHarness()

    async def prepare(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer(two_phase=True)
        await harness.add(who, T0)

    run_scenario(prepare, first)
    first.clock.advance_ms(YEAR_MS)
    first.log.lead()

    async def finish(harness: TransactionCoordinatorHarness) -> None:
        harness.clock.advance_ms(YEAR_MS)
        reply = await harness.init(two_phase=True, keep_prepared=True)
        assert (reply.ongoing_producer_id, reply.ongoing_producer_epoch) == (FIRST_ID, 0)
        ended = await harness.end(ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch))
        assert ended.code is NONE
        await harness.turns()
        (marker,) = harness.partitions.markers[T0]
        assert marker.commit

    run_scenario(finish, TransactionCoordinatorHarness(first.log, clock=first.clock))


def test_previous_owners_of_a_kept_transaction_are_fenced() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        old = await harness.producer(two_phase=True)
        await harness.add(old, T0)
        first = await harness.producer(two_phase=True, keep_prepared=True)
        second = await harness.producer(two_phase=True, keep_prepared=True)
        assert (first.epoch, second.epoch) == (1, 2)
        for producer in (old, first):
            assert await harness.add(producer, T1) is FENCED
            assert (await harness.end(producer)).code is FENCED
            codes = await harness.coordinator.verify_partitions(
                TX, producer.id, producer.epoch, [T0]
            )
            assert codes == {T0: FENCED}
        assert (await harness.end(second)).code is NONE

    run_scenario(scenario)


def test_nothing_is_added_to_a_kept_transaction() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        old = await harness.producer(two_phase=True)
        await harness.add(old, T0)
        new = await harness.producer(two_phase=True, keep_prepared=True)
        assert await harness.add(new, T1) is ErrorCode.INVALID_TXN_STATE
        assert harness.transaction().partitions == {T0}
        described = harness.coordinator.describe(TX)
        assert (described.producer_id, described.producer_epoch) == old

    run_scenario(scenario)


def test_init_without_keep_prepared_aborts_the_transaction() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        old = await harness.producer(two_phase=True)
        await harness.add(old, T0)
        kept = await harness.producer(two_phase=True, keep_prepared=True)
        assert (await harness.init(two_phase=True)).code is ErrorCode.CONCURRENT_TRANSACTIONS
        await harness.turns()
        (marker,) = harness.partitions.markers[T0]
        assert (marker.producer, marker.commit) == ((old.id, kept.epoch + 1), False)
        assert (await harness.end(kept)).code is FENCED
        assert await harness.producer(two_phase=True) == (old.id, kept.epoch + 2)

    run_scenario(scenario)


def test_keep_prepared_without_a_transaction_starts_a_new_epoch() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        reply = await harness.init(two_phase=True, keep_prepared=True)
        assert reply == InitProducerIdReply(code=NONE, producer_id=FIRST_ID, producer_epoch=0)

    run_scenario(scenario)


def test_a_v1_client_may_end_a_kept_transaction() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        old = await harness.producer(two_phase=True)
        await harness.add(old, T0)
        new = await harness.producer(two_phase=True, keep_prepared=True)
        assert await harness.end(new, version=OLD_END) == EndTxnReply(NONE, *new)
        await harness.turns()
        (marker,) = harness.partitions.markers[T0]
        assert marker.producer == new
        assert await harness.add(new, T0) is NONE

    run_scenario(scenario)


# -- the last epochs -----------------------------------------------------------------------


def keep(transaction: Transaction, new_producer_id: int) -> Transaction:
    request = InitProducerId(transactional_id="t", timeout_ms=0, two_phase=True, keep_prepared=True)
    result = init_producer_id(
        {"t": transaction}, request, new_producer_id=new_producer_id, now_ms=NOW_MS
    )
    assert isinstance(result.reply, InitProducerIdReply)
    assert result.reply.code is NONE
    kept = result.records[0].value
    assert kept is not None
    assert (result.reply.producer_id, result.reply.producer_epoch) == kept.owner
    return kept


def test_after_the_last_epoch_a_transaction_is_kept_for_another_id() -> None:
    kept = keep(in_state(State.ONGOING, producer_epoch=LAST_EPOCH), 99)
    assert kept.owner == (99, 0)
    assert (kept.producer_id, kept.producer_epoch) == (7, LAST_EPOCH)
    assert keep(kept, 100).owner == (99, 1)
    result = end_transaction(
        {"t": kept},
        "t",
        ProducerIdAndEpoch(99, 0),
        commit=True,
        version=BUMPING,
        new_producer_id=None,
        now_ms=NOW_MS,
    )
    assert result.reply == EndTxnReply(NONE, 99, 1)
    decided = result.records[0].value
    assert decided is not None
    assert (decided.producer_id, decided.producer_epoch) == (7, MAX_EPOCH)
    assert decided.owner == (99, 1)


def test_the_owner_at_the_last_epoch_continues_with_another_id() -> None:
    kept = keep(in_state(State.ONGOING, producer_epoch=LAST_EPOCH - 1), 99)
    assert kept.owner == (7, LAST_EPOCH)
    result = end_transaction(
        {"t": kept},
        "t",
        ProducerIdAndEpoch(7, LAST_EPOCH),
        commit=True,
        version=BUMPING,
        new_producer_id=99,
        now_ms=NOW_MS,
    )
    assert result.reply == EndTxnReply(NONE, 99, 0)
    decided = result.records[0].value
    assert decided is not None
    assert (decided.producer_id, decided.producer_epoch) == (7, MAX_EPOCH)
    again = keep(in_state(State.ONGOING, next_producer_id=98, next_producer_epoch=LAST_EPOCH), 99)
    assert again.owner == (99, 0)
