"""A group coordinator over real logs on a simulated disk, with timers that tests advance.

An append is committed at once, unless a test holds it back; a log can refuse writes and change its
leader. Logs compact as they do in a broker.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from tests.unit.storage.compacted_logs import Table, iter_batches

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.coordinator import GroupCoordinator
from penstock.coordinators.group.dependencies import TopicView
from penstock.coordinators.group.record_batches import Entry, read_batches
from penstock.coordinators.group.requests import (
    NO_GENERATION,
    UNKNOWN_MEMBER,
    CommitInTransaction,
    CommitOffsets,
    FetchedOffsets,
    FetchOffsets,
    JoinGroup,
    MemberProtocol,
    OffsetCommit,
    SyncGroup,
)
from penstock.coordinators.group.state import GroupShardState
from penstock.coordinators.runtime.dependencies import NOT_WRITTEN, Append, Done, LogChunk, LogEnds
from penstock.logs.event_logger import message_logger
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.markers import TransactionMarker
from penstock.storage.engine import AppendOrigin
from penstock.testing.manual_clock import ManualClock

START_MS = 1_700_000_000_000
GROUP = "billing"
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
U0 = TopicPartition("users", 0)
_NAMES = UUID(int=1)


class FixedTopics:
    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)

    def find(self, name: str) -> TopicView | None:
        if name not in self.counts:
            return None
        return TopicView(TopicId(uuid5(_NAMES, name)), self.counts[name])

    def all(self) -> Mapping[str, TopicView]:
        return {name: view for name in self.counts if (view := self.find(name)) is not None}

    def find_name(self, topic_id: TopicId) -> str | None:
        return next((count for count in self.counts if uuid5(_NAMES, count) == topic_id), None)


class PendingCommit(NamedTuple):
    partition: int
    offset: int
    done: Done


class FakeLeadership:
    """Identifies one leadership of a partition."""


class TableLog:
    """A CoordinatorLog whose partitions are tables of `tests.unit.storage`."""

    def __init__(self, partitions: int = 1, **config: object) -> None:
        self.tables = [Table(**config) for _ in range(partitions)]
        self.leaderships: list[FakeLeadership | None] = [
            FakeLeadership() for _ in range(partitions)
        ]
        self.exists = True
        self.is_held = False  # writes stay uncommitted until `commit`
        self.refusal: ErrorCode | None = None  # error of every append
        self.wall_ms: Callable[[], int] = lambda: START_MS
        self.appends = 0
        self.reads = 0
        self._waiting: list[PendingCommit] = []

    # -- for tests -------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit what is held back."""
        for table in self.tables:
            table.settle()
        self._answer(lambda item: self.ends(item.partition).committed >= item.offset, NONE)

    def time_out(self) -> None:
        """Fail every pending commit with REQUEST_TIMED_OUT."""
        self._answer(lambda item: True, ErrorCode.REQUEST_TIMED_OUT)

    def lose(self, partition: int = 0) -> None:
        self.leaderships[partition] = None
        self._answer(
            lambda pending: pending.partition == partition, ErrorCode.NOT_LEADER_OR_FOLLOWER
        )

    def lead(self, partition: int = 0) -> None:
        self.leaderships[partition] = FakeLeadership()

    def _answer(self, is_due: Callable[[PendingCommit], bool], code: ErrorCode) -> None:
        due = [call for call in self._waiting if is_due(call)]
        self._waiting = [call for call in self._waiting if call not in due]
        for pending in due:
            pending.done(code)

    def raw(self, partition: int = 0) -> bytes:
        return b"".join(content for _, content in iter_batches(self.tables[partition].log))

    # -- for the coordinator ---------------------------------------------------------------

    def partition_count(self) -> int | None:
        return len(self.tables) if self.exists else None

    async def ensure_topic(self) -> ErrorCode:
        self.exists = True
        return NONE

    def find_leadership(self, partition: int) -> FakeLeadership | None:
        return self.leaderships[partition]

    def ends(self, partition: int) -> LogEnds:
        log = self.tables[partition].log
        return LogEnds(log.log_start_offset, log.high_watermark, log.log_end_offset)

    def max_batch_bytes(self, partition: int) -> int:
        return self.tables[partition].config.max_message_bytes

    async def read(self, partition: int, start: int, max_bytes: int) -> LogChunk:
        self.reads += 1
        await asyncio.sleep(0)
        taken, end_offset = b"", start
        for header, content in iter_batches(self.tables[partition].log):
            if header.last_offset < start:
                continue
            if taken and len(taken) + len(content) > max_bytes:
                break
            taken, end_offset = taken + content, header.next_offset
        return LogChunk(taken, end_offset)

    def append(
        self, partition: int, batches: Sequence[bytearray], *, timeout_ms: int, done: Done
    ) -> Append:
        if self.refusal is not None:
            return Append(NOT_WRITTEN, self.refusal)
        table = self.tables[partition]
        table.now_ms = self.wall_ms()
        base_offset = table.log.log_end_offset
        for batch in batches:
            assert len(batch) <= self.max_batch_bytes(partition)
            table.log.append_as_leader(memoryview(batch), 0, AppendOrigin.COORDINATOR, table.now_ms)
        self.appends += 1
        if self.is_held:
            self._waiting.append(PendingCommit(partition, table.log.log_end_offset, done))
            return Append(base_offset, None)
        table.settle()
        return Append(base_offset, NONE)

    def when_committed(self, partition: int, offset: int, *, timeout_ms: int, done: Done) -> None:
        if self.ends(partition).committed >= offset:
            done(NONE)
        else:
            self._waiting.append(PendingCommit(partition, offset, done))


