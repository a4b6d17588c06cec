"""Transactions that somebody else decides about (KIP-939): they stay until they are told."""

from tests.unit.coordinators.transaction.desk import FIRST_ID, NONE, OLD_END, T0, T1, TX, Desk, told
from tests.unit.coordinators.transaction.test_end_table import NOW_MS, in_state

from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.end_transaction import end
from penstock.coordinators.transaction.init_producer_id import init_producer
from penstock.coordinators.transaction.records import State, Transaction
from penstock.coordinators.transaction.requests import (
    EndTxnReply,
    InitProducerId,
    InitProducerIdReply,
    ProducerIdAndEpoch,
)
from penstock.coordinators.transaction.result import LAST_EPOCH, MAX_EPOCH
from penstock.coordinators.transaction.transaction_version import BUMPING
from penstock.model.errors import ErrorCode

FENCED = ErrorCode.PRODUCER_FENCED
YEAR_MS = 365 * 86_400_000


def test_a_broker_that_does_not_allow_it_says_that_one_may_not() -> None:
    async def story(desk: Desk) -> None:
        answer = await desk.init(two_phase=True)
        assert answer.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    told(story, Desk(config=TransactionConfig(two_phase_enabled=False)))


def test_only_who_takes_part_can_keep_something() -> None:
    async def story(desk: Desk) -> None:
        assert (await desk.init(keep_prepared=True)).code is ErrorCode.INVALID_REQUEST

    told(story)


def test_it_never_takes_too_long_and_is_never_forgotten() -> None:
    async def story(desk: Desk) -> None:
        who = await desk.producer(two_phase=True)
        await desk.add(who, T0)
        for _ in range(3):
            desk.clock.advance_ms(YEAR_MS)
        assert desk.known().state is State.ONGOING
        assert desk.coordinator.describe(TX).is_two_phase
        assert (await desk.end(who)).code is NONE

    told(story)


def test_what_was_left_is_ended_by_whoever_kept_it() -> None:
    for commit in (True, False):

        async def story(desk: Desk, commit: bool = commit) -> None:
            old = await desk.producer(two_phase=True)
            await desk.add(old, T0, T1)
            answer = await desk.init(two_phase=True, keep_prepared=True)
            assert answer == InitProducerIdReply(
                code=NONE,
                producer_id=old.id,
                producer_epoch=old.epoch + 1,
                ongoing_producer_id=old.id,
                ongoing_producer_epoch=old.epoch,
            )
            new = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
            ended = await desk.end(new, commit=commit)
            assert ended == EndTxnReply(NONE, new.id, new.epoch + 1)
            await desk.turns()
            for tp in (T0, T1):
                (marker,) = desk.partitions.markers[tp]
                assert (marker.producer, marker.commit) == ((new.id, new.epoch + 1), commit)
            assert await desk.end(new, commit=commit) == ended  # its answer was lost
            assert await desk.add(ProducerIdAndEpoch(*ended[1:]), T0) is NONE

        told(story)


def test_it_survives_every_kind_of_restart() -> None:
    first = Desk()

    async def prepare(desk: Desk) -> None:
        who = await desk.producer(two_phase=True)
        await desk.add(who, T0)

    told(prepare, first)
    first.clock.advance_ms(YEAR_MS)
    first.log.lead()

    async def finish(desk: Desk) -> None:
        desk.clock.advance_ms(YEAR_MS)
        answer = await desk.init(two_phase=True, keep_prepared=True)
        assert (answer.ongoing_producer_id, answer.ongoing_producer_epoch) == (FIRST_ID, 0)
        ended = await desk.end(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))
        assert ended.code is NONE
        await desk.turns()
        (marker,) = desk.partitions.markers[T0]
        assert marker.commit

    told(finish, Desk(first.log, clock=first.clock))


def test_who_left_it_is_fenced_and_so_is_who_kept_it_before() -> None:
    async def story(desk: Desk) -> None:
        old = await desk.producer(two_phase=True)
        await desk.add(old, T0)
        first = await desk.producer(two_phase=True, keep_prepared=True)
        second = await desk.producer(two_phase=True, keep_prepared=True)
        assert (first.epoch, second.epoch) == (1, 2)
        for epoch in (old, first):
            assert await desk.add(epoch, T1) is FENCED
            assert (await desk.end(epoch)).code is FENCED
            codes = await desk.coordinator.verify_partitions(TX, epoch.id, epoch.epoch, [T0])
            assert codes == {T0: FENCED}
        assert (await desk.end(second)).code is NONE

    told(story)


