"""Any history of groups and offsets: state, log and compacted log always agree."""

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.unit.coordinators.group.coordinator_harness import (
    FixedTopics,
    GroupCoordinatorHarness,
    TableLog,
    commit_of,
    join_request,
    replay_log,
)

from penstock.coordinators.group.classic.state import ClassicGroupState, ClassicState
from penstock.coordinators.group.consumer.requests import JOIN_EPOCH, LEAVE_EPOCH, ConsumerHeartbeat
from penstock.coordinators.group.requests import Heartbeat, LeavingMember, SyncGroup
from penstock.coordinators.group.state import GroupShardState
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.testing.manual_clock import ManualClock

Answer = TypeVar("Answer")

GROUPS = ["a", "b", "c"]
PRODUCERS = [0, 2**63 - 1]
TOPICS = {"orders": 2, "users": 1}
PARTITIONS = [
    TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)
]
HOUR_MS = 3_600_000
RETENTION_MS = 7 * 24 * HOUR_MS

groups = st.sampled_from(GROUPS)
partitions = st.sampled_from(PARTITIONS)


class CommitSome(NamedTuple):
    group: str
    offsets: list[tuple[TopicPartition, int]]
    expires_after_ms: int | None
    as_member: bool


class CommitInTransaction(NamedTuple):
    group: str
    producer: int
    offsets: list[tuple[TopicPartition, int]]
    as_member: bool


class EndTransaction(NamedTuple):
    producer: int
    commit: bool


class JoinStep(NamedTuple):
    group: str
    topics: list[str]
    and_sync: bool


class SyncStep(NamedTuple):
    group: str


class Beat(NamedTuple):
    group: str
    is_modern: bool


class LeaveStep(NamedTuple):
    group: str


class DeleteOffsets(NamedTuple):
    group: str
    partitions: list[TopicPartition]


class DeleteGroup(NamedTuple):
    group: str


class DeleteTopic(NamedTuple):
    topic: str


class Wait(NamedTuple):
    duration_ms: int


class Refuse(NamedTuple):
    """The next command cannot be written."""


class Compact(NamedTuple):
    is_all: bool  # otherwise closed segments only


class Restart(NamedTuple):
    pass


steps = st.one_of(
    st.builds(
        CommitSome,
        groups,
        st.lists(st.tuples(partitions, st.integers(0, 99)), min_size=1, max_size=3),
        st.sampled_from([None, None, HOUR_MS, 10 * RETENTION_MS]),
        st.booleans(),
    ),
    st.builds(
        CommitInTransaction,
        groups,
        st.sampled_from(PRODUCERS),
        st.lists(st.tuples(partitions, st.integers(0, 99)), min_size=1, max_size=3),
        st.booleans(),
    ),
    st.builds(EndTransaction, st.sampled_from(PRODUCERS), st.booleans()),
    st.builds(JoinStep, groups, st.lists(st.sampled_from(list(TOPICS)), max_size=2, unique=True)),
    st.builds(SyncStep, groups),
    st.builds(Beat, groups, st.booleans()),
    st.builds(LeaveStep, groups),
    st.builds(DeleteOffsets, groups, st.lists(partitions, min_size=1, max_size=2)),
    st.builds(DeleteGroup, groups),
    st.builds(DeleteTopic, st.sampled_from(list(TOPICS))),
    st.builds(Wait, st.sampled_from([1_000, 1_000, 11_000, HOUR_MS, RETENTION_MS])),
    st.builds(Refuse),
    st.builds(Compact, st.booleans()),
    st.builds(Restart),
)
histories = st.lists(steps, min_size=30, max_size=60)


