"""Offsets committed in transactions: when they take effect, who may commit, what survives."""

import asyncio

import pytest
from tests.unit.coordinators.group.coordinator_harness import (
    GROUP,
    NONE,
    T0,
    T1,
    U0,
    GroupCoordinatorHarness,
    commit_of,
    replay_log,
    run_scenario,
)

from penstock.coordinators.group.requests import FetchedOffset
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.model.markers import TransactionMarker
from penstock.protocol.batch import NO_SEQUENCE, iter_headers

PRODUCER, OTHER = 7, 8
HOUR_MS = 3_600_000


def test_offsets_take_effect_when_the_transaction_commits() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        assert await harness.commit_in_transaction(
            commit_of(T0, 5, "note"), commit_of(U0, 2), producer=PRODUCER
        ) == [NONE, NONE]
        assert await harness.fetch(T0, U0) == [1, -1]
        assert await harness.end_transaction(PRODUCER, commit=True) is NONE
        assert await harness.fetch(T0, U0) == [5, 2]

    run_scenario(scenario)


def test_offsets_are_dropped_when_the_transaction_aborts() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        await harness.commit_in_transaction(commit_of(T0, 5), producer=PRODUCER)
        assert await harness.end_transaction(PRODUCER, commit=False) is NONE
        assert (await harness.fetch_stable(T0)).unstable == frozenset()
        assert await harness.fetch(T0) == [1]

    run_scenario(scenario)


def test_a_fetch_of_stable_offsets_reports_unstable_ones() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1), commit_of(T1, 2))
        await harness.commit_in_transaction(commit_of(T0, 5), producer=PRODUCER)
        fetched = await harness.fetch_stable(T0, T1)
        assert fetched.unstable == {T0}
        assert fetched.offsets == (FetchedOffset(T0, -1, -1, ""), FetchedOffset(T1, 2, -1, ""))
        await harness.end_transaction(OTHER, commit=True)
        assert (await harness.fetch_stable(T0)).unstable == {T0}
        await harness.end_transaction(PRODUCER, commit=True)
        assert (await harness.fetch_stable(T0)).unstable == frozenset()

    run_scenario(scenario)


def test_the_batch_carries_its_producer_and_no_sequence() -> None:
    harness = run_commit(producer=2**63 - 1, epoch=32767)
    (_, header), *_ = iter_headers(harness.log.raw())
    assert (header.producer_id, header.producer_epoch) == (2**63 - 1, 32767)
    assert (header.base_sequence, header.is_transactional) == (NO_SEQUENCE, True)


def run_commit(*, producer: int = PRODUCER, epoch: int = 0) -> GroupCoordinatorHarness:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit_in_transaction(commit_of(T0, 5), producer=producer, epoch=epoch)

    return run_scenario(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_survives_a_restart(commit: bool) -> None:
    log = run_commit().log

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert (await harness.fetch_stable(T0)).unstable == {T0}
        assert await harness.end_transaction(PRODUCER, commit=commit) is NONE
        assert await harness.fetch(T0) == [5 if commit else -1]
        assert harness.state.snapshot() == replay_log(harness.log).snapshot()

    log.lead()
    run_scenario(scenario, GroupCoordinatorHarness(log))


# -- authorization of members ------------------------------------------------------------------


def test_the_transaction_is_checked_before_the_member() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        codes = await harness.commit_in_transaction(
            commit_of(T0, 5),
            producer=PRODUCER,
            refusal=ErrorCode.INVALID_PRODUCER_EPOCH,
            member="nobody",
            generation=4,
        )
        assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert harness.log.appends == 0

    run_scenario(scenario)


def test_a_stale_group_member_is_rejected() -> None:
    """KIP-447: its transaction is valid, but its partitions belong to another member by now."""

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member()
        cases = {
            (member, generation): NONE,
            ("", -1): NONE,  # clients before KIP-447 send no member
            (member, generation - 1): ErrorCode.ILLEGAL_GENERATION,
            ("another", generation): ErrorCode.UNKNOWN_MEMBER_ID,
        }
        for (who, when), code in cases.items():
            codes = await harness.commit_in_transaction(
                commit_of(T0, 5), producer=PRODUCER, member=who, generation=when
            )
            assert codes == [code], (who, when)

    run_scenario(scenario)


def test_a_generation_of_an_unknown_group_is_rejected() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        codes = await harness.commit_in_transaction(
            commit_of(T0, 5), producer=PRODUCER, member="m", generation=3
        )
        assert codes == [ErrorCode.ILLEGAL_GENERATION]

    run_scenario(scenario)


def test_every_partition_has_its_own_code() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        nowhere = TopicPartition("nowhere", 0)
        codes = await harness.commit_in_transaction(
            commit_of(nowhere, 1), commit_of(T0, 5), producer=PRODUCER
        )
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE]

    run_scenario(scenario)


