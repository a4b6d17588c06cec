"""Committed offsets across a switch of `offsets.storage`, with and without dual commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinators.group.coordinator_harness import (
    GROUP,
    NONE,
    T0,
    T1,
    U0,
    FixedTopics,
    GroupCoordinatorHarness,
    TableLog,
    commit_of,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.coordinator import GroupCoordinator
from penstock.coordinators.group.offsets.migration import (
    Migration,
    MigrationRule,
    ZnodeOffset,
    migrate,
)
from penstock.coordinators.group.offsets.store import OffsetStore
from penstock.coordinators.group.offsets.two_storages import TwoStorageGroupCoordinator
from penstock.coordinators.group.offsets.zookeeper_offsets import ZooKeeperOffsets
from penstock.coordinators.group.records import NO_TIME, GroupRecord, OffsetKey, OffsetValue
from penstock.coordinators.group.requests import FetchOffsets
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.metadata_store.embedded.store import EmbeddedMetadataStore
from penstock.metadata_store.errors import ConnectionLoss
from penstock.metadata_store.interface import Session
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.testing.manual_clock import ManualClock
from penstock.testing.simulated_disk import SimulatedDisk

KAFKA, ZOOKEEPER = "kafka", "zookeeper"
MINUTE_MS = 60_000


class Storages:
    """A log and a tree that outlive coordinators of different settings."""

    def __init__(self, session: Session, clock: ManualClock) -> None:
        self.session = session
        self.clock = clock
        self.log = TableLog()
        self.reports: list[str] = []

    async def served(
        self,
        storage: str,
        work: Callable[[GroupCoordinatorHarness], Coroutine[Any, Any, None]],
        *,
        is_dual: bool = False,
        session: Session | None = None,
    ) -> None:
        """A broker with these settings, from its start to its end; a minute later the next."""
        harness = SwitchedHarness(self, storage, is_dual, session or self.session)
        self.log.lead()
        async with harness.running():
            await work(harness)
        self.reports += harness.reports
        self.log.lose()
        self.clock.advance_ms(MINUTE_MS)

    async def znode(self, tp: TopicPartition, group: str = GROUP) -> bytes:
        path = f"/consumers/{group}/offsets/{tp.topic}/{tp.partition}"
        return (await self.session.get(path)).data


class SwitchedHarness(GroupCoordinatorHarness):
    def __init__(self, storages: Storages, storage: str, is_dual: bool, session: Session) -> None:
        self._session = session
        super().__init__(
            storages.log,
            clock=storages.clock,
            config=GroupConfig(
                initial_rebalance_delay_ms=0,
                offsets_storage=storage,
                dual_commit_enabled=is_dual,
                offsets_commit_timeout_ms=120_000,  # a slow machine is no failed storage
            ),
        )

    def make(self) -> GroupCoordinator:
        return TwoStorageGroupCoordinator(store=ZooKeeperOffsets(self._session), **self.parts())


def run_scenario(scenario: Callable[[Storages], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        clock = ManualClock()
        store = await EmbeddedMetadataStore.open(
            SimulatedDisk("/data"), "/data/tree", now_ms=clock.wall_ms
        )
        storages = Storages(await store.open_session(), clock)
        await scenario(storages)
        assert not [line for line in storages.reports if "unexpected error" in line]
        await store.close()

    asyncio.run(run())


def commits(*offsets: tuple[TopicPartition, int]) -> Callable[[GroupCoordinatorHarness], Any]:
    async def work(harness: GroupCoordinatorHarness) -> None:
        made = [commit_of(tp, offset) for tp, offset in offsets]
        assert set(await harness.commit(*made)) == {NONE}

    return work


def reads(*offsets: tuple[TopicPartition, int]) -> Callable[[GroupCoordinatorHarness], Any]:
    async def work(harness: GroupCoordinatorHarness) -> None:
        tps = [tp for tp, _ in offsets]
        assert await harness.fetch(*tps) == [offset for _, offset in offsets]
        assert await harness.fetch_all() == {tp: at for tp, at in offsets if at >= 0}

    return work


@pytest.mark.parametrize(("first", "then"), [(KAFKA, ZOOKEEPER), (ZOOKEEPER, KAFKA)])
class TestSwitch:
    def test_keeps_offsets_there_and_back(self, first: str, then: str) -> None:
        async def scenario(storages: Storages) -> None:
            await storages.served(first, commits((T0, 5), (T1, 6)))
            await storages.served(then, reads((T0, 5), (T1, 6), (U0, -1)))
            await storages.served(then, commits((T0, 9), (U0, 1)))
            await storages.served(first, reads((T0, 9), (T1, 6), (U0, 1)))

        run_scenario(scenario)

    def test_keeps_a_reset_to_a_smaller_offset(self, first: str, then: str) -> None:
        async def scenario(storages: Storages) -> None:
            await storages.served(first, commits((T0, 100)))
            await storages.served(then, commits((T0, 5)))
            await storages.served(first, reads((T0, 5)))
            await storages.served(then, reads((T0, 5)))

        run_scenario(scenario)

    def test_a_commit_before_the_first_fetch_counts(self, first: str, then: str) -> None:
        async def scenario(storages: Storages) -> None:
            async def commit_and_read(harness: GroupCoordinatorHarness) -> None:
                await commits((T0, 7))(harness)
                await reads((T0, 7), (T1, 6))(harness)

            await storages.served(first, commits((T0, 5), (T1, 6)))
            await storages.served(then, commit_and_read)

        run_scenario(scenario)

    def test_deleted_offsets_do_not_come_back(self, first: str, then: str) -> None:
        async def scenario(storages: Storages) -> None:
            async def delete(harness: GroupCoordinatorHarness) -> None:
                code, _ = await harness.coordinator.delete_offsets(GROUP, [T0])
                assert code is NONE

            async def delete_group(harness: GroupCoordinatorHarness) -> None:
                await harness.commit(commit_of(T0, 8), group="other")
                assert await harness.coordinator.delete_group(GROUP) is NONE

            await storages.served(first, commits((T0, 5), (T1, 6)))
            await storages.served(then, reads((T0, 5), (T1, 6)))
            await storages.served(then, delete)
            await storages.served(first, reads((T0, -1), (T1, 6)))
            await storages.served(first, delete_group)
            await storages.served(then, reads((T0, -1), (T1, -1)))
            await storages.served(first, reads((T0, -1), (T1, -1)))

        run_scenario(scenario)

    def test_offsets_of_a_deleted_topic_do_not_come_back(self, first: str, then: str) -> None:
        async def scenario(storages: Storages) -> None:
            async def delete_topic(harness: GroupCoordinatorHarness) -> None:
                harness.coordinator.on_topics_deleted(["orders"])
                for _ in range(100):
                    await asyncio.sleep(0)

            await storages.served(first, commits((T0, 5), (U0, 6)))
            await storages.served(then, reads((T0, 5), (U0, 6)))
            await storages.served(then, delete_topic)
            await storages.served(first, reads((T0, -1), (U0, 6)))

        run_scenario(scenario)

    def test_groups_are_listed_and_described_before_they_are_migrated(
        self, first: str, then: str
    ) -> None:
        async def scenario(storages: Storages) -> None:
            async def look(harness: GroupCoordinatorHarness) -> None:
                code, listed = await harness.coordinator.list_groups(frozenset(), frozenset())
                assert (code, [listing.group for listing in listed]) == (NONE, [GROUP])
                assert (await harness.coordinator.describe(GROUP)).state == "Empty"

            await storages.served(first, commits((T0, 5)))
            await storages.served(then, look)

        run_scenario(scenario)

    def test_a_missing_offset_is_a_warning(self, first: str, then: str) -> None:
        async def scenario(storages: Storages) -> None:
            await storages.served(first, commits((T0, 5)))
            await storages.served(then, reads((T0, 5), (T1, -1)))
            [line] = [line for line in storages.reports if "no committed offset" in line]
            assert "'billing'" in line
            assert "neither in the log nor in ZooKeeper" in line

        run_scenario(scenario)

    def test_a_dual_commit_is_in_both(self, first: str, then: str) -> None:
        async def scenario(storages: Storages) -> None:
            await storages.served(first, commits((T0, 5)), is_dual=True)
            assert await storages.znode(T0) == b"5"
            assert storages.log.appends == 1
            await storages.session.close()  # so that a migration could not help

        run_scenario(scenario)

    def test_with_dual_commits_the_larger_offset_counts(self, first: str, then: str) -> None:
        async def scenario(storages: Storages) -> None:
            await storages.served(first, commits((T0, 50), (T1, 1)))
            await storages.served(then, commits((T0, 5), (T1, 10)))
            await storages.served(first, reads((T0, 50), (T1, 10)), is_dual=True)
            for storage in (first, then):
                await storages.served(storage, reads((T0, 50), (T1, 10)), is_dual=True)

        run_scenario(scenario)

    def test_zookeeper_that_fails_is_an_error_and_not_a_missing_offset(
        self, first: str, then: str
    ) -> None:
        async def scenario(storages: Storages) -> None:
            failing = FailingSession(storages.session)

            async def fail(harness: GroupCoordinatorHarness) -> None:
                patient = harness.config
                harness.config = replace(patient, offsets_commit_timeout_ms=50)
                for failing.mode in ("loss", "hang"):
                    request = FetchOffsets(
                        group=GROUP, member=None, member_epoch=-1, partitions=(T0, T1)
                    )
                    fetched = await harness.coordinator.fetch(request)
                    assert fetched.error is ErrorCode.NOT_COORDINATOR
                failing.mode = ""
                harness.config = patient
                await reads((T0, 5), (T1, 6))(harness)
                assert any("committed offsets in ZooKeeper" in line for line in harness.reports)

            await storages.served(first, commits((T0, 5), (T1, 6)))
            await storages.served(then, fail, session=failing)

        run_scenario(scenario)

    def test_a_migration_that_stopped_halfway_is_completed(self, first: str, then: str) -> None:
        async def scenario(storages: Storages) -> None:
            failing = FailingSession(storages.session)

            async def stop_halfway(harness: GroupCoordinatorHarness) -> None:
                failing.writes_left = 3 if then == ZOOKEEPER else 99
                storages.log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER if then == KAFKA else None
                request = FetchOffsets(group=GROUP, member=None, member_epoch=-1, partitions=None)
                assert (await harness.coordinator.fetch(request)).error is (
                    ErrorCode.NOT_COORDINATOR
                )
                storages.log.refusal = None

            offsets = ((T0, 5), (T1, 6), (U0, 7))
            await storages.served(first, commits(*offsets))
            await storages.served(then, stop_halfway, session=failing)
            await storages.served(then, reads(*offsets))

        run_scenario(scenario)


class FailingSession:
    """A session whose requests fail, or are never answered, as `mode` says."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.mode = ""
        self.writes_left = 1_000

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._session, name)

        async def request(*args: Any, **named: Any) -> Any:
            if self.mode == "hang":
                await asyncio.Event().wait()
            if name in ("set", "create", "delete"):
                self.writes_left -= 1
            if self.mode == "loss" or self.writes_left < 0:
                raise ConnectionLoss("no connection to ZooKeeper")
            return await call(*args, **named)

        return request


