"""Committed offsets through the coordinator: who may commit, what is fetched, what is rejected."""

from dataclasses import replace

import pytest
from tests.unit.coordinators.group.coordinator_harness import (
    GROUP,
    NONE,
    T0,
    T1,
    U0,
    GroupCoordinatorHarness,
    commit_of,
    commit_request,
    run_scenario,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.requests import FetchedOffset, FetchOffsets, LeavingMember
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition


def test_offsets_committed_without_membership_are_fetched() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.commit(commit_of(T0, 7, "note", leader_epoch=3), commit_of(U0, 1)) == [
            NONE,
            NONE,
        ]
        reply = await harness.coordinator.fetch(
            FetchOffsets(group=GROUP, member=None, member_epoch=-1, partitions=(T0, T1, U0))
        )
        assert reply.offsets == (
            FetchedOffset(T0, 7, 3, "note"),
            FetchedOffset(T1, -1, -1, ""),
            FetchedOffset(U0, 1, -1, ""),
        )
        assert await harness.fetch_all() == {T0: 7, U0: 1}

    run_scenario(scenario)


def test_the_last_commit_wins_also_within_one_request() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 7))
        await harness.commit(commit_of(T0, 9), commit_of(T0, 4))
        assert await harness.fetch(T0) == [4]

    run_scenario(scenario)


def test_an_unknown_group_has_no_offsets_and_no_error() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.fetch(T0, group="nobody") == [-1]
        assert await harness.fetch_all("nobody") == {}

    run_scenario(scenario)


def test_offsets_of_unknown_partitions_are_rejected_individually() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        beyond, nowhere = TopicPartition("orders", 4), TopicPartition("nowhere", 0)
        below = TopicPartition("orders", -1)
        codes = await harness.commit(*(commit_of(tp, 1) for tp in (T0, beyond, nowhere, below)))
        assert codes == [NONE, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3]
        assert await harness.fetch_all() == {T0: 1}

    run_scenario(scenario)


def test_an_offset_with_another_topic_id_is_rejected() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        now = harness.topics.find("orders")
        then = harness.topics.find("users")
        assert now is not None
        assert then is not None
        codes = await harness.commit(
            commit_of(T0, 1, topic_id=then.topic_id), commit_of(T1, 1, topic_id=now.topic_id)
        )
        assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, NONE]

    run_scenario(scenario)


def test_metadata_may_be_as_long_as_the_limit() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        codes = await harness.commit(commit_of(T0, 1, "x" * 10), commit_of(T1, 1, "x" * 11))
        assert codes == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]

    run_scenario(
        scenario, GroupCoordinatorHarness(config=GroupConfig(offset_metadata_max_bytes=10))
    )


def test_metadata_too_long_for_a_record_is_rejected_whatever_the_limit() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        codes = await harness.commit(commit_of(T0, 1, "é" * 16_383), commit_of(T1, 1, "é" * 16_384))
        assert codes == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert harness.reports == []

    run_scenario(
        scenario, GroupCoordinatorHarness(config=GroupConfig(offset_metadata_max_bytes=1_000_000))
    )


