"""Consumer groups in a coordinator over a real log, with committed offsets."""

import asyncio
from typing import Any

from tests.unit.coordinators.group.coordinator_harness import (
    GROUP,
    NONE,
    T0,
    GroupCoordinatorHarness,
    TableLog,
    commit_of,
    commit_request,
    join_request,
    replay_log,
    run_scenario,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.requests import (
    LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from penstock.coordinators.group.requests import FetchOffsets, GroupSummary, Heartbeat
from penstock.model.errors import ErrorCode

DAY_MS = 86_400_000


def request(member: str = "anna", epoch: int = 0, **more: Any) -> ConsumerHeartbeat:
    joining: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": ("orders",), "owned": ()}
    given = joining if epoch == 0 else {}
    return ConsumerHeartbeat(
        member=member,
        member_epoch=epoch,
        client_id="app",
        client_host="/10.0.0.1",
        **({"group": GROUP} | given | more),
    )


async def beat(harness: GroupCoordinatorHarness, *args: Any, **more: Any) -> ConsumerHeartbeatReply:
    return await harness.coordinator.consumer_heartbeat(request(*args, **more))


async def joined(harness: GroupCoordinatorHarness, member: str = "anna") -> ConsumerHeartbeatReply:
    reply = await beat(harness, member)
    assert reply.error is NONE, reply
    return reply


def test_an_assignment_is_sent_when_it_is_committed() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        harness.log.is_held = True
        reply = asyncio.create_task(beat(harness))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not reply.done()
        harness.log.commit()
        told_now = await reply
        assert told_now.assignment is not None
        assert told_now.assignment[0].partitions == (0, 1, 2, 3)

    run_scenario(scenario)


def test_a_transaction_commits_offsets_with_a_current_member_or_without_one() -> None:
    """No version of TxnOffsetCommit has STALE_MEMBER_EPOCH."""

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        epoch = (await joined(harness)).member_epoch
        cases = {
            ("anna", epoch): NONE,
            ("", -1): NONE,
            ("anna", epoch + 1): ErrorCode.ILLEGAL_GENERATION,
            ("anna", -1): ErrorCode.ILLEGAL_GENERATION,
            ("bob", epoch): ErrorCode.UNKNOWN_MEMBER_ID,
        }
        for (member, generation), code in cases.items():
            codes = await harness.commit_in_transaction(
                commit_of(T0, 5), producer=7, member=member, generation=generation
            )
            assert codes == [code], (member, generation)

    run_scenario(scenario)


def test_a_restarted_coordinator_knows_the_members() -> None:
    async def first(harness: GroupCoordinatorHarness) -> None:
        await joined(harness)
        assert harness.state.snapshot() == replay_log(harness.log).snapshot()

    async def second(harness: GroupCoordinatorHarness) -> None:
        assert (await beat(harness, "anna", 1)).error is NONE
        assert (await beat(harness, "anna", 2)).error is ErrorCode.FENCED_MEMBER_EPOCH
        assert (await harness.coordinator.consumer_describe(GROUP)).state == "Stable"

    log = run_scenario(first).log
    run_scenario(second, GroupCoordinatorHarness(log))


def test_a_refused_write_is_an_error_and_removes_no_member() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await joined(harness)
        harness.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        reply = await beat(harness, "bob")
        assert reply.error is not NONE
        assert reply.message
        harness.log.refusal = None
        harness.clock.advance_ms(100)
        await harness.loaded()
        assert (await beat(harness, "anna", 1)).error is NONE
        assert (await beat(harness, "bob")).member_epoch == 2

    run_scenario(scenario)


def test_a_member_is_removed_when_its_session_expires() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await joined(harness)
        harness.clock.advance_ms(44_999)
        assert (await beat(harness, "anna", 1)).error is NONE
        harness.clock.advance_ms(44_999)
        assert (await harness.coordinator.consumer_describe(GROUP)).state == "Stable"
        harness.clock.advance_ms(2)
        assert (await harness.coordinator.consumer_describe(GROUP)).state == "Empty"
        assert (await beat(harness, "anna", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID

    run_scenario(scenario)


def test_new_partitions_are_assigned_after_a_metadata_update() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await joined(harness)
        await beat(harness, "anna", 1)
        harness.topics.counts["orders"] = 6
        assert (await beat(harness, "anna", 1)).assignment is None
        harness.coordinator.on_topics_changed()
        reply = await beat(harness, "anna", 1)
        assert reply.assignment is not None
        assert reply.assignment[0].partitions == (0, 1, 2, 3, 4, 5)

    run_scenario(scenario)


def test_commits_and_fetches_are_checked_against_the_member_epoch() -> None:
    async def commit(
        harness: GroupCoordinatorHarness, epoch: int, *, is_new: bool = True
    ) -> ErrorCode:
        request = commit_request(
            commit_of(T0, 5), member="anna", generation=epoch, is_consumer_protocol=is_new
        )
        return (await harness.coordinator.commit(request))[T0]

    async def fetch(harness: GroupCoordinatorHarness, epoch: int) -> ErrorCode:
        request = FetchOffsets(group=GROUP, member="anna", member_epoch=epoch, partitions=(T0,))
        return (await harness.coordinator.fetch(request)).error

    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await joined(harness)
        assert await commit(harness, 1) is NONE
        assert await commit(harness, 0) is ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(harness, 1, is_new=False) is ErrorCode.UNSUPPORTED_VERSION
        assert await harness.commit(commit_of(T0, 9)) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await fetch(harness, 1) is NONE
        assert await fetch(harness, 2) is ErrorCode.STALE_MEMBER_EPOCH
        assert await harness.fetch(T0) == [5]

    run_scenario(scenario)


def test_groups_are_listed_and_described_by_their_type() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await joined(harness)
        await harness.settle_member("classic")
        code, listed = await harness.coordinator.list_groups(frozenset(), frozenset(["Consumer"]))
        assert (code, listed) == (NONE, [GroupSummary(GROUP, "consumer", "Stable", "consumer")])
        assert len((await harness.coordinator.list_groups(frozenset(), frozenset()))[1]) == 2
        described = await harness.coordinator.consumer_describe(GROUP)
        assert [member.member for member in described.members] == ["anna"]
        unknown = ErrorCode.GROUP_ID_NOT_FOUND
        assert (await harness.coordinator.describe(GROUP)).error is unknown
        assert (await harness.coordinator.consumer_describe("classic")).error is unknown
        assert (await harness.coordinator.consumer_describe("nowhere")).error is unknown

    run_scenario(scenario)


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await joined(harness)
        assert await harness.coordinator.delete_group(GROUP) is ErrorCode.NON_EMPTY_GROUP
        await beat(harness, "anna", LEAVE_EPOCH)
        assert await harness.commit(commit_of(T0, 5)) == [NONE]
        assert await harness.coordinator.delete_group(GROUP) is NONE
        assert await harness.fetch_all() == {}
        assert harness.state.groups == {}
        assert harness.state.snapshot() == replay_log(harness.log).snapshot()

    run_scenario(scenario)


def test_an_empty_group_is_removed_with_its_last_offset() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await joined(harness)
        await beat(harness, "anna", LEAVE_EPOCH)
        await harness.commit(commit_of(T0, 5))
        harness.clock.advance_ms(DAY_MS + harness.config.offsets_retention_check_interval_ms)
        assert harness.state.groups == {}
        assert await harness.fetch_all() == {}

    config = GroupConfig(offsets_retention_ms=DAY_MS)
    run_scenario(scenario, GroupCoordinatorHarness(config=config))


def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        await joined(harness)
        request = commit_request(
            commit_of(T0, 5), member="anna", generation=1, is_consumer_protocol=True
        )
        await harness.coordinator.commit(request)
        for _ in range(100):
            harness.clock.advance_ms(40_000)
            assert (await beat(harness, "anna", 1)).error is NONE
        assert await harness.fetch(T0) == [5]
        code, codes = await harness.coordinator.delete_offsets(GROUP, [T0])
        assert (code, codes) == (NONE, {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})

    run_scenario(
        scenario, GroupCoordinatorHarness(config=GroupConfig(offsets_retention_ms=1_000_000))
    )


def test_a_group_changes_its_protocol_and_back() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        classic = await harness.coordinator.join(join_request(GROUP, "orders"))
        waiting = asyncio.create_task(harness.coordinator.join(join_request(GROUP, "orders")))
        await asyncio.sleep(0)
        await joined(harness)  # in the middle of a rebalance
        assert (await waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert (await harness.coordinator.consumer_describe(GROUP)).error is NONE
        heart = Heartbeat(
            group=GROUP, member=classic.member, instance=None, generation=classic.generation
        )
        assert await harness.coordinator.heartbeat(heart) is ErrorCode.REBALANCE_IN_PROGRESS
        assert harness.state.snapshot() == replay_log(harness.log).snapshot()
        await beat(harness, "anna", LEAVE_EPOCH)
        harness.clock.advance_ms(1)
        assert (await harness.coordinator.describe(GROUP)).state == "PreparingRebalance"
        assert harness.state.snapshot() == replay_log(harness.log).snapshot()

    run_scenario(scenario)


def test_a_compacted_log_replays_to_the_same_state() -> None:
    async def scenario(harness: GroupCoordinatorHarness) -> None:
        for name in ("anna", "bob", "carl"):
            await joined(harness, name)
        await beat(harness, "bob", LEAVE_EPOCH)
        await beat(harness, "anna", 1, owned=())
        table = harness.log.tables[0]
        written = len(table.list_keys())
        table.roll()
        table.compact()
        assert len(table.list_keys()) < written
        assert harness.state.snapshot() == replay_log(harness.log).snapshot()

    run_scenario(scenario, GroupCoordinatorHarness(TableLog()))
