"""The order of a shard's writes and responses, and the effect of failing writes."""

import asyncio
from typing import Any

import pytest
from tests.unit.coordinators.group.coordinator_harness import (
    GROUP,
    NONE,
    T0,
    T1,
    GroupCoordinatorHarness,
    TableLog,
    commit_of,
    commit_request,
    join_request,
    replay_log,
    run_scenario,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.requests import (
    FetchOffsets,
    Heartbeat,
    LeavingMember,
    MemberProtocol,
    SyncGroup,
)
from penstock.logs.rate_limit import LINES_PER_PEER
from penstock.model.errors import ErrorCode

FETCH = FetchOffsets(group=GROUP, member=None, member_epoch=-1, partitions=(T0,))


async def a_moment() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_commit_gets_its_response_when_it_is_committed() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        harness.log.is_held = True
        commit = asyncio.create_task(harness.commit(commit_of(T0, 1)))
        await a_moment()
        assert not commit.done()
        harness.log.commit()
        assert await commit == [NONE]

    run_scenario(scenario)


def test_a_fetch_does_not_show_uncommitted_offsets() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        harness.log.is_held = True
        commit = asyncio.create_task(harness.commit(commit_of(T0, 2)))
        await a_moment()
        read = asyncio.create_task(harness.fetch(T0))
        listed = asyncio.create_task(harness.coordinator.list_groups(frozenset(), frozenset()))
        await a_moment()
        assert not read.done()
        assert not listed.done()
        harness.log.commit()
        assert await read == [2]
        assert await commit == [NONE]
        assert (await listed)[0] is NONE

    run_scenario(scenario)


def test_responses_are_sent_in_log_order() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        harness.log.is_held = True
        order: list[int] = []

        async def one(number: int) -> None:
            await harness.commit(commit_of(T0, number))
            order.append(number)

        tasks = []
        for number in range(10):
            tasks.append(asyncio.create_task(one(number)))
            await asyncio.sleep(0)
        harness.log.commit()
        await asyncio.gather(*tasks)
        assert order == list(range(10))

    run_scenario(scenario)


def test_fetches_wait_for_a_commit_that_timed_out() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        harness.log.is_held = True
        commit = asyncio.create_task(harness.commit(commit_of(T0, 2)))
        await a_moment()
        harness.log.time_out()
        assert await commit == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        read = asyncio.create_task(harness.fetch(T0))
        await a_moment()
        assert not read.done()
        harness.log.commit()
        assert await read == [2]

    run_scenario(scenario)


def test_a_fetch_times_out_too() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        harness.log.is_held = True
        commit = asyncio.create_task(harness.commit(commit_of(T0, 2)))
        read = asyncio.create_task(harness.coordinator.fetch(FETCH))
        await a_moment()
        harness.log.time_out()
        assert (await read).error is ErrorCode.NOT_COORDINATOR
        again = asyncio.create_task(harness.coordinator.fetch(FETCH))
        await a_moment()
        harness.log.time_out()
        assert (await again).error is ErrorCode.NOT_COORDINATOR
        await commit

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_append_errors_are_mapped_to_coordinator_errors(
    refusal: ErrorCode, code: ErrorCode
) -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        harness.log.refusal = refusal
        assert await harness.commit(commit_of(T0, 2)) == [code]
        harness.log.refusal = None
        assert await harness.fetch(T0) == [1]

    run_scenario(scenario)


def test_a_failed_group_write_reloads_the_shard_and_clients_retry() -> None:
    """The group's volatile state is ahead of the log, which is authoritative."""

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 7))
        member, generation = await harness.settle_member(GROUP, "orders")
        harness.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        code, _ = await harness.coordinator.leave(GROUP, [LeavingMember(member, None)])
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await harness.commit(commit_of(T0, 8)) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        harness.log.refusal = None
        harness.clock.advance_ms(100)
        await harness.loaded()
        heartbeat = Heartbeat(group=GROUP, member=member, instance=None, generation=generation)
        assert await harness.coordinator.heartbeat(heartbeat) is NONE  # still a member
        assert await harness.fetch(T0) == [7]

    run_scenario(scenario)


