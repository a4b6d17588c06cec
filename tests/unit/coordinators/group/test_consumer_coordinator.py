"""Groups of the newer protocol at a coordinator: over a real log, with offsets beside them."""

import asyncio
from typing import Any

from tests.unit.coordinators.group.coordinator_desk import (
    GROUP,
    NONE,
    T0,
    Desk,
    TableLog,
    commit_of,
    commit_request,
    join_request,
    replayed,
    told,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.requests import (
    LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from penstock.coordinators.group.requests import FetchOffsets, GroupListing, Heartbeat
from penstock.model.errors import ErrorCode

DAY_MS = 86_400_000


def request(member: str = "anna", epoch: int = 0, **more: Any) -> ConsumerHeartbeat:
    joining: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": ("orders",), "owned": ()}
    given = joining if epoch == 0 else {}
    return ConsumerHeartbeat(
        group=GROUP,
        member=member,
        member_epoch=epoch,
        client_id="app",
        client_host="/10.0.0.1",
        **(given | more),
    )


async def beat(desk: Desk, *args: Any, **more: Any) -> ConsumerHeartbeatReply:
    return await desk.coordinator.consumer_heartbeat(request(*args, **more))


async def joined(desk: Desk, member: str = "anna") -> ConsumerHeartbeatReply:
    answer = await beat(desk, member)
    assert answer.error is NONE, answer
    return answer


def test_an_assignment_is_told_when_every_replica_has_it() -> None:
    async def story(desk: Desk) -> None:
        desk.log.is_held = True
        answer = asyncio.create_task(beat(desk))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not answer.done()
        desk.log.commit()
        told_now = await answer
        assert told_now.assignment is not None
        assert told_now.assignment[0].partitions == (0, 1, 2, 3)

    told(story)


def test_a_transaction_commits_for_a_member_at_its_epoch_or_for_nobody_named() -> None:
    """Of transactions no version knows STALE_MEMBER_EPOCH."""

    async def story(desk: Desk) -> None:
        epoch = (await joined(desk)).member_epoch
        cases = {
            ("anna", epoch): NONE,
            ("", -1): NONE,
            ("anna", epoch + 1): ErrorCode.ILLEGAL_GENERATION,
            ("anna", -1): ErrorCode.ILLEGAL_GENERATION,
            ("bob", epoch): ErrorCode.UNKNOWN_MEMBER_ID,
        }
        for (member, generation), code in cases.items():
            codes = await desk.commit_in_transaction(
                commit_of(T0, 5), producer=7, member=member, generation=generation
            )
            assert codes == [code], (member, generation)

    told(story)


def test_the_next_life_of_a_coordinator_knows_the_members() -> None:
    async def first(desk: Desk) -> None:
        await joined(desk)
        assert desk.state.snapshot() == replayed(desk.log).snapshot()

    async def second(desk: Desk) -> None:
        assert (await beat(desk, "anna", 1)).error is NONE
        assert (await beat(desk, "anna", 2)).error is ErrorCode.FENCED_MEMBER_EPOCH
        assert (await desk.coordinator.consumer_describe(GROUP)).state == "Stable"

    log = told(first).log
    told(second, Desk(log))


def test_a_write_that_is_refused_is_told_and_costs_no_member() -> None:
    async def story(desk: Desk) -> None:
        await joined(desk)
        desk.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        answer = await beat(desk, "bob")
        assert answer.error is not NONE
        assert answer.message
        desk.log.refusal = None
        desk.clock.advance_ms(100)
        await desk.loaded()
        assert (await beat(desk, "anna", 1)).error is NONE
        assert (await beat(desk, "bob")).member_epoch == 2

    told(story)


def test_a_silent_member_is_taken_out_when_its_session_ends() -> None:
    async def story(desk: Desk) -> None:
        await joined(desk)
        desk.clock.advance_ms(44_999)
        assert (await beat(desk, "anna", 1)).error is NONE
        desk.clock.advance_ms(44_999)
        assert (await desk.coordinator.consumer_describe(GROUP)).state == "Stable"
        desk.clock.advance_ms(2)
        assert (await desk.coordinator.consumer_describe(GROUP)).state == "Empty"
        assert (await beat(desk, "anna", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID

    told(story)


def test_new_partitions_reach_a_group_once_the_coordinator_is_told() -> None:
    async def story(desk: Desk) -> None:
        await joined(desk)
        await beat(desk, "anna", 1)
        desk.topics.counts["orders"] = 6
        assert (await beat(desk, "anna", 1)).assignment is None
        desk.coordinator.on_topics_changed()
        answer = await beat(desk, "anna", 1)
        assert answer.assignment is not None
        assert answer.assignment[0].partitions == (0, 1, 2, 3, 4, 5)

    told(story)


def test_commits_and_fetches_are_held_to_the_members_epoch() -> None:
    async def commit(desk: Desk, epoch: int, *, is_new: bool = True) -> ErrorCode:
        asked = commit_request(
            commit_of(T0, 5), member="anna", generation=epoch, is_consumer_protocol=is_new
        )
        return (await desk.coordinator.commit(asked))[T0]

    async def fetch(desk: Desk, epoch: int) -> ErrorCode:
        asked = FetchOffsets(group=GROUP, member="anna", member_epoch=epoch, partitions=(T0,))
        return (await desk.coordinator.fetch(asked)).error

    async def story(desk: Desk) -> None:
        await joined(desk)
        assert await commit(desk, 1) is NONE
        assert await commit(desk, 0) is ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(desk, 1, is_new=False) is ErrorCode.UNSUPPORTED_VERSION
        assert await desk.commit(commit_of(T0, 9)) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await fetch(desk, 1) is NONE
        assert await fetch(desk, 2) is ErrorCode.STALE_MEMBER_EPOCH
        assert await desk.fetch(T0) == [5]

    told(story)


def test_groups_are_listed_and_described_by_their_kind() -> None:
    async def story(desk: Desk) -> None:
        await joined(desk)
        await desk.settle_member("classic")
        code, listed = await desk.coordinator.list_groups(frozenset(), frozenset(["Consumer"]))
        assert (code, listed) == (NONE, [GroupListing(GROUP, "consumer", "Stable", "consumer")])
        assert len((await desk.coordinator.list_groups(frozenset(), frozenset()))[1]) == 2
        described = await desk.coordinator.consumer_describe(GROUP)
        assert [member.member for member in described.members] == ["anna"]
        unknown = ErrorCode.GROUP_ID_NOT_FOUND
        assert (await desk.coordinator.describe(GROUP)).error is unknown
        assert (await desk.coordinator.consumer_describe("classic")).error is unknown
        assert (await desk.coordinator.consumer_describe("nowhere")).error is unknown

    told(story)


def test_a_group_is_deleted_with_its_offsets_when_nobody_is_in_it() -> None:
    async def story(desk: Desk) -> None:
        await joined(desk)
        assert await desk.coordinator.delete_group(GROUP) is ErrorCode.NON_EMPTY_GROUP
        await beat(desk, "anna", LEAVE_EPOCH)
        assert await desk.commit(commit_of(T0, 5)) == [NONE]
        assert await desk.coordinator.delete_group(GROUP) is NONE
        assert await desk.fetch_all() == {}
        assert desk.state.groups == {}
        assert desk.state.snapshot() == replayed(desk.log).snapshot()

    told(story)


def test_a_deserted_group_goes_with_its_last_offset() -> None:
    async def story(desk: Desk) -> None:
        await joined(desk)
        await beat(desk, "anna", LEAVE_EPOCH)
        await desk.commit(commit_of(T0, 5))
        desk.clock.advance_ms(DAY_MS + desk.config.offsets_retention_check_interval_ms)
        assert desk.state.groups == {}
        assert await desk.fetch_all() == {}

    config = GroupConfig(offsets_retention_ms=DAY_MS)
    told(story, Desk(config=config))


def test_a_group_keeps_the_offsets_that_its_members_want() -> None:
    async def story(desk: Desk) -> None:
        await joined(desk)
        asked = commit_request(
            commit_of(T0, 5), member="anna", generation=1, is_consumer_protocol=True
        )
        await desk.coordinator.commit(asked)
        for _ in range(100):
            desk.clock.advance_ms(40_000)
            assert (await beat(desk, "anna", 1)).error is NONE
        assert await desk.fetch(T0) == [5]
        code, codes = await desk.coordinator.delete_offsets(GROUP, [T0])
        assert (code, codes) == (NONE, {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})

    told(story, Desk(config=GroupConfig(offsets_retention_ms=1_000_000)))


def test_a_group_changes_its_protocol_and_back() -> None:
    async def story(desk: Desk) -> None:
        classic = await desk.coordinator.join(join_request(GROUP, "orders"))
        waiting = asyncio.create_task(desk.coordinator.join(join_request(GROUP, "orders")))
        await asyncio.sleep(0)
        await joined(desk)  # in the middle of a rebalance
        assert (await waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert (await desk.coordinator.consumer_describe(GROUP)).error is NONE
        heart = Heartbeat(
            group=GROUP, member=classic.member, instance=None, generation=classic.generation
        )
        assert await desk.coordinator.heartbeat(heart) is ErrorCode.REBALANCE_IN_PROGRESS
        assert desk.state.snapshot() == replayed(desk.log).snapshot()
        await beat(desk, "anna", LEAVE_EPOCH)
        desk.clock.advance_ms(1)
        assert (await desk.coordinator.describe(GROUP)).state == "PreparingRebalance"
        assert desk.state.snapshot() == replayed(desk.log).snapshot()

    told(story)


def test_what_a_compacted_log_gives_is_what_was() -> None:
    async def story(desk: Desk) -> None:
        for name in ("anna", "bob", "carl"):
            await joined(desk, name)
        await beat(desk, "bob", LEAVE_EPOCH)
        await beat(desk, "anna", 1, owned=())
        table = desk.log.tables[0]
        written = len(table.list_keys())
        table.roll()
        table.compact()
        assert len(table.list_keys()) < written
        assert desk.state.snapshot() == replayed(desk.log).snapshot()

    told(story, Desk(TableLog()))