def test_a_commit_to_zookeeper_during_a_migration_stays() -> None:
    async def scenario(storages: Storages) -> None:
        racing = FailingSession(storages.session)
        create = storages.session.create

        async def create_after_another(path: str, data: bytes = b"", **named: Any) -> Any:
            if path.endswith("/0"):
                await create(path, b"77")
            return await create(path, data, **named)

        racing.create = create_after_another  # type: ignore[attr-defined]
        await storages.served(KAFKA, commits((T0, 5)))
        await storages.served(ZOOKEEPER, reads((T0, 77)), session=racing)

    run_scenario(scenario)


def test_a_cluster_without_offsets_in_zookeeper_needs_none() -> None:
    """Neither a request for each fetch, nor a warning for each new group."""

    async def scenario(storages: Storages) -> None:
        failing = FailingSession(storages.session)

        async def work(harness: GroupCoordinatorHarness) -> None:
            for _ in range(20):
                await asyncio.sleep(0)  # the groups are listed at the start
            failing.mode = "loss"
            assert await harness.fetch(T0, T1) == [-1, -1]
            await commits((T0, 5))(harness)
            await reads((T0, 5))(harness)
            assert await harness.coordinator.delete_group(GROUP) is NONE
            assert harness.reports == []

        await storages.served(KAFKA, work, session=failing)

    run_scenario(scenario)