def test_earlier_timers_do_not_fire_during_a_reload() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member(GROUP, "orders")
        for number in range(50):
            await harness.commit(commit_of(T0, number), group=f"g{number}")
        written = harness.log.appends
        harness.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        await harness.coordinator.leave(GROUP, [LeavingMember(member, None)])
        harness.log.refusal = None
        harness.clock.advance_ms(100)
        await a_moment()
        assert GROUP in harness.state.groups  # already loaded, while offsets are not
        assert harness.coordinator.statistics().loading == 1
        harness.clock.advance_ms(20_000)
        await harness.loaded()
        assert harness.log.appends == written
        heartbeat = Heartbeat(group=GROUP, member=member, instance=None, generation=generation)
        assert await harness.coordinator.heartbeat(heartbeat) is NONE

    config = GroupConfig(initial_rebalance_delay_ms=0, offsets_load_buffer_bytes=1)
    run_scenario(scenario, GroupCoordinatorHarness(config=config))


def test_waiting_requests_get_not_coordinator_when_the_partition_moves() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        waits = asyncio.create_task(harness.coordinator.join(join_request()))
        await a_moment()
        assert not waits.done()
        harness.log.lose()
        harness.coordinator.drop_partition(0)
        assert (await waits).error is ErrorCode.NOT_COORDINATOR
        assert await harness.commit(commit_of(T0, 1)) == [ErrorCode.NOT_COORDINATOR]
        assert harness.clock.pending == 0

    run_scenario(
        scenario, GroupCoordinatorHarness(config=GroupConfig(initial_rebalance_delay_ms=3_000))
    )


def test_a_shard_whose_leadership_is_lost_serves_nothing() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        harness.log.lose()
        assert (await harness.coordinator.fetch(FETCH)).error is ErrorCode.NOT_COORDINATOR
        harness.log.lead()  # elected again, with the records of the leader in between
        assert (await harness.coordinator.fetch(FETCH)).error is ErrorCode.NOT_COORDINATOR
        await harness.take_all()
        assert await harness.fetch(T0) == [1]

    run_scenario(scenario)


def test_a_new_epoch_of_the_same_leadership_keeps_waiting_requests() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        waits = asyncio.create_task(harness.coordinator.join(join_request()))
        await a_moment()
        harness.coordinator.take_partition(0, 1)
        await a_moment()
        assert not waits.done()
        harness.clock.advance_ms(3_000)
        assert (await waits).error is NONE

    run_scenario(
        scenario, GroupCoordinatorHarness(config=GroupConfig(initial_rebalance_delay_ms=3_000))
    )