def test_only_members_of_the_current_generation_commit() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member(GROUP, "orders")
        one = commit_of(T0, 5)
        assert await harness.commit(one, member=member, generation=generation) == [NONE]
        assert await harness.commit(one, member=member, generation=generation - 1) == [
            ErrorCode.ILLEGAL_GENERATION
        ]
        assert await harness.commit(one, member="other", generation=generation) == [
            ErrorCode.UNKNOWN_MEMBER_ID
        ]
        assert await harness.commit(one) == [ErrorCode.UNKNOWN_MEMBER_ID]
        await harness.coordinator.leave(GROUP, [LeavingMember(member, None)])
        assert await harness.commit(commit_of(T0, 6)) == [NONE]
        assert await harness.fetch(T0) == [6]

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("is_new", "code"),
    [(False, ErrorCode.ILLEGAL_GENERATION), (True, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_commit_with_generation_to_an_unknown_group_is_rejected(
    is_new: bool, code: ErrorCode
) -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        request = commit_request(commit_of(T0, 1), member="m", generation=3)
        reply = await harness.coordinator.commit(replace(request, is_consumer_protocol=is_new))
        assert reply == {T0: code}
        assert await harness.fetch_all() == {}

    run_scenario(scenario)


def test_a_commit_resets_the_members_session() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member(GROUP, "orders")
        for _ in range(5):
            harness.clock.advance_ms(9_000)  # its session timeout is 10 s
            codes = await harness.commit(commit_of(T0, 1), member=member, generation=generation)
            assert codes == [NONE]
        harness.clock.advance_ms(10_000)
        assert await harness.commit(commit_of(T0, 1), member=member, generation=generation) == [
            ErrorCode.UNKNOWN_MEMBER_ID
        ]

    run_scenario(scenario)


def test_the_empty_group_id_may_have_offsets_but_no_members() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.commit(commit_of(T0, 1), group="") == [NONE]
        assert await harness.fetch_all("") == {T0: 1}
        assert await harness.coordinator.delete_offsets("", [T0]) == (
            ErrorCode.INVALID_GROUP_ID,
            {},
        )
        assert await harness.coordinator.delete_group("") is NONE

    run_scenario(scenario)


def test_a_group_id_too_long_for_a_record_is_invalid() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        long = "g" * 40_000
        assert await harness.commit(commit_of(T0, 1), group=long) == [ErrorCode.INVALID_GROUP_ID]
        assert harness.reports == []

    run_scenario(scenario)


def test_offsets_of_a_subscribed_topic_are_not_deleted() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member(GROUP, "orders")
        await harness.commit(
            commit_of(T0, 1), commit_of(U0, 2), member=member, generation=generation
        )
        code, codes = await harness.coordinator.delete_offsets(GROUP, [T0, U0])
        assert code is NONE
        assert codes == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, U0: NONE}
        assert await harness.fetch_all() == {T0: 1}

    run_scenario(scenario)


def test_deleting_missing_offsets_succeeds_without_a_write() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        written = harness.log.appends
        assert await harness.coordinator.delete_offsets(GROUP, [T1]) == (NONE, {T1: NONE})
        assert harness.log.appends == written
        code, _ = await harness.coordinator.delete_offsets("nobody", [T1])
        assert code is ErrorCode.GROUP_ID_NOT_FOUND

    run_scenario(scenario)


def test_a_group_with_only_offsets_is_removed_with_the_last_one() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        assert (await harness.coordinator.describe(GROUP)).state == "Empty"
        await harness.coordinator.delete_offsets(GROUP, [T0])
        described = await harness.coordinator.describe(GROUP)
        assert described.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert described.state == "Dead"
        assert await harness.coordinator.list_groups(frozenset(), frozenset()) == (NONE, [])

    run_scenario(scenario)


def test_a_deleted_group_leaves_no_records() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member(GROUP, "orders")
        await harness.commit(commit_of(T0, 1), member=member, generation=generation)
        assert await harness.coordinator.delete_group(GROUP) is ErrorCode.NON_EMPTY_GROUP
        await harness.coordinator.leave(GROUP, [LeavingMember(member, None)])
        assert await harness.coordinator.delete_group(GROUP) is NONE
        assert await harness.coordinator.delete_group(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
        assert await harness.fetch_all() == {}

    run_scenario(scenario)


def test_offsets_of_a_deleted_topic_are_deleted_in_every_group() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        for group in ("a", "b"):
            await harness.commit(commit_of(T0, 1), commit_of(U0, 2), group=group)
        harness.coordinator.on_topics_deleted(["orders"])
        assert await harness.fetch_all("a") == {U0: 2}
        assert await harness.fetch_all("b") == {U0: 2}

    run_scenario(scenario)


def test_list_filters_are_case_insensitive() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1), group="simple")
        await harness.settle_member("members", "orders")

        async def names(states: set[str], kinds: set[str]) -> list[str]:
            listed = await harness.coordinator.list_groups(frozenset(states), frozenset(kinds))
            assert listed[0] is NONE
            return [listing.group for listing in listed[1]]

        assert await names(set(), set()) == ["members", "simple"]
        assert await names({"stable"}, set()) == ["members"]
        assert await names({"Empty", "Dead"}, {"CLASSIC"}) == ["simple"]
        assert await names(set(), {"consumer"}) == []

    run_scenario(scenario)


def test_an_overflowing_retention_never_expires() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.commit(commit_of(T0, 1, expires_ms=2**63 + 5)) == [NONE]
        harness.clock.advance_ms(100 * 86_400_000)
        assert await harness.fetch_all() == {T0: 1}

    run_scenario(scenario)
