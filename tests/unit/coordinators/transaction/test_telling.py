"""Markers: sent when the decision is safe, again until they are there, and never of another end."""

import asyncio

import pytest
from tests.unit.coordinators.group.coordinator_desk import TableLog
from tests.unit.coordinators.transaction.desk import (
    NEW_END,
    NONE,
    OLD_END,
    T0,
    T1,
    TX,
    U0,
    Desk,
    Partitions,
    replayed,
    told,
)

from penstock.coordinators.transaction.marker_delivery import (
    FIRST_PAUSE_MS,
    LONGEST_PAUSE_MS,
    REFUSED_PAUSE_MS,
)
from penstock.coordinators.transaction.pending_markers import KNOWS_BETTER, PAST
from penstock.coordinators.transaction.records import State
from penstock.coordinators.transaction.requests import ProducerIdAndEpoch
from penstock.coordinators.transaction.result import MAX_EPOCH
from penstock.model.errors import ErrorCode

GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def ended(desk: Desk, *, commit: bool = True) -> ProducerIdAndEpoch:
    """A transaction over all partitions that has just been decided."""
    who = await desk.producer()
    assert await desk.add(who, T0, T1, U0) is NONE
    answer = await desk.end(who, commit=commit)
    assert answer.code is NONE
    await desk.turns()
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


def test_every_partition_is_told_and_then_it_is_over() -> None:
    async def story(desk: Desk) -> None:
        after = await ended(desk)
        assert desk.known().state is State.COMPLETE_COMMIT
        assert not desk.known().partitions
        for tp in (T0, T1, U0):
            assert desk.partitions.markers[tp] == [(after, True, 0)]
        assert desk.shard.untold == 0

    told(story)


def test_nothing_is_told_before_the_decision_is_committed() -> None:
    async def story(desk: Desk) -> None:
        who = await desk.producer()
        await desk.add(who, T0)
        desk.log.is_held = True
        ending = asyncio.create_task(desk.end(who))
        await desk.turns()
        assert not ending.done()
        assert not desk.partitions.sent
        assert desk.shard.untold == 1
        desk.log.commit()
        await desk.turns()
        assert (await ending).code is NONE
        assert len(desk.partitions.markers[T0]) == 1

    told(story)


def test_a_decision_that_takes_long_to_be_committed_is_told_when_it_is() -> None:
    async def story(desk: Desk) -> None:
        who = await desk.producer()
        await desk.add(who, T0)
        desk.log.is_held = True
        ending = asyncio.create_task(desk.end(who))
        await desk.turns()
        desk.log.time_out()
        assert (await ending).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        desk.clock.advance_ms(10_000)
        await desk.turns()
        assert not desk.partitions.sent
        desk.log.is_held = False
        desk.log.commit()
        desk.clock.advance_ms(1_000)
        await desk.turns()
        assert len(desk.partitions.markers[T0]) == 1
        assert desk.known().state is State.COMPLETE_COMMIT
        again = await desk.end(who)
        assert (again.code, again.producer_epoch) == (NONE, who.epoch + 1)

    told(story)


def test_a_decision_that_is_lost_with_the_lead_is_told_to_nobody() -> None:
    async def story(desk: Desk) -> None:
        who = await desk.producer()
        await desk.add(who, T0)
        desk.log.is_held = True
        ending = asyncio.create_task(desk.end(who))
        await desk.turns()
        desk.log.lose()
        assert (await ending).code is ErrorCode.NOT_COORDINATOR
        desk.log.commit()  # by somebody else, perhaps
        desk.clock.advance_ms(60_000)
        await desk.turns()
        assert not desk.partitions.sent

    told(story)


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
        GONE,  # the topic is there: that leader is behind the times
    ],
)
def test_what_does_not_get_through_is_sent_again_and_only_that(code: ErrorCode) -> None:
    async def story(desk: Desk) -> None:
        desk.partitions.refusals[T1] = code
        await ended(desk)
        for _ in range(3):
            desk.clock.advance_ms(LONGEST_PAUSE_MS)
        assert desk.known().state is State.PREPARE_COMMIT
        assert {entry.partitions for entry in desk.partitions.sent[1:]} == {(T1,)}
        del desk.partitions.refusals[T1]
        desk.clock.advance_ms(LONGEST_PAUSE_MS)
        assert desk.known().state is State.COMPLETE_COMMIT
        assert [len(marker) for marker in desk.partitions.markers.values()] == [1, 1, 1]

    told(story)