NONE = ErrorCode.NONE


class GroupCoordinatorHarness:
    """One incarnation of a coordinator, over a log that may be older."""

    def __init__(
        self,
        log: TableLog | None = None,
        *,
        config: GroupConfig | None = None,
        clock: ManualClock | None = None,
        topics: FixedTopics | None = None,
    ) -> None:
        self.log = log or TableLog()
        self.clock = clock or ManualClock()
        self.topics = topics or FixedTopics({"orders": 4, "users": 4})
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.log.wall_ms = self.clock.wall_ms
        self.reports: list[str] = []
        self.coordinator = self.make()

    def make(self) -> GroupCoordinator:
        return GroupCoordinator(**self.parts())

    def parts(self) -> dict[str, Any]:
        return {
            "log": self.log,
            "topics": self.topics,
            "timers": self.clock,
            "wall_ms": self.clock.wall_ms,
            "config": lambda: self.config,
            "logger": message_logger(self.reports.append),
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator["GroupCoordinatorHarness"]:
        """Run the coordinator with every led partition taken and loaded."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.coordinator.run())
            try:
                await self.take_all()
                yield self
            finally:
                self.coordinator.close()

    async def take_all(self) -> None:
        for partition, leadership in enumerate(self.log.leaderships):
            if leadership is not None:
                self.coordinator.take_partition(partition, 0)
        await self.loaded()

    async def loaded(self) -> None:
        for _ in range(10_000):
            if not self.coordinator.statistics().loading:
                return
            await asyncio.sleep(0)
        raise AssertionError("a shard never finishes loading")

    @property
    def state(self) -> GroupShardState:
        """The state of the only partition."""
        shard = self.coordinator.find_shard(0)
        assert shard is not None
        return shard.state

    # -- shortcuts -------------------------------------------------------------------------

    async def commit(
        self, *commits: OffsetCommit, group: str = GROUP, member: str = "", generation: int = -1
    ) -> list[ErrorCode]:
        """Return one code per commit, in order."""
        request = commit_request(*commits, group=group, member=member, generation=generation)
        codes = await self.coordinator.commit(request)
        return [codes[commit.tp] for commit in commits]

    async def commit_in_transaction(
        self,
        *commits: OffsetCommit,
        producer: int,
        epoch: int = 0,
        refusal: ErrorCode = ErrorCode.NONE,
        **more: Any,
    ) -> list[ErrorCode]:
        codes = await self.coordinator.commit_in_transaction(
            CommitInTransaction(
                producer_id=producer,
                producer_epoch=epoch,
                commit=commit_request(*commits, **more),
                find_refusal=lambda: refusal,
            )
        )
        return [codes[commit.tp] for commit in commits]

    async def end_transaction(
        self, producer: int, *, commit: bool, epoch: int = 0, partition: int = 0
    ) -> ErrorCode:
        marker = TransactionMarker(producer, epoch, commit, coordinator_epoch=0)
        return await self.coordinator.end_transaction(partition, marker)

    async def fetch_stable(self, *partitions: TopicPartition) -> FetchedOffsets:
        return await self.coordinator.fetch(
            FetchOffsets(
                group=GROUP,
                member=None,
                member_epoch=-1,
                partitions=partitions,
                require_stable=True,
            )
        )

    async def fetch(self, *partitions: TopicPartition, group: str = GROUP) -> list[int]:
        reply = await self.coordinator.fetch(
            FetchOffsets(group=group, member=None, member_epoch=-1, partitions=partitions)
        )
        assert reply.error is NONE, reply
        return [offset.offset for offset in reply.offsets]

    async def fetch_all(self, group: str = GROUP) -> dict[TopicPartition, int]:
        reply = await self.coordinator.fetch(
            FetchOffsets(group=group, member=None, member_epoch=-1, partitions=None)
        )
        assert reply.error is NONE, reply
        return {offset.tp: offset.offset for offset in reply.offsets}

    async def settle_member(self, group: str = GROUP, *topics: str) -> tuple[str, int]:
        """Let one member join and assign itself a topic; return its id and generation."""
        return await self.settle_member_for(10_000, group, *topics)

    async def settle_member_for(
        self, session_timeout_ms: int, group: str = GROUP, *topics: str
    ) -> tuple[str, int]:
        joined = await self.coordinator.join(
            join_request(
                group,
                *topics,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=max(session_timeout_ms, 60_000),
            )
        )
        assert joined.error is NONE, joined
        synced = await self.coordinator.sync(
            SyncGroup(
                group=group,
                member=joined.member,
                instance=None,
                generation=joined.generation,
                protocol_type=None,
                protocol=None,
                assignments={joined.member: b"all"},
            )
        )
        assert synced.error is NONE, synced
        return joined.member, joined.generation


def run_scenario(
    scenario: Callable[[GroupCoordinatorHarness], Coroutine[Any, Any, None]],
    harness: GroupCoordinatorHarness | None = None,
) -> GroupCoordinatorHarness:
    """Run a scenario with a running coordinator."""

    async def run_and_check() -> GroupCoordinatorHarness:
        here = harness or GroupCoordinatorHarness()
        try:
            async with here.running():
                await scenario(here)
        finally:
            assert not [line for line in here.reports if "unexpected error" in line], here.reports
        return here

    return asyncio.run(run_and_check())


def commit_of(
    partition: TopicPartition, offset: int, metadata: str = "", **more: Any
) -> OffsetCommit:
    return OffsetCommit(partition, offset, more.pop("leader_epoch", -1), metadata, **more)


def commit_request(
    *commits: OffsetCommit,
    group: str = GROUP,
    member: str = UNKNOWN_MEMBER,
    generation: int = NO_GENERATION,
    **more: Any,
) -> CommitOffsets:
    return CommitOffsets(
        group=group,
        member=member,
        instance=more.pop("instance", None),
        generation=generation,
        offsets=commits,
        **more,
    )


def join_request(group: str = GROUP, *topics: str, **more: Any) -> JoinGroup:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    metadata = b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"
    defaults: dict[str, Any] = {
        "member": UNKNOWN_MEMBER,
        "instance": None,
        "client_id": "client",
        "client_host": "host",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (MemberProtocol("range", metadata),),
        "requires_known_member": False,
    }
    return JoinGroup(group=group, **{**defaults, **more})


def replay_log(log: TableLog, partition: int = 0) -> GroupShardState:
    """Return the state after a replay of the log."""
    return replay_batches(content for _, content in iter_batches(log.tables[partition].log))


def replay_batches(batches: Iterable[bytes]) -> GroupShardState:
    state = GroupShardState(topics=FixedTopics({}), config=GroupConfig)
    for batch in batches:
        for entry in _entries_of(batch):
            state.load(entry)
    return state


# Tests that check after every step decode the same batches again.
@lru_cache(maxsize=1 << 12)
def _entries_of(batch: bytes) -> tuple[Entry, ...]:
    reports: list[str] = []
    entries = tuple(read_batches(batch, reports.append))
    assert not reports
    return entries
