"""Offsets in the coordination tree: what lies where, and that the group still says who may."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.unit.coordinators.group.coordinator_desk import (
    GROUP,
    NONE,
    T0,
    T1,
    U0,
    Desk,
    commit_of,
    commit_request,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.coordinator import GroupCoordinator
from penstock.coordinators.group.offsets.zookeeper_coordinator import ZooKeeperGroupCoordinator
from penstock.coordinators.group.offsets.zookeeper_offsets import ZooKeeperOffsets
from penstock.coordinators.group.requests import LeavingMember
from penstock.metadata_store.embedded.store import EmbeddedMetadataStore
from penstock.metadata_store.interface import Session
from penstock.model.errors import ErrorCode
from penstock.testing.simulated_disk import SimulatedDisk

PATH = f"/consumers/{GROUP}/offsets/orders/0"


class TreeDesk(Desk):
    def __init__(self, session: Session) -> None:
        self.session = session
        super().__init__(
            config=GroupConfig(initial_rebalance_delay_ms=0, offset_metadata_max_bytes=4)
        )

    def make(self) -> GroupCoordinator:
        return ZooKeeperGroupCoordinator(keeper=ZooKeeperOffsets(self.session), **self.parts())


def told(story: Callable[[TreeDesk], Coroutine[Any, Any, None]]) -> None:
    async def tell() -> None:
        store = await EmbeddedMetadataStore.open(SimulatedDisk("/data"), "/data/coordination")
        desk = TreeDesk(await store.open_session())
        async with desk.running():
            await story(desk)
        assert not [line for line in desk.reports if "not foreseen" in line]
        await store.close()

    asyncio.run(tell())


def test_an_offset_is_a_number_in_a_node_of_its_own() -> None:
    async def story(desk: TreeDesk) -> None:
        assert await desk.commit(commit_of(T0, 7, "note"), commit_of(U0, 3)) == [NONE, NONE]
        assert (await desk.session.get(PATH)).data == b"7"
        assert await desk.commit(commit_of(T0, 12)) == [NONE]
        assert (await desk.session.get(PATH)).data == b"12"
        assert desk.log.appends == 0
        assert await desk.fetch(T0, T1, U0) == [12, -1, 3]
        assert await desk.fetch_all() == {T0: 12, U0: 3}

    told(story)


def test_the_tree_takes_no_part_in_transactions() -> None:
    async def story(desk: TreeDesk) -> None:
        codes = await desk.commit_in_transaction(commit_of(T0, 7), producer=5)
        assert codes == [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
        assert await desk.end_transaction(5, commit=True) is NONE
        assert await desk.fetch(T0) == [-1]

    told(story)


def test_what_an_older_consumer_left_in_the_tree_is_found() -> None:
    async def story(desk: TreeDesk) -> None:
        await desk.commit(commit_of(T1, 1))
        await desk.session.create(PATH, b"99")
        await desk.session.create(f"/consumers/{GROUP}/offsets/orders/x", b"1")
        await desk.session.set(f"/consumers/{GROUP}/offsets/orders/1", b"what?")
        assert await desk.fetch_all() == {T0: 99}

    told(story)


def test_the_group_says_who_may_commit() -> None:
    async def story(desk: TreeDesk) -> None:
        member, generation = await desk.settle_member(GROUP, "orders")
        one = commit_of(T0, 5)
        assert await desk.commit(one) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await desk.commit(one, member=member, generation=generation + 1) == [
            ErrorCode.ILLEGAL_GENERATION
        ]
        assert await desk.fetch_all() == {}
        assert await desk.commit(one, member=member, generation=generation) == [NONE]
        desk.clock.advance_ms(9_000)
        assert await desk.commit(one, member=member, generation=generation) == [NONE]
        desk.clock.advance_ms(9_000)  # the commit was a sign of life
        assert await desk.commit(one, member=member, generation=generation) == [NONE]
        code, codes = await desk.coordinator.delete_offsets(GROUP, [T0])
        assert (code, codes) == (NONE, {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})
        await desk.coordinator.leave(GROUP, [LeavingMember(member, None)])
        assert await desk.coordinator.delete_offsets(GROUP, [T0]) == (NONE, {T0: NONE})
        assert await desk.fetch_all() == {}

    told(story)


def test_each_offset_is_checked_for_itself() -> None:
    async def story(desk: TreeDesk) -> None:
        nowhere = T0._replace(topic="nowhere")
        codes = await desk.commit(
            commit_of(T0, 1), commit_of(T1, 1, "longer"), commit_of(nowhere, 1)
        )
        assert codes == [
            NONE,
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await desk.fetch_all() == {T0: 1}

    told(story)


def test_a_group_that_no_node_can_be_named_after_is_refused() -> None:
    async def story(desk: TreeDesk) -> None:
        for group in ("", "a/b", "..", "nul\0"):
            codes = await desk.coordinator.commit(commit_request(commit_of(T0, 1), group=group))
            assert codes == {T0: ErrorCode.INVALID_GROUP_ID}
        assert await desk.session.exists("/consumers") is None

    told(story)


def test_groups_of_the_tree_are_listed_described_and_deleted() -> None:
    async def story(desk: TreeDesk) -> None:
        await desk.commit(commit_of(T0, 1), commit_of(U0, 2))
        await desk.settle_member("members", "orders")
        code, listed = await desk.coordinator.list_groups(frozenset(), frozenset())
        assert code is NONE
        assert {listing.group: listing.state for listing in listed} == {
            GROUP: "Empty",
            "members": "Stable",
        }
        assert (await desk.coordinator.describe(GROUP)).state == "Empty"
        assert await desk.coordinator.delete_group(GROUP) is NONE
        assert await desk.session.exists(f"/consumers/{GROUP}") is None
        assert await desk.coordinator.delete_group(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
        missing = await desk.coordinator.describe(GROUP)
        assert missing.error is ErrorCode.GROUP_ID_NOT_FOUND

    told(story)


def test_what_others_keep_of_a_group_stays_when_its_offsets_go() -> None:
    async def story(desk: TreeDesk) -> None:
        await desk.commit(commit_of(T0, 1))
        await desk.session.create(f"/consumers/{GROUP}/ids")
        assert await desk.coordinator.delete_group(GROUP) is NONE
        assert await desk.session.children(f"/consumers/{GROUP}") == ("ids",)

    told(story)


def test_offsets_go_with_their_topic() -> None:
    async def story(desk: TreeDesk) -> None:
        await desk.commit(commit_of(T0, 1), commit_of(U0, 2))
        desk.coordinator.on_topics_deleted(["orders"])
        for _ in range(100):
            await asyncio.sleep(0)
        assert await desk.fetch_all() == {U0: 2}

    told(story)


def test_a_tree_that_is_gone_sends_clients_to_try_again() -> None:
    async def story(desk: TreeDesk) -> None:
        await desk.commit(commit_of(T0, 1))
        await desk.session.close()
        assert await desk.commit(commit_of(T0, 2)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert await desk.coordinator.delete_group(GROUP) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        code, _ = await desk.coordinator.list_groups(frozenset(), frozenset())
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "tree" in desk.reports[0]

    told(story)


def test_only_the_coordinator_of_a_group_answers_for_it() -> None:
    async def story(desk: TreeDesk) -> None:
        await desk.commit(commit_of(T0, 1))
        desk.log.lose()
        desk.coordinator.drop_partition(0)
        assert await desk.commit(commit_of(T0, 2)) == [ErrorCode.NOT_COORDINATOR]
        assert (await desk.session.get(PATH)).data == b"1"

    told(story)