def test_an_old_consumers_commits_are_seen_with_dual_commits() -> None:
    """An instance that still commits to ZooKeeper alone moves the group on."""

    async def scenario(storages: Storages) -> None:
        async def work(harness: GroupCoordinatorHarness) -> None:
            await commits((T0, 5))(harness)
            await reads((T0, 5))(harness)
            await storages.session.set(f"/consumers/{GROUP}/offsets/orders/0", b"8")
            await reads((T0, 8))(harness)

        await storages.served(KAFKA, work, is_dual=True)

    run_scenario(scenario)


def test_a_group_with_members_in_zookeeper_is_followed() -> None:
    async def scenario(storages: Storages) -> None:
        async def work(harness: GroupCoordinatorHarness) -> None:
            await storages.session.create(f"/consumers/{GROUP}/ids")
            await storages.session.create(f"/consumers/{GROUP}/ids/member", ephemeral=True)
            await reads((T0, 5))(harness)
            storages.clock.advance_ms(MINUTE_MS)
            await storages.session.set(f"/consumers/{GROUP}/offsets/orders/0", b"8")
            await reads((T0, 8))(harness)
            await storages.session.delete(f"/consumers/{GROUP}/ids/member")
            await reads((T0, 8))(harness)
            storages.clock.advance_ms(MINUTE_MS)
            await storages.session.set(f"/consumers/{GROUP}/offsets/orders/0", b"9")
            await reads((T0, 8))(harness)

        await storages.served(ZOOKEEPER, commits((T0, 5)))
        await storages.served(KAFKA, work)

    run_scenario(scenario)


