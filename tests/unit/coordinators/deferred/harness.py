"""A coordinator of deferred messages over real logs on a simulated disk, with timers that tests
advance.

The targets are lists of what they took, with Kafka's rule for idempotent producers. They take a
batch at once, unless a test makes them refuse it or lose the answer.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from tests.unit.coordinators.deferred.runs import MemoryRuns
from tests.unit.coordinators.group.coordinator_harness import TableLog
from tests.unit.coordinators.transaction.harness import FakeProducerIds

from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.config import DeferredConfig
from penstock.coordinators.deferred.coordinator import DeferredCoordinator
from penstock.coordinators.deferred.dependencies import DeliveryReply
from penstock.coordinators.deferred.half_values import ReadUpTo
from penstock.coordinators.deferred.shard import DeferredShard
from penstock.coordinators.deferred.values import DeferredMessage, DelayKey, Target
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.logs.event_logger import message_logger
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicId
from penstock.protocol.batch import read_header
from penstock.protocol.records import iter_records
from penstock.testing.manual_clock import ManualClock

TOPIC = TopicId(UUID(int=1))
FIRST, SECOND = Target(TOPIC, 0), Target(TOPIC, 1)


class FakeTargets:
    """A DeliveryChannel."""

    def __init__(self) -> None:
        self.values: dict[Target, list[bytes | None]] = {
            target: [] for target in (FIRST, SECOND, CHECKS, EXPIRED)
        }
        self.refusals: dict[Target, ErrorCode] = {}
        self.loses_answers = False
        self.attempts = 0
        self.error: Exception | None = None
        self._next_sequence: dict[tuple[Target, int], int] = {}
        self._sequence: dict[tuple[Target, int], int] = {}  # of the last batch

    async def send(self, target: Target, batch: bytearray) -> DeliveryReply:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if target in self.refusals:
            return DeliveryReply(self.refusals[target])
        reply = self._append(target, batch)
        return DeliveryReply(ErrorCode.REQUEST_TIMED_OUT) if self.loses_answers else reply

    def _append(self, target: Target, batch: bytearray) -> DeliveryReply:
        header = read_header(batch)
        producer = target, header.producer_id
        if self._sequence.get(producer) == header.base_sequence:
            base_offset = len(self.values[target]) - header.record_count
            return DeliveryReply(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset)
        if self._next_sequence.get(producer, 0) != header.base_sequence:
            return DeliveryReply(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self._sequence[producer] = header.base_sequence
        self._next_sequence[producer] = header.base_sequence + header.record_count
        base_offset = len(self.values[target])
        self.values[target] += [record.value for record in iter_records(batch)]
        return DeliveryReply(ErrorCode.NONE, base_offset)


CHECKS = Target(TopicId(UUID(int=2)), 0)
EXPIRED = Target(TopicId(UUID(int=3)), 0)


class FakeHalfCluster:
    """A HalfCluster with one group."""

    def __init__(self) -> None:
        self.consumed = -1  # offsets of the checks' topic below this one, by the group
        self.ends: list[ReadUpTo] = []
        self.has_checks_topic = True
        self.refusal: Refusal | None = None

    def find_partition(self, topic: str, key: str) -> Target | None:
        return CHECKS if self.has_checks_topic else None

    def find_expired(self, topic: str, target: Target) -> Target | None:
        return EXPIRED

    async def committed(self, group: str, checks: Collection[Target]) -> Mapping[Target, int]:
        if self.refusal is not None:
            raise self.refusal
        return {CHECKS: self.consumed} if self.consumed >= 0 else {}

    async def decision_ends(self, group: str) -> Collection[ReadUpTo]:
        return self.ends


class DeferredCoordinatorHarness:
    """One incarnation of a coordinator, over a log that may be older."""

    def __init__(
        self,
        log: TableLog | None = None,
        *,
        clock: ManualClock | None = None,
        targets: FakeTargets | None = None,
        config: DeferredConfig | None = None,
        cluster: "FakeHalfCluster | None" = None,
    ) -> None:
        self.log = log or TableLog()
        self.clock = clock or ManualClock()
        self.targets = targets or FakeTargets()
        self.runs: list[MemoryRuns] = []  # of every shard that was loaded
        self.cluster = cluster or FakeHalfCluster()
        self.reports: list[str] = []
        self.log.wall_ms = self.clock.wall_ms
        self.coordinator = DeferredCoordinator(
            log=self.log,
            channel=self.targets,
            cluster=self.cluster,
            producer_ids=FakeProducerIds(),
            new_runs=self._new_runs,
            timers=self.clock,
            wall_ms=self.clock.wall_ms,
            config=lambda: config or DeferredConfig(),
            logger=message_logger(self.reports.append),
        )

    def _new_runs(self, partition: int) -> MemoryRuns:
        self.runs.append(MemoryRuns())
        return self.runs[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator["DeferredCoordinatorHarness"]:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.coordinator.run())
            for partition in range(len(self.log.leaderships)):
                self.coordinator.take_partition(partition, 0)
            await self.settle()
            assert not self.coordinator.is_loading
            try:
                yield self
            finally:
                self.coordinator.close()

    async def settle(self) -> None:
        """Let everything run that waits neither for the clock nor for a test."""
        for _ in range(200):
            await asyncio.sleep(0)

    async def advance_ms(self, duration_ms: int) -> None:
        self.clock.advance_ms(duration_ms)
        await self.settle()

    @property
    def shard(self) -> DeferredShard:
        shard = self.coordinator.find_shard(0)
        assert shard is not None
        return shard

    def message(
        self,
        delay_ms: int,
        value: bytes,
        *,
        target: Target = FIRST,
        delay_id: str | None = None,
    ) -> DeferredMessage:
        now_ms = self.clock.wall_ms()
        return DeferredMessage(now_ms + delay_ms, target, delay_id, now_ms, b"key", value, ())

    async def defer(self, *messages: DeferredMessage) -> None:
        reply = await self.coordinator.defer(0, messages, None)
        assert reply.code is ErrorCode.NONE, reply

    async def cancel(self, delay_key: DelayKey) -> CancelReply:
        replies = await self.coordinator.cancel(0, [delay_key])
        assert not isinstance(replies, Failed), replies
        return replies[0]


def run_scenario(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(run())