class Life:
    """Successive coordinators over the same log, and the members that clients remember."""

    def __init__(self) -> None:
        self.log = TableLog(
            segment_bytes=1_000, min_cleanable_dirty_ratio=0.0, delete_retention_ms=HOUR_MS
        )
        self.clock = ManualClock()
        self.harness = self._open()
        self.classic: dict[str, tuple[str, int]] = {}  # group -> member, generation
        self.modern: dict[str, tuple[str, int]] = {}  # group -> member, epoch
        self.names = 0

    def _open(self) -> GroupCoordinatorHarness:
        return GroupCoordinatorHarness(self.log, clock=self.clock, topics=FixedTopics(TOPICS))

    async def live(self, history: list[tuple[object, ...]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(self.harness.coordinator.run())
            await self.harness.take_all()
            for step in history:
                await self.take(step)
                if isinstance(step, Restart):
                    self.harness.coordinator.close()
                    await run
                    self.harness = self._open()
                    self.log.lead()
                    run = tasks.create_task(self.harness.coordinator.run())
                    await self.harness.take_all()
                await self.settle()
                self.check()
            self.harness.coordinator.close()

    async def settle(self) -> None:
        """A refused write causes a reload."""
        self.log.refusal = None
        for _ in range(5):
            await asyncio.sleep(0)
        if self.harness.coordinator.statistics().loading:
            self.clock.advance_ms(100)
            await self.harness.loaded()

    def check(self) -> None:
        assert not [line for line in self.harness.reports if "unexpected error" in line], (
            self.harness.reports
        )
        live, stored = self.harness.state, replay_log(self.log)
        assert live.snapshot() == stored.snapshot()
        shard = self.harness.coordinator.find_shard(0)
        assert shard is not None
        assert shard.groups_with_timers() <= set(live.groups)
        settled = _settled(live)
        assert settled == {name: stored.describe(name) for name in settled}

    async def take(self, step: object) -> None:
        table = self.log.tables[0]
        table.now_ms = self.clock.wall_ms()
        match step:
            case Refuse():
                self.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
                await self.take(CommitSome("a", [(PARTITIONS[0], 1)], None, False))
                await self.take(LeaveStep("b"))
            case Compact(is_all):
                if is_all:
                    table.roll()
                before = replay_log(self.log).snapshot()
                table.compact()
                assert replay_log(self.log).snapshot() == before
            case Wait(duration_ms):
                self.clock.advance_ms(duration_ms)
            case DeleteTopic(topic):
                self.harness.coordinator.on_topics_deleted([topic])
            case CommitInTransaction(group, producer, offsets, as_member):
                member, generation = self.classic.get(group, ("", -1)) if as_member else ("", -1)
                commits = [commit_of(tp, offset) for tp, offset in offsets]
                await self.harness.commit_in_transaction(
                    *commits, producer=producer, group=group, member=member, generation=generation
                )
            case EndTransaction(producer, commit):
                await self.harness.end_transaction(producer, commit=commit)
            case _:
                await self.ask(step)

    async def ask(self, step: object) -> None:
        coordinator = self.harness.coordinator
        match step:
            case CommitSome(group, offsets, expires_after_ms, as_member):
                expires = expires_after_ms and self.clock.wall_ms() + expires_after_ms
                member, generation = self.classic.get(group, ("", -1)) if as_member else ("", -1)
                commits = [commit_of(tp, offset, expires_ms=expires) for tp, offset in offsets]
                await self.harness.commit(
                    *commits, group=group, member=member, generation=generation
                )
            case JoinStep(group, topics, and_sync):
                member_id = self.classic.get(group, ("", -1))[0]
                joined = await self._soon(
                    coordinator.join(join_request(group, *topics, member=member_id))
                )
                if joined is not None:
                    self.classic[group] = joined.member, joined.generation
                if and_sync:
                    await self.ask(SyncStep(group))
            case SyncStep(group):
                member, generation = self.classic.get(group, ("nobody", 1))
                await self._soon(
                    coordinator.sync(
                        SyncGroup(
                            group=group,
                            member=member,
                            instance=None,
                            generation=generation,
                            protocol_type=None,
                            protocol=None,
                            assignments={member: b"\0\0\0\0\0\0\xff\xff\xff\xff"},
                        )
                    )
                )
            case Beat(group, True):
                await self._beat(group)
            case Beat(group, False):
                member, generation = self.classic.get(group, ("nobody", 1))
                await coordinator.heartbeat(
                    Heartbeat(group=group, member=member, instance=None, generation=generation)
                )
            case LeaveStep(group):
                await self._leave(group)
            case DeleteOffsets(group, wanted):
                await coordinator.delete_offsets(group, wanted)
            case DeleteGroup(group):
                await coordinator.delete_group(group)

    async def _beat(self, group: str) -> None:
        self.names += group not in self.modern
        member, epoch = self.modern.get(group, (f"member-{self.names}", JOIN_EPOCH))
        is_new = epoch == JOIN_EPOCH
        reply = await self.harness.coordinator.consumer_heartbeat(
            ConsumerHeartbeat(
                group=group,
                member=member,
                member_epoch=epoch,
                client_id="c",
                client_host="h",
                rebalance_timeout_ms=60_000 if is_new else None,
                topics=("orders",) if is_new else None,
                owned=() if is_new else None,
            )
        )
        if reply.error is ErrorCode.NONE:
            self.modern[group] = member, reply.member_epoch
        else:
            self.modern.pop(group, None)

    async def _leave(self, group: str) -> None:
        member, _ = self.classic.pop(group, ("nobody", -1))
        await self.harness.coordinator.leave(group, [LeavingMember(member, None)])
        member, _ = self.modern.pop(group, ("nobody", 0))
        await self.harness.coordinator.consumer_heartbeat(
            ConsumerHeartbeat(
                group=group,
                member=member,
                member_epoch=LEAVE_EPOCH,
                client_id="c",
                client_host="h",
            )
        )

    async def _soon(self, call: Coroutine[Any, Any, Answer]) -> Answer | None:
        """The response, unless it waits for another member."""
        task = asyncio.ensure_future(call)
        for _ in range(5):
            await asyncio.sleep(0)
        if task.done():
            return task.result()
        task.cancel()
        return None


def _settled(state: GroupShardState) -> dict[str, object]:
    """Descriptions of groups that are not rebalancing."""
    return {
        name: state.describe(name)
        for name, group in state.groups.items()
        if isinstance(group, ClassicGroupState)
        and group.state in (ClassicState.STABLE, ClassicState.EMPTY)
        and group.stored is not None
        and not group.pending
    }


@settings(
    max_examples=scaled(test=60, verify=1_000, release=20_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(histories)
def test_state_log_and_compacted_log_agree_after_every_step(
    history: list[tuple[object, ...]],
) -> None:
    asyncio.run(Life().live(history))