def test_transactional_offsets_are_brought_along_once_they_are_decided() -> None:
    async def scenario(storages: Storages) -> None:
        async def begin(harness: GroupCoordinatorHarness) -> None:
            assert await harness.commit_in_transaction(commit_of(T0, 7), producer=5) == [NONE]

        async def unstable(harness: GroupCoordinatorHarness) -> None:
            assert (await harness.fetch_stable(T0)).unstable == {T0}

        async def end(harness: GroupCoordinatorHarness) -> None:
            assert await harness.end_transaction(5, commit=True) is NONE

        await storages.served(KAFKA, begin)
        await storages.served(ZOOKEEPER, unstable)
        await storages.served(ZOOKEEPER, end)
        await storages.served(ZOOKEEPER, reads((T0, 7)))

    run_scenario(scenario)


# The rule itself.

_offsets = st.integers(0, 5)
_times = st.integers(0, 3)
_tps = st.sampled_from([T0, T1, U0, TopicPartition("gone", 0), TopicPartition("orders", 99)])
_znodes = st.dictionaries(
    _tps, st.builds(ZnodeOffset, _offsets, committed_ms=_times, version=_offsets)
)
_values = st.dictionaries(
    _tps,
    st.builds(
        OffsetValue,
        offset=_offsets,
        leader_epoch=st.just(-1),
        metadata=st.just(""),
        committed_ms=_times,
        expires_ms=st.just(NO_TIME),
    ),
)
_TOPICS = FixedTopics({"orders": 4, "users": 4})