def test_a_change_of_leaders_is_reason_to_try_at_once() -> None:
    async def story(desk: Desk) -> None:
        desk.partitions.refusals[T1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await ended(desk)
        del desk.partitions.refusals[T1]
        desk.coordinator.on_leaders_changed()
        assert desk.known().state is State.COMPLETE_COMMIT

    told(story)


def test_a_change_of_leaders_sends_nothing_twice_that_is_under_way() -> None:
    async def story(desk: Desk) -> None:
        desk.partitions.is_held = True
        await ended(desk)
        desk.coordinator.on_leaders_changed()
        assert len(desk.partitions.sent) == 1

    told(story)


def test_a_partition_of_a_deleted_topic_needs_no_marker() -> None:
    async def story(desk: Desk) -> None:
        who = await desk.producer()
        await desk.add(who, T0, U0)
        del desk.partitions.markers[U0]
        assert (await desk.end(who)).code is NONE
        await desk.turns()
        assert desk.known().state is State.COMPLETE_COMMIT

    told(story)


def test_a_topic_that_is_deleted_meanwhile_holds_up_nobody() -> None:
    async def story(desk: Desk) -> None:
        desk.partitions.refusals[U0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await ended(desk)
        desk.partitions.refusals[U0] = GONE
        del desk.partitions.markers[U0]
        desk.coordinator.on_leaders_changed()
        assert desk.known().state is State.COMPLETE_COMMIT

    told(story)


@pytest.mark.parametrize("code", KNOWS_BETTER)
def test_a_partition_that_knows_better_is_told_to_people_once_and_asked_seldom(
    code: ErrorCode,
) -> None:
    """It was lost what it knows, or what the coordinator knew: the end stays possible."""

    async def story(desk: Desk) -> None:
        desk.partitions.refusals[T1] = code
        await ended(desk)
        for _ in range(3):
            desk.clock.advance_ms(REFUSED_PAUSE_MS)
        (line,) = desk.reports
        assert "'payments'" in line
        assert f"orders-1: {code.name}" in line
        assert "penstock transaction find-hanging" in line
        assert [entry.partitions for entry in desk.partitions.sent[1:]] == [(T1,)] * 3
        assert desk.known().state is State.PREPARE_COMMIT
        del desk.partitions.refusals[T1]
        desk.clock.advance_ms(REFUSED_PAUSE_MS)
        assert desk.known().state is State.COMPLETE_COMMIT
        await check_begins_with_another_id(desk)

    told(story)


@pytest.mark.parametrize("version", [OLD_END, NEW_END])
def test_where_partitions_are_past_it_the_end_is_over_and_the_id_begins_anew(version: int) -> None:
    """Else the epochs that were lost would be given away again: what their new owner writes would
    be taken for what the old one has written."""

    async def story(desk: Desk) -> None:
        desk.partitions.refusals[T1] = PAST
        who = await desk.producer()
        await desk.add(who, T0, T1)
        after = await desk.end(who, version=version)
        await desk.turns()
        assert desk.known().state is State.COMPLETE_COMMIT
        assert "orders-1: PRODUCER_FENCED" in desk.reports[0]
        go_on = ProducerIdAndEpoch(after.producer_id, after.producer_epoch)
        assert await desk.add(go_on, T0) is ErrorCode.PRODUCER_FENCED
        await check_begins_with_another_id(desk)

    told(story)


async def check_begins_with_another_id(desk: Desk) -> None:
    before = desk.known()
    assert before.owner.epoch == MAX_EPOCH
    heir = await desk.producer()
    assert heir.id != before.producer_id
    assert heir.epoch == 0


def test_nobody_waits_longer_for_a_partition_that_knows_better() -> None:
    async def story(desk: Desk) -> None:
        desk.partitions.refusals[T1] = ErrorCode.INVALID_PRODUCER_EPOCH
        await ended(desk)
        desk.partitions.refusals[U0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for number in range(8):  # each would double the pause, were it not for its end
            other = await desk.producer(f"other-{number}")
            await desk.add(other, U0, name=f"other-{number}")
            await desk.end(other, name=f"other-{number}")
            await desk.turns()
            del desk.partitions.refusals[U0]
            desk.clock.advance_ms(FIRST_PAUSE_MS)
            assert desk.known(f"other-{number}").state is State.COMPLETE_COMMIT
            desk.partitions.refusals[U0] = ErrorCode.NOT_LEADER_OR_FOLLOWER

    told(story)


def test_what_a_partition_knows_better_holds_up_no_other_of_the_transaction() -> None:
    async def story(desk: Desk) -> None:
        desk.partitions.refusals[T0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        desk.partitions.refusals[T1] = ErrorCode.INVALID_PRODUCER_EPOCH
        await ended(desk)
        del desk.partitions.refusals[T0]
        desk.clock.advance_ms(FIRST_PAUSE_MS)
        assert [len(desk.partitions.markers[tp]) for tp in (T0, T1, U0)] == [1, 0, 1]

    told(story)


def test_a_partition_that_holds_a_later_transaction_is_not_described_with_this_one() -> None:
    """Whoever looks for transactions that no coordinator knows finds it so."""

    async def story(desk: Desk) -> None:
        desk.partitions.refusals |= {
            T0: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            T1: ErrorCode.INVALID_PRODUCER_EPOCH,
            U0: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        }
        await ended(desk)
        assert desk.coordinator.describe(TX).partitions == (T0, U0)
        desk.partitions.is_held = True
        desk.clock.advance_ms(REFUSED_PAUSE_MS)  # it is asked again, and has not answered
        assert desk.coordinator.describe(TX).partitions == (T0, U0)
        desk.partitions.refusals.clear()
        desk.partitions.let_go()
        assert desk.known().state is State.COMPLETE_COMMIT

    told(story)


def test_the_next_transaction_begins_when_this_one_is_over() -> None:
    async def story(desk: Desk) -> None:
        desk.partitions.is_held = True
        after = await ended(desk)
        assert await desk.add(after, T0) is ErrorCode.CONCURRENT_TRANSACTIONS
        desk.partitions.let_go()
        assert await desk.add(after, T0) is NONE

    told(story)


def test_an_end_that_cannot_be_written_is_written_later_without_new_markers() -> None:
    async def story(desk: Desk) -> None:
        desk.partitions.is_held = True
        await ended(desk)
        desk.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        desk.partitions.let_go()
        assert desk.known().state is State.PREPARE_COMMIT
        desk.log.refusal = None
        desk.clock.advance_ms(LONGEST_PAUSE_MS)
        assert desk.known().state is State.COMPLETE_COMMIT
        assert len(desk.partitions.sent) == 1

    told(story)


def decided_by_another(commit: bool = True) -> tuple[TableLog, Partitions]:
    """A log and partitions whose coordinator went between the decision and its telling."""
    desk = Desk()

    async def story(desk: Desk) -> None:
        desk.partitions.is_held = True
        await ended(desk, commit=commit)

    told(story, desk)
    desk.log.lead()
    return desk.log, desk.partitions


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_tells_what_the_last_one_decided(commit: bool) -> None:
    log, partitions = decided_by_another(commit)

    async def story() -> None:
        partitions.is_held = False
        async with Desk(log, partitions=partitions).running(leader_epoch=3) as desk:
            await desk.turns()
            assert desk.known().state.is_complete
            for tp in (T0, T1, U0):
                (marker,) = (one for one in partitions.markers[tp] if one.coordinator_epoch == 3)
                assert marker.commit is commit

    asyncio.run(story())


def test_an_answer_to_the_last_coordinators_markers_is_nobodys() -> None:
    """Nor does it keep the new one from telling (KAFKA-9777)."""

    async def story(desk: Desk) -> None:
        desk.partitions.is_held = True
        await ended(desk)
        desk.shard.reload(ErrorCode.NOT_COORDINATOR)
        desk.clock.advance_ms(100)
        await desk.loaded()
        written = desk.log.appends
        desk.partitions.refusals = dict.fromkeys((T0, T1, U0), ErrorCode.REQUEST_TIMED_OUT)
        first, second = desk.partitions.sent
        assert first == second
        desk.partitions.let_go()
        assert desk.log.appends == written
        desk.partitions.refusals.clear()
        desk.partitions.is_held = False
        desk.clock.advance_ms(LONGEST_PAUSE_MS)
        assert desk.known().state is State.COMPLETE_COMMIT

    told(story)


def test_a_later_epoch_of_leading_shows_in_markers() -> None:
    async def story(desk: Desk) -> None:
        desk.coordinator.take_partition(0, 8)  # still the same time of leading
        await ended(desk)
        assert {entry.coordinator_epoch for entry in desk.partitions.sent} == {8}

    told(story)


def test_a_transaction_without_partitions_tells_nobody() -> None:
    async def story(desk: Desk) -> None:
        who = await desk.producer()
        answer = await desk.end(who, commit=False)
        assert (answer.code, answer.producer_epoch) == (NONE, who.epoch + 1)
        assert desk.known().state is State.COMPLETE_ABORT
        assert not desk.partitions.sent
        assert replayed(desk.log).snapshot() == desk.shard.state.snapshot()

    told(story)
