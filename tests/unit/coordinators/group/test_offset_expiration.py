"""Expiry of committed offsets (KIP-211)."""

import asyncio

from tests.unit.coordinators.group.coordinator_harness import (
    GROUP,
    NONE,
    START_MS,
    T0,
    U0,
    GroupCoordinatorHarness,
    commit_of,
    join_request,
    run_scenario,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.requests import LeavingMember
from penstock.model.errors import ErrorCode

DAY_MS = 86_400_000
CHECK_MS = 600_000
WEEK_MS = 7 * DAY_MS


def quiet() -> GroupCoordinatorHarness:
    """A config whose sessions outlast the scenario."""
    config = GroupConfig(initial_rebalance_delay_ms=0, max_session_timeout_ms=20 * DAY_MS)
    return GroupCoordinatorHarness(config=config)


def pass_days(harness: GroupCoordinatorHarness, days: int) -> None:
    for _ in range(days * DAY_MS // CHECK_MS):
        harness.clock.advance_ms(CHECK_MS)


def test_offsets_without_a_group_expire_a_week_after_their_commit() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        pass_days(harness, 5)
        await harness.commit(commit_of(U0, 1))
        pass_days(harness, 1)
        assert await harness.fetch_all() == {T0: 1, U0: 1}
        pass_days(harness, 1)
        assert await harness.fetch_all() == {U0: 1}
        pass_days(harness, 5)
        assert await harness.fetch_all() == {}

    run_scenario(scenario)


def test_offsets_expire_a_week_after_the_last_member_left() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member_for(20 * DAY_MS, GROUP, "orders")
        await harness.commit(commit_of(T0, 1), member=member, generation=generation)
        pass_days(harness, 8)
        await harness.coordinator.leave(GROUP, [LeavingMember(member, None)])
        pass_days(harness, 6)
        assert await harness.fetch(T0) == [1]
        pass_days(harness, 2)
        assert await harness.fetch_all() == {}
        described = await harness.coordinator.describe(GROUP)
        assert described.error is ErrorCode.GROUP_ID_NOT_FOUND

    run_scenario(scenario, quiet())


def test_offsets_of_a_subscribed_topic_never_expire() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member_for(20 * DAY_MS, GROUP, "orders")
        await harness.commit(
            commit_of(T0, 1), commit_of(U0, 1), member=member, generation=generation
        )
        pass_days(harness, 8)
        assert await harness.fetch_all() == {T0: 1}  # nobody subscribes to users by now

    run_scenario(scenario, quiet())


def test_no_offset_expires_during_a_rebalance() -> None:
    """KAFKA-13636: a rebalancing group is in use."""

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member_for(20 * DAY_MS, GROUP, "orders")
        await harness.commit(commit_of(U0, 1), member=member, generation=generation)
        another = asyncio.create_task(
            harness.coordinator.join(
                join_request(
                    GROUP,
                    "users",
                    session_timeout_ms=20 * DAY_MS,
                    rebalance_timeout_ms=20 * DAY_MS,
                )
            )
        )
        await asyncio.sleep(0)
        pass_days(harness, 8)
        assert (await harness.coordinator.describe(GROUP)).state == "PreparingRebalance"
        assert await harness.fetch_all() == {U0: 1}
        another.cancel()

    run_scenario(scenario, quiet())


def test_the_retention_of_an_old_client_replaces_the_brokers() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(
            commit_of(T0, 1, expires_ms=START_MS + DAY_MS),
            commit_of(U0, 1, expires_ms=START_MS + 9 * DAY_MS),
        )
        pass_days(harness, 1)
        assert await harness.fetch_all() == {U0: 1}
        pass_days(harness, 7)
        assert await harness.fetch_all() == {U0: 1}
        pass_days(harness, 1)
        assert await harness.fetch_all() == {}

    run_scenario(scenario)


def test_the_commit_timestamp_of_a_client_is_used() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1, timestamp_ms=START_MS - WEEK_MS + DAY_MS))
        pass_days(harness, 1)
        assert await harness.fetch_all() == {}

    run_scenario(scenario)


def test_an_expiry_that_could_not_be_written_is_retried() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        harness.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        pass_days(harness, 8)
        assert await harness.fetch_all() == {T0: 1}
        harness.log.refusal = None
        harness.clock.advance_ms(CHECK_MS)
        assert await harness.fetch_all() == {}

    run_scenario(scenario)


def test_an_empty_group_without_offsets_is_removed() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, _ = await harness.settle_member(GROUP, "orders")
        await harness.coordinator.leave(GROUP, [LeavingMember(member, None)])
        assert (await harness.coordinator.describe(GROUP)).error is NONE
        harness.clock.advance_ms(CHECK_MS)
        described = await harness.coordinator.describe(GROUP)
        assert described.error is ErrorCode.GROUP_ID_NOT_FOUND

    run_scenario(scenario)


def test_a_sweep_covers_more_groups_than_one_step() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        for number in range(450):
            await harness.commit(commit_of(T0, 1), group=f"g{number}")
        written = harness.log.appends
        harness.clock.advance_ms(WEEK_MS)
        assert harness.coordinator.statistics().groups == 0
        assert harness.log.appends - written == 3  # one per 200 groups

    run_scenario(scenario)