def stored(values: dict[TopicPartition, OffsetValue]) -> OffsetStore:
    store = OffsetStore()
    for at, (tp, value) in enumerate(values.items()):
        store.replay(OffsetKey(GROUP, *tp), value, record_offset=at)
    return store


def migrated(
    store: OffsetStore, znodes: dict[TopicPartition, ZnodeOffset], rule: MigrationRule
) -> tuple[CoordinatorResult[Migration, GroupRecord], Migration]:
    result = migrate(store, GROUP, znodes, rule, topics=_TOPICS, now_ms=10)
    assert isinstance(result.reply, Migration)
    return result, result.reply


@given(values=_values, znodes=_znodes, rule=st.builds(MigrationRule, st.booleans(), st.booleans()))
def test_after_a_migration_the_storages_that_are_written_agree(
    values: dict[TopicPartition, OffsetValue],
    znodes: dict[TopicPartition, ZnodeOffset],
    rule: MigrationRule,
) -> None:
    store = stored(values)
    result, reply = migrated(store, znodes, rule)
    after_log = dict(store.of_group(GROUP))
    for record in result.records:
        assert isinstance(record.key, OffsetKey)
        assert isinstance(record.value, OffsetValue)
        after_log[TopicPartition(record.key.topic, record.key.partition)] = record.value
    after_tree = {tp: znode.offset for tp, znode in znodes.items()}
    after_tree |= {tp: offset.offset for tp, offset in reply.to_zookeeper.items()}
    assert reply.to_log == len(result.records)
    for tp in values.keys() | znodes.keys():
        in_log = after_log[tp].offset if tp in after_log else None
        if tp.topic == "gone" or tp.partition == 99:
            assert in_log == (values[tp].offset if tp in values else None)
            assert after_tree.get(tp) == (znodes[tp].offset if tp in znodes else None)
            continue
        candidates = [value.offset for side in (values, znodes) if (value := side.get(tp))]
        if rule.is_dual:
            assert in_log == after_tree[tp] == max(candidates)
        else:
            assert (after_tree[tp] if rule.is_in_zookeeper else in_log) in candidates
        if not rule.writes_log:
            assert result.records == ()
        if not rule.writes_zookeeper:
            assert not reply.to_zookeeper


@given(values=_values, znodes=_znodes, rule=st.builds(MigrationRule, st.booleans(), st.just(False)))
def test_without_dual_commits_the_newer_commit_wins(
    values: dict[TopicPartition, OffsetValue],
    znodes: dict[TopicPartition, ZnodeOffset],
    rule: MigrationRule,
) -> None:
    only = {T0}
    values = {tp: value for tp, value in values.items() if tp in only}
    znodes = {tp: znode for tp, znode in znodes.items() if tp in only}
    if not (values and znodes):
        return
    value, znode = values[T0], znodes[T0]
    result, reply = migrated(stored(values), znodes, rule)
    is_znode_newer = znode.committed_ms > value.committed_ms
    if value.offset == znode.offset:
        assert not result.records
        assert not reply.to_zookeeper
    elif value.committed_ms != znode.committed_ms:
        assert bool(result.records) == (is_znode_newer and not rule.is_in_zookeeper)
        assert bool(reply.to_zookeeper) == (not is_znode_newer and rule.is_in_zookeeper)


def test_a_migrated_offset_expires_from_now_on() -> None:
    znodes = {T0: ZnodeOffset(5, committed_ms=1, version=0)}
    rule = MigrationRule(is_in_zookeeper=False, is_dual=False)
    [record] = migrate(OffsetStore(), GROUP, znodes, rule, topics=_TOPICS, now_ms=1_000).records
    assert isinstance(record.value, OffsetValue)
    assert (record.value.offset, record.value.committed_ms) == (5, 1_000)
