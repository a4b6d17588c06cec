"""Memory of members: its limits and its release, by counted bytes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.coordinators.group.coordinator_harness import (
    GROUP,
    GroupCoordinatorHarness,
    join_request,
    run_scenario,
)
from tests.unit.coordinators.group.test_consumer_coordinator import beat

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.requests import LEAVE_EPOCH
from penstock.coordinators.group.member_bytes import find_memory_limit
from penstock.coordinators.group.requests import LeavingMember, MemberProtocol
from penstock.model.errors import ErrorCode

NONE = ErrorCode.NONE
REQUIRED = ErrorCode.MEMBER_ID_REQUIRED
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
LONGEST_MS = 1_800_000


class FakeOrigin:
    """A connection that a test closes."""

    def __init__(self, connection: int = 1) -> None:
        self.connection = connection
        self.close_callbacks: list[Callable[[], None]] = []
        self.disconnect_callbacks: list[Callable[[], None]] = []

    def on_close(self, call: Callable[[], None]) -> None:
        self.close_callbacks.append(call)

    def on_disconnect(self, call: Callable[[], None]) -> None:
        self.disconnect_callbacks.append(call)

    def close(self) -> None:
        for call in (*self.close_callbacks, *self.disconnect_callbacks):
            call()


def used_bytes(harness: GroupCoordinatorHarness) -> int:
    return harness.coordinator.statistics().member_bytes


def limits_logged(harness: GroupCoordinatorHarness) -> list[str]:
    """The setting of each line about a refused member."""
    lines = [line for line in harness.reports if "GROUP_MAX_SIZE_REACHED" in line]
    return [line.partition(" because of ")[2].partition(";")[0] for line in lines]


def protocols(size: int) -> tuple[MemberProtocol, ...]:
    return (MemberProtocol("range", bytes(size)),)


def harness_with(**limits: Any) -> GroupCoordinatorHarness:
    return GroupCoordinatorHarness(config=GroupConfig(initial_rebalance_delay_ms=0, **limits))


# -- limits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("added_bytes", "group_bytes", "free_bytes", "expected"),
    [
        (10, 90, 10, None),
        (11, 90, 100, "group.max.bytes"),
        (10, 0, 9, "group.coordinator.max.bytes"),
        # After a replay or with a lowered limit, members stay but must not grow.
        (0, 500, -50, None),
        (-5, 500, -50, None),
    ],
)
def test_only_growth_needs_free_memory(
    added_bytes: int, group_bytes: int, free_bytes: int, expected: str | None
) -> None:
    config = GroupConfig(group_max_bytes=100)
    limit = find_memory_limit(added_bytes, group_bytes, config=config, free_bytes=free_bytes)
    assert limit == expected


@pytest.mark.parametrize(
    "offered",
    [
        tuple(MemberProtocol(f"p{number}", b"") for number in range(11)),
        protocols(1000),
        (MemberProtocol("r" * 600, bytes(600)),),
    ],
    ids=["names", "metadata", "names and metadata"],
)
def test_a_member_above_its_limits_is_an_invalid_request(
    offered: tuple[MemberProtocol, ...],
) -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        reply = await harness.coordinator.join(join_request(protocols=offered))
        assert reply.error is ErrorCode.INVALID_REQUEST
        assert used_bytes(harness) == 0
        assert harness.coordinator.statistics().groups == 0

    run_scenario(scenario, harness_with(member_max_protocols=10, member_max_bytes=999))


def test_a_full_group_admits_no_more_members() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.settle_member()
        before = used_bytes(harness)
        reply = await harness.coordinator.join(join_request(protocols=protocols(50_000)))
        assert reply.error is FULL
        assert used_bytes(harness) == before
        assert limits_logged(harness) == ["group.max.bytes"]

    run_scenario(scenario, harness_with(group_max_bytes=40_000))


def test_a_group_with_all_its_members_says_so_in_the_log() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.settle_member()
        assert (await harness.coordinator.join(join_request())).error is FULL
        assert limits_logged(harness) == ["group.max.size"]

    run_scenario(scenario, harness_with(max_size=1))


def test_a_group_with_all_its_pending_members_says_so_in_the_log() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        for expected in (REQUIRED, FULL):
            reply = await harness.coordinator.join(join_request(requires_known_member=True))
            assert reply.error is expected
        assert limits_logged(harness) == ["group.max.pending.members"]

    run_scenario(scenario, harness_with(max_pending_members=1))


def test_a_consumer_group_with_all_its_members_says_so_in_the_log() -> None:
    """Members of both protocols are refused for one cause, which is logged once."""

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert (await beat(harness, "anna")).error is NONE
        assert (await harness.coordinator.join(join_request(GROUP, "orders"))).error is FULL
        assert (await beat(harness, "bert")).error is FULL
        assert limits_logged(harness) == ["group.consumer.max.size"]

    run_scenario(scenario, harness_with(consumer_max_size=1))


def test_a_member_of_a_full_coordinator_may_rejoin_unchanged() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        first = await harness.coordinator.join(join_request(protocols=protocols(30_000)))
        for _ in range(2):
            refused = await harness.coordinator.join(
                join_request("other", protocols=protocols(30_000))
            )
            assert refused.error is FULL
        assert limits_logged(harness) == ["group.coordinator.max.bytes"]
        again = await harness.coordinator.join(
            join_request(member=first.member, protocols=protocols(30_000))
        )
        assert (again.error, again.member) == (NONE, first.member)

    run_scenario(scenario, harness_with(coordinator_max_bytes=50_000))


def test_many_joins_stay_within_the_limit_and_release_their_memory() -> None:
    limit = 200_000

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        origins = [FakeOrigin(number) for number in range(300)]
        floods = [
            asyncio.create_task(
                harness.coordinator.join(
                    join_request(
                        f"g{origin.connection % 30}",
                        client_id="c" * 900,
                        requires_known_member=origin.connection % 2 == 0,
                        session_timeout_ms=LONGEST_MS,
                        protocols=protocols(2000),
                    ),
                    origin,
                )
            )
            for origin in origins
        ]
        await asyncio.sleep(0)
        assert limit / 2 < used_bytes(harness) <= limit
        for origin in origins:
            origin.close()
        replies = await asyncio.gather(*floods)
        assert used_bytes(harness) == 0
        assert {reply.error for reply in replies} >= {FULL, REQUIRED}
        assert not harness.state.groups

    harness = GroupCoordinatorHarness(
        config=GroupConfig(initial_rebalance_delay_ms=3000, coordinator_max_bytes=limit)
    )
    run_scenario(scenario, harness)


# -- releases ------------------------------------------------------------------------------


def test_an_id_is_forgotten_when_its_connection_closes() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        origin = FakeOrigin()
        for number in range(200):
            request = join_request(
                f"g{number}", requires_known_member=True, session_timeout_ms=LONGEST_MS
            )
            assert (await harness.coordinator.join(request, origin)).error is REQUIRED
        assert used_bytes(harness) > 200 * 1024
        assert len(origin.disconnect_callbacks) == 1, "a connection keeps one callback, not 200"
        origin.close()
        assert used_bytes(harness) == 0
        assert not harness.state.groups

    run_scenario(scenario)


def test_another_connection_does_not_end_a_pending_join() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        mine, other = FakeOrigin(1), FakeOrigin(2)
        request = join_request(requires_known_member=True)
        first = await harness.coordinator.join(request, mine)
        await harness.coordinator.join(request, other)
        other.close()
        joined = await harness.coordinator.join(join_request(member=first.member), mine)
        assert joined.error is NONE
        mine.close()
        assert first.member in harness.state.groups[GROUP].members  # type: ignore[attr-defined]

    run_scenario(scenario)


def test_a_new_member_is_forgotten_when_its_connection_closes_before_the_generation() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, _ = await harness.settle_member()
        settled = used_bytes(harness)
        origin = FakeOrigin()
        waits = asyncio.create_task(
            harness.coordinator.join(join_request(protocols=protocols(100_000)), origin)
        )
        await asyncio.sleep(0)
        assert used_bytes(harness) > settled + 100_000
        origin.close()
        assert (await waits).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert used_bytes(harness) == settled
        again = await harness.coordinator.join(join_request(member=member))
        assert (again.error, again.leader) == (NONE, member), "the rest goes on without it"

    run_scenario(scenario)


def test_a_known_member_stays_when_its_connection_closes_during_a_rebalance() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, _ = await harness.settle_member()
        newcomer = asyncio.create_task(harness.coordinator.join(join_request()))
        await asyncio.sleep(0)
        origin = FakeOrigin()
        back = await harness.coordinator.join(join_request(member=member), origin)
        assert back.error is NONE
        origin.close()
        assert (await newcomer).error is NONE
        assert len(harness.state.groups[GROUP].members) == 2  # type: ignore[attr-defined]

    run_scenario(scenario)


def test_expired_ids_are_not_kept_while_their_connection_stays_open() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        origin = FakeOrigin()
        for _ in range(1000):
            await harness.coordinator.join(join_request(requires_known_member=True), origin)
            harness.clock.advance_ms(10_000)
        assert harness.coordinator.statistics().pending_joins <= 64
        assert used_bytes(harness) == 0

    run_scenario(scenario)


def test_a_lost_partition_releases_its_memory() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.settle_member()
        assert used_bytes(harness) > 0
        harness.log.lose()
        harness.coordinator.drop_partition(0)
        assert used_bytes(harness) == 0

    run_scenario(scenario)


def test_a_reload_counts_the_same_memory() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.settle_member()
        await beat(harness, group="modern")
        before = used_bytes(harness)
        harness.log.lose()
        harness.log.lead()
        await harness.take_all()
        assert used_bytes(harness) == before

    run_scenario(scenario)


def test_a_member_that_leaves_releases_its_memory() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, _ = await harness.settle_member()
        settled = used_bytes(harness)
        await harness.coordinator.leave(GROUP, [LeavingMember(member, None)])
        assert used_bytes(harness) < settled / 2
        assert await harness.coordinator.delete_group(GROUP) is NONE
        assert used_bytes(harness) == 0

    run_scenario(scenario)


# -- KIP-848 -------------------------------------------------------------------------------


def test_a_consumer_that_needs_more_than_the_free_memory_is_rejected() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert (await beat(harness, "anna")).error is NONE
        before = used_bytes(harness)
        topics = tuple(f"topic-{number}" for number in range(300))
        refused = await beat(harness, "ben", topics=topics)
        assert refused.error is FULL
        assert "group.coordinator.max.bytes" in (refused.message or "")
        assert used_bytes(harness) == before
        assert (await beat(harness, "anna", LEAVE_EPOCH)).error is NONE
        assert used_bytes(harness) < before

    run_scenario(scenario, harness_with(coordinator_max_bytes=40_000))


def test_a_consumer_above_the_limit_of_a_member_is_an_invalid_request() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        topics = tuple(f"topic-{number}" for number in range(300))
        refused = await beat(harness, "anna", topics=topics)
        assert refused.error is ErrorCode.INVALID_REQUEST
        assert "group.member.max.bytes" in (refused.message or "")
        assert used_bytes(harness) == 0

    run_scenario(scenario, harness_with(member_max_bytes=2000))


def test_twenty_thousand_topics_are_within_the_defaults() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        topics = tuple(f"a-usual-name-of-a-topic-{number}" for number in range(20_000))
        assert (await beat(harness, "anna", topics=topics)).error is NONE

    run_scenario(scenario)
