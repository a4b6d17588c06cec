"""Offsets in ZooKeeper: their znodes, and commits that the group still checks."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.unit.coordinators.group.coordinator_harness import (
    GROUP,
    NONE,
    T0,
    T1,
    U0,
    GroupCoordinatorHarness,
    commit_of,
    commit_request,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.coordinator import GroupCoordinator
from penstock.coordinators.group.offsets.two_storages import TwoStorageGroupCoordinator
from penstock.coordinators.group.offsets.zookeeper_offsets import ZooKeeperOffsets
from penstock.coordinators.group.requests import LeavingMember
from penstock.metadata_store.embedded.store import EmbeddedMetadataStore
from penstock.metadata_store.interface import Session
from penstock.model.errors import ErrorCode
from penstock.testing.simulated_disk import SimulatedDisk

PATH = f"/consumers/{GROUP}/offsets/orders/0"


class ZooKeeperHarness(GroupCoordinatorHarness):
    def __init__(self, session: Session) -> None:
        self.session = session
        super().__init__(
            config=GroupConfig(
                initial_rebalance_delay_ms=0,
                offset_metadata_max_bytes=4,
                offsets_storage="zookeeper",
            )
        )

    def make(self) -> GroupCoordinator:
        return TwoStorageGroupCoordinator(store=ZooKeeperOffsets(self.session), **self.parts())


def run_scenario(scenario: Callable[[ZooKeeperHarness], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        store = await EmbeddedMetadataStore.open(SimulatedDisk("/data"), "/data/coordination")
        harness = ZooKeeperHarness(await store.open_session())
        async with harness.running():
            await scenario(harness)
        assert not [line for line in harness.reports if "unexpected error" in line]
        await store.close()

    asyncio.run(run())


def test_an_offset_is_stored_as_text_in_its_own_znode() -> None:
    async def scenario(harness: ZooKeeperHarness) -> None:
        assert await harness.commit(commit_of(T0, 7, "note"), commit_of(U0, 3)) == [NONE, NONE]
        assert (await harness.session.get(PATH)).data == b"7"
        assert await harness.commit(commit_of(T0, 12)) == [NONE]
        assert (await harness.session.get(PATH)).data == b"12"
        assert harness.log.appends == 0
        assert await harness.fetch(T0, T1, U0) == [12, -1, 3]
        assert await harness.fetch_all() == {T0: 12, U0: 3}

    run_scenario(scenario)


def test_transactional_offsets_are_unsupported() -> None:
    async def scenario(harness: ZooKeeperHarness) -> None:
        codes = await harness.commit_in_transaction(commit_of(T0, 7), producer=5)
        assert codes == [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
        assert await harness.end_transaction(5, commit=True) is NONE
        assert await harness.fetch(T0) == [-1]

    run_scenario(scenario)


def test_offsets_of_an_older_consumer_are_read() -> None:
    async def scenario(harness: ZooKeeperHarness) -> None:
        await harness.commit(commit_of(T1, 1))
        await harness.session.create(PATH, b"99")
        await harness.session.create(f"/consumers/{GROUP}/offsets/orders/x", b"1")
        await harness.session.set(f"/consumers/{GROUP}/offsets/orders/1", b"what?")
        assert await harness.fetch_all() == {T0: 99}

    run_scenario(scenario)


def test_the_group_decides_who_may_commit() -> None:
    async def scenario(harness: ZooKeeperHarness) -> None:
        member, generation = await harness.settle_member(GROUP, "orders")
        one = commit_of(T0, 5)
        assert await harness.commit(one) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await harness.commit(one, member=member, generation=generation + 1) == [
            ErrorCode.ILLEGAL_GENERATION
        ]
        assert await harness.fetch_all() == {}
        assert await harness.commit(one, member=member, generation=generation) == [NONE]
        harness.clock.advance_ms(9_000)
        assert await harness.commit(one, member=member, generation=generation) == [NONE]
        harness.clock.advance_ms(9_000)  # the commit reset its session
        assert await harness.commit(one, member=member, generation=generation) == [NONE]
        code, codes = await harness.coordinator.delete_offsets(GROUP, [T0])
        assert (code, codes) == (NONE, {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})
        await harness.coordinator.leave(GROUP, [LeavingMember(member, None)])
        assert await harness.coordinator.delete_offsets(GROUP, [T0]) == (NONE, {T0: NONE})
        assert await harness.fetch_all() == {}

    run_scenario(scenario)


def test_each_offset_is_checked_individually() -> None:
    async def scenario(harness: ZooKeeperHarness) -> None:
        nowhere = T0._replace(topic="nowhere")
        codes = await harness.commit(
            commit_of(T0, 1), commit_of(T1, 1, "longer"), commit_of(nowhere, 1)
        )
        assert codes == [
            NONE,
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await harness.fetch_all() == {T0: 1}

    run_scenario(scenario)


def test_a_group_id_that_is_no_znode_name_is_invalid() -> None:
    async def scenario(harness: ZooKeeperHarness) -> None:
        for group in ("", "a/b", "..", "nul\0"):
            codes = await harness.coordinator.commit(commit_request(commit_of(T0, 1), group=group))
            assert codes == {T0: ErrorCode.INVALID_GROUP_ID}
        assert await harness.session.exists("/consumers") is None

    run_scenario(scenario)


def test_groups_with_offsets_in_zookeeper_are_listed_described_and_deleted() -> None:
    async def scenario(harness: ZooKeeperHarness) -> None:
        await harness.commit(commit_of(T0, 1), commit_of(U0, 2))
        await harness.settle_member("members", "orders")
        code, listed = await harness.coordinator.list_groups(frozenset(), frozenset())
        assert code is NONE
        assert {listing.group: listing.state for listing in listed} == {
            GROUP: "Empty",
            "members": "Stable",
        }
        assert (await harness.coordinator.describe(GROUP)).state == "Empty"
        assert await harness.coordinator.delete_group(GROUP) is NONE
        assert await harness.session.exists(f"/consumers/{GROUP}") is None
        assert await harness.coordinator.delete_group(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
        missing = await harness.coordinator.describe(GROUP)
        assert missing.error is ErrorCode.GROUP_ID_NOT_FOUND

    run_scenario(scenario)


def test_other_znodes_of_a_group_stay_when_its_offsets_are_deleted() -> None:
    async def scenario(harness: ZooKeeperHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        await harness.session.create(f"/consumers/{GROUP}/ids")
        assert await harness.coordinator.delete_group(GROUP) is NONE
        assert await harness.session.children(f"/consumers/{GROUP}") == ("ids",)

    run_scenario(scenario)


def test_offsets_of_a_deleted_topic_are_deleted() -> None:
    async def scenario(harness: ZooKeeperHarness) -> None:
        await harness.commit(commit_of(T0, 1), commit_of(U0, 2))
        harness.coordinator.on_topics_deleted(["orders"])
        for _ in range(100):
            await asyncio.sleep(0)
        assert await harness.fetch_all() == {U0: 2}

    run_scenario(scenario)


def test_clients_retry_while_zookeeper_is_unreachable() -> None:
    async def scenario(harness: ZooKeeperHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        await harness.session.close()
        assert await harness.commit(commit_of(T0, 2)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert await harness.coordinator.delete_group(GROUP) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        code, _ = await harness.coordinator.list_groups(frozenset(), frozenset())
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "ZooKeeper" in harness.reports[0]

    run_scenario(scenario)


def test_only_the_coordinator_of_a_group_serves_it() -> None:
    async def scenario(harness: ZooKeeperHarness) -> None:
        await harness.commit(commit_of(T0, 1))
        harness.log.lose()
        harness.coordinator.drop_partition(0)
        assert await harness.commit(commit_of(T0, 2)) == [ErrorCode.NOT_COORDINATOR]
        assert (await harness.session.get(PATH)).data == b"1"

    run_scenario(scenario)