def test_without_its_topic_there_is_no_coordinator() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        harness.log.exists = False
        assert await harness.commit(commit_of(T0, 1)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert await harness.coordinator.ensure_topic() is NONE
        assert await harness.commit(commit_of(T0, 1)) == [NONE]

    run_scenario(scenario)


def test_a_closed_coordinator_is_not_available() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        harness.coordinator.close()
        assert await harness.commit(commit_of(T0, 1)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        harness.coordinator.take_partition(0, 3)
        assert harness.coordinator.statistics().shards == 0

    run_scenario(scenario)


def test_large_commits_are_split_into_batches() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        commits = [commit_of(T0, 1, "n" * 300), commit_of(T1, 2, "n" * 300)]
        assert await harness.commit(*commits, *commits) == [NONE] * 4
        assert len(harness.log.tables[0].batches()) == 4
        assert await harness.fetch_all() == {T0: 1, T1: 2}

    run_scenario(scenario, GroupCoordinatorHarness(TableLog(max_message_bytes=500)))


def test_a_record_larger_than_a_batch_is_rejected_alone() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        assert await harness.commit(commit_of(T0, 1, "n" * 600)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert "max.message.bytes" in harness.reports[0]
        assert await harness.commit(commit_of(T0, 1)) == [NONE]

    run_scenario(scenario, GroupCoordinatorHarness(TableLog(max_message_bytes=500)))


def test_a_client_cannot_fill_the_log_with_records_that_are_too_large() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        for _ in range(50):
            await harness.commit(commit_of(T0, 1, "n" * 600))
        assert len(harness.reports) == LINES_PER_PEER

    run_scenario(scenario, GroupCoordinatorHarness(TableLog(max_message_bytes=500)))


def test_an_unexpected_error_reloads_the_state_from_the_log() -> None:
    async def scenario() -> None:
        harness = GroupCoordinatorHarness()
        async with harness.running():
            await harness.commit(commit_of(T0, 1))
            impossible = commit_request(commit_of(T0, 2**63))  # no request can carry it
            assert await harness.coordinator.commit(impossible) == {
                T0: ErrorCode.UNKNOWN_SERVER_ERROR
            }
            assert harness.reports[0].startswith(
                "unexpected error in group coordinator shard __consumer_offsets-0; "
                "reloading from the log"
            )
            harness.clock.advance_ms(100)
            await harness.loaded()
            assert await harness.fetch(T0) == [1]

    asyncio.run(scenario())


def test_a_disconnected_client_does_not_block_its_group() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        gone = asyncio.create_task(harness.coordinator.join(join_request()))
        await a_moment()
        gone.cancel()
        await a_moment()
        harness.clock.advance_ms(3_000)
        assert (await harness.coordinator.describe(GROUP)).state == "CompletingRebalance"

    run_scenario(
        scenario, GroupCoordinatorHarness(config=GroupConfig(initial_rebalance_delay_ms=3_000))
    )


def test_a_group_that_nobody_joined_is_dropped() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        refused = await harness.coordinator.join(join_request(session_timeout_ms=1))
        assert refused.error is ErrorCode.INVALID_SESSION_TIMEOUT
        pending = await harness.coordinator.join(join_request(requires_known_member=True))
        assert pending.error is ErrorCode.MEMBER_ID_REQUIRED
        assert harness.coordinator.statistics().groups == 1
        harness.clock.advance_ms(10_000)
        assert harness.coordinator.statistics().groups == 0
        assert harness.log.appends == 0

    run_scenario(scenario)


def test_groups_are_listed_in_slices_with_members_and_offsets() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member(GROUP, "orders")
        await harness.commit(commit_of(T0, 7), member=member, generation=generation)
        slices = list(harness.coordinator.slices_of_groups(1))
        ((group,),) = slices
        assert (group.group, group.state, group.members) == (GROUP, "Stable", 1)
        assert (group.protocol, group.offsets) == ("classic", ((T0, 7),))

    run_scenario(scenario)


def test_the_state_equals_a_replay_of_the_log() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        member, generation = await harness.settle_member(GROUP, "orders")
        await harness.commit(commit_of(T0, 7), member=member, generation=generation)
        assert harness.state.snapshot() == replay_log(harness.log).snapshot()
        await harness.coordinator.leave(GROUP, [LeavingMember(member, None)])
        assert harness.state.snapshot() == replay_log(harness.log).snapshot()

    run_scenario(scenario)


@pytest.mark.parametrize(
    "name",
    [
        {"client_id": "c" * 32_767},
        {"instance": "i" * 32_767},
        {"member": "m" * 32_768},
        {"protocols": (MemberProtocol("p" * 32_768, b""),)},
    ],
)
def test_a_member_with_names_too_long_for_a_record_is_rejected(
    name: dict[str, Any],
) -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        joined = await harness.coordinator.join(join_request(GROUP, **name))
        assert joined.error is ErrorCode.INVALID_REQUEST

    run_scenario(scenario)


def test_a_member_with_the_longest_names_is_accepted() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        longest = join_request(GROUP, client_id="c" * 32_730, protocol_type="t" * 32_767)
        joined = await harness.coordinator.join(longest)
        assert joined.error is NONE
        synced = await harness.coordinator.sync(
            SyncGroup(
                group=GROUP,
                member=joined.member,
                instance=None,
                generation=joined.generation,
                protocol_type=None,
                protocol=None,
            )
        )
        assert synced.error is NONE

    run_scenario(scenario)