def test_an_empty_group_id_is_invalid() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        codes = await harness.commit_in_transaction(commit_of(T0, 5), producer=PRODUCER, group="")
        assert codes == [ErrorCode.INVALID_GROUP_ID]

    run_scenario(scenario)


# -- deletion and expiry -----------------------------------------------------------------------


def test_a_group_with_only_pending_offsets_is_listed_and_can_be_deleted() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit_in_transaction(commit_of(T0, 5), producer=PRODUCER)
        _, listed = await harness.coordinator.list_groups(frozenset(), frozenset())
        assert [listing.group for listing in listed] == [GROUP]
        assert await harness.coordinator.delete_group(GROUP) is NONE
        assert await harness.end_transaction(PRODUCER, commit=True) is NONE
        assert await harness.fetch(T0) == [-1]  # an earlier pending commit does not undo a deletion
        assert harness.state.snapshot() == replay_log(harness.log).snapshot()

    run_scenario(scenario)


def test_offsets_do_not_expire_while_a_transaction_is_open() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        await harness.commit_in_transaction(commit_of(T0, 5), producer=PRODUCER)
        harness.clock.advance_ms(8 * 24 * HOUR_MS)
        assert (await harness.fetch_stable(T0)).unstable == {T0}
        await harness.end_transaction(PRODUCER, commit=True)
        assert await harness.fetch(T0) == [5]

    run_scenario(scenario)


# -- markers -----------------------------------------------------------------------------------


def test_a_repeated_marker_succeeds_and_changes_nothing() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit_in_transaction(commit_of(T0, 5), producer=PRODUCER)
        await harness.end_transaction(PRODUCER, commit=True)
        await harness.commit(commit_of(T0, 9))
        assert await harness.end_transaction(PRODUCER, commit=True) is NONE
        assert await harness.fetch(T0) == [9]
        assert harness.state.snapshot() == replay_log(harness.log).snapshot()

    run_scenario(scenario)


def test_a_marker_succeeds_when_it_is_committed() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit_in_transaction(commit_of(T0, 5), producer=PRODUCER)
        harness.log.is_held = True
        ended = harness.coordinator.end_transaction(0, marker_of(PRODUCER))
        assert harness.log.ends(0).end == 2  # written before it is committed
        harness.log.commit()
        assert await ended is NONE

    run_scenario(scenario)


def test_a_fetch_does_not_show_the_effect_of_an_uncommitted_marker() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit_in_transaction(commit_of(T0, 5), producer=PRODUCER)
        harness.log.is_held = True
        harness.coordinator.end_transaction(0, marker_of(PRODUCER))
        reading = asyncio.ensure_future(harness.fetch(T0))
        await asyncio.sleep(0)
        assert not reading.done()
        harness.log.commit()
        assert await reading == [5]

    run_scenario(scenario)


def test_a_refused_marker_leaves_the_transaction_open() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit_in_transaction(commit_of(T0, 5), producer=PRODUCER)
        harness.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        code = await harness.end_transaction(PRODUCER, commit=True)
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await harness.fetch_stable(T0)).unstable == {T0}

    run_scenario(scenario)


def test_markers_for_partitions_led_elsewhere_are_rejected() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.end_transaction(PRODUCER, commit=True, partition=1) is (
            ErrorCode.NOT_COORDINATOR
        )
        harness.log.lose()
        assert await harness.end_transaction(PRODUCER, commit=True) is ErrorCode.NOT_COORDINATOR

    run_scenario(scenario)


def test_a_marker_during_loading_gets_coordinator_load_in_progress() -> None:
    """Otherwise the loader may have read past its position and never see it."""
    log = run_commit().log
    log.lead()

    async def load_and_end() -> None:
        harness = GroupCoordinatorHarness(log)
        harness.coordinator.take_partition(0, 0)
        code = await harness.end_transaction(PRODUCER, commit=True)
        assert code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert log.ends(0).end == 1
        harness.coordinator.close()

    asyncio.run(load_and_end())


def marker_of(producer: int) -> TransactionMarker:
    return TransactionMarker(producer, 0, commit=True, coordinator_epoch=0)