def test_nothing_is_added_to_what_was_kept() -> None:
    async def story(desk: Desk) -> None:
        old = await desk.producer(two_phase=True)
        await desk.add(old, T0)
        new = await desk.producer(two_phase=True, keep_prepared=True)
        assert await desk.add(new, T1) is ErrorCode.INVALID_TXN_STATE
        assert desk.known().partitions == {T0}
        described = desk.coordinator.describe(TX)
        assert (described.producer_id, described.producer_epoch) == old

    told(story)


def test_who_does_not_want_it_aborts_it() -> None:
    async def story(desk: Desk) -> None:
        old = await desk.producer(two_phase=True)
        await desk.add(old, T0)
        kept = await desk.producer(two_phase=True, keep_prepared=True)
        assert (await desk.init(two_phase=True)).code is ErrorCode.CONCURRENT_TRANSACTIONS
        await desk.turns()
        (marker,) = desk.partitions.markers[T0]
        assert (marker.producer, marker.commit) == ((old.id, kept.epoch + 1), False)
        assert (await desk.end(kept)).code is FENCED
        assert await desk.producer(two_phase=True) == (old.id, kept.epoch + 2)

    told(story)


def test_keeping_nothing_is_beginning_anew() -> None:
    async def story(desk: Desk) -> None:
        answer = await desk.init(two_phase=True, keep_prepared=True)
        assert answer == InitProducerIdReply(code=NONE, producer_id=FIRST_ID, producer_epoch=0)

    told(story)


def test_a_client_of_old_may_end_what_was_kept() -> None:
    async def story(desk: Desk) -> None:
        old = await desk.producer(two_phase=True)
        await desk.add(old, T0)
        new = await desk.producer(two_phase=True, keep_prepared=True)
        assert await desk.end(new, version=OLD_END) == EndTxnReply(NONE, *new)
        await desk.turns()
        (marker,) = desk.partitions.markers[T0]
        assert marker.producer == new
        assert await desk.add(new, T0) is NONE

    told(story)


# -- the last epochs -----------------------------------------------------------------------


def keep(known: Transaction, new_producer_id: int) -> Transaction:
    request = InitProducerId(transactional_id="t", timeout_ms=0, two_phase=True, keep_prepared=True)
    outcome = init_producer({"t": known}, request, new_producer_id=new_producer_id, now_ms=NOW_MS)
    assert isinstance(outcome.answer, InitProducerIdReply)
    assert outcome.answer.code is NONE
    kept = outcome.records[0].value
    assert kept is not None
    assert (outcome.answer.producer_id, outcome.answer.producer_epoch) == kept.owner
    return kept


def test_after_the_last_epoch_it_is_kept_for_another_id() -> None:
    kept = keep(in_state(State.ONGOING, producer_epoch=LAST_EPOCH), 99)
    assert kept.owner == (99, 0)
    assert (kept.producer_id, kept.producer_epoch) == (7, LAST_EPOCH)
    assert keep(kept, 100).owner == (99, 1)
    outcome = end(
        {"t": kept},
        "t",
        ProducerIdAndEpoch(99, 0),
        commit=True,
        version=BUMPING,
        new_producer_id=None,
        now_ms=NOW_MS,
    )
    assert outcome.answer == EndTxnReply(NONE, 99, 1)
    decided = outcome.records[0].value
    assert decided is not None
    assert (decided.producer_id, decided.producer_epoch) == (7, MAX_EPOCH)
    assert decided.owner == (99, 1)


def test_whoever_keeps_it_at_the_last_epoch_goes_on_with_another_id() -> None:
    kept = keep(in_state(State.ONGOING, producer_epoch=LAST_EPOCH - 1), 99)
    assert kept.owner == (7, LAST_EPOCH)
    outcome = end(
        {"t": kept},
        "t",
        ProducerIdAndEpoch(7, LAST_EPOCH),
        commit=True,
        version=BUMPING,
        new_producer_id=99,
        now_ms=NOW_MS,
    )
    assert outcome.answer == EndTxnReply(NONE, 99, 0)
    decided = outcome.records[0].value
    assert decided is not None
    assert (decided.producer_id, decided.producer_epoch) == (7, MAX_EPOCH)
    again = keep(in_state(State.ONGOING, next_producer_id=98, next_producer_epoch=LAST_EPOCH), 99)
    assert again.owner == (99, 0)
