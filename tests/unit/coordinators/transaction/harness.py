"""A transaction coordinator over real logs on a simulated disk, with timers that tests advance.

The partitions of transactions are lists of the markers that they received. They accept a marker at
once, unless a test holds it back or makes them refuse it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple

from tests.unit.coordinators.group.coordinator_harness import TableLog
from tests.unit.storage.compacted_logs import iter_batches

from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.coordinator import TransactionCoordinator
from penstock.coordinators.transaction.dependencies import MarkerCallback, TxnMarkerEntry
from penstock.coordinators.transaction.loader import TransactionsLoader
from penstock.coordinators.transaction.records import Transaction, TransactionRecord
from penstock.coordinators.transaction.requests import (
    NO_PRODUCER,
    EndTxnReply,
    InitProducerId,
    InitProducerIdReply,
    ProducerIdAndEpoch,
)
from penstock.coordinators.transaction.shard import TransactionShard
from penstock.coordinators.transaction.state import TransactionShardState
from penstock.logs.event_logger import message_logger
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.testing.manual_clock import ManualClock

NONE = ErrorCode.NONE
TX = "payments"
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
U0 = TopicPartition("users", 0)
OLD_END, NEW_END = 4, 5  # versions of EndTxn
OLD_ADD, NEW_ADD = 3, 4  # versions of AddPartitionsToTxn
FIRST_ID = 1000


class FakeProducerIds:
    """Allocates producer ids in sequence."""

    def __init__(self) -> None:
        self.next = FIRST_ID
        self.refusal: ErrorCode | None = None

    async def next_producer_id(self) -> int:
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise Refusal(self.refusal, "no ids today")
        self.next += 1
        return self.next - 1


class WrittenMarker(NamedTuple):
    """A marker in a partition."""

    producer: ProducerIdAndEpoch
    commit: bool
    coordinator_epoch: int


class FakePartitions:
    """A MarkerChannel and PartitionLookup."""

    def __init__(self) -> None:
        self.markers: dict[TopicPartition, list[WrittenMarker]] = {T0: [], T1: [], U0: []}
        self.refusals: dict[TopicPartition, ErrorCode] = {}
        self.is_held = False
        self.sent: list[TxnMarkerEntry] = []
        self._held: list[Callable[[], None]] = []

    def has_partition(self, partition: TopicPartition) -> bool:
        return partition in self.markers

    def send(self, markers: Sequence[TxnMarkerEntry], done: MarkerCallback) -> None:
        self.sent += markers
        for marker in markers:
            self._held.append(partial(self._take, marker, done))
        if not self.is_held:
            self.let_go()

    def let_go(self) -> None:
        held, self._held = self._held, []
        for call in held:
            call()

    def _take(self, marker: TxnMarkerEntry, done: MarkerCallback) -> None:
        done(
            marker,
            {partition: self._write_to(partition, marker) for partition in marker.partitions},
        )

    def _write_to(self, partition: TopicPartition, marker: TxnMarkerEntry) -> ErrorCode:
        if partition in self.refusals:
            return self.refusals[partition]
        if partition not in self.markers:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        who = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
        self.markers[partition].append(WrittenMarker(who, marker.commit, marker.coordinator_epoch))
        return NONE


class TransactionCoordinatorHarness:
    """One incarnation of a coordinator, over a log that may be older."""

    def __init__(
        self,
        log: TableLog | None = None,
        *,
        config: TransactionConfig | None = None,
        clock: ManualClock | None = None,
        partitions: FakePartitions | None = None,
        ids: FakeProducerIds | None = None,
    ) -> None:
        self.log = log or TableLog()
        self.clock = clock or ManualClock()
        self.partitions = partitions or FakePartitions()
        self.ids = ids or FakeProducerIds()
        self.config = config or TransactionConfig()
        self.log.wall_ms = self.clock.wall_ms
        self.reports: list[str] = []
        self.coordinator = TransactionCoordinator(
            log=self.log,
            partitions=self.partitions,
            producer_ids=self.ids,
            markers=self.partitions,
            timers=self.clock,
            wall_ms=self.clock.wall_ms,
            config=lambda: self.config,
            logger=message_logger(self.reports.append),
        )

    @asynccontextmanager
    async def running(
        self, leader_epoch: int = 0
    ) -> AsyncIterator["TransactionCoordinatorHarness"]:
        """Run the coordinator with every led partition taken and loaded."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.coordinator.run())
            try:
                await self.take_all(leader_epoch)
                yield self
            finally:
                self.coordinator.close()

    async def take_all(self, leader_epoch: int = 0) -> None:
        for partition, leadership in enumerate(self.log.leaderships):
            if leadership is not None:
                self.coordinator.take_partition(partition, leader_epoch)
        await self.loaded()

    async def loaded(self) -> None:
        for _ in range(10_000):
            if not self.coordinator.statistics().loading:
                return
            await asyncio.sleep(0)
        raise AssertionError("a shard never finishes loading")

    async def turns(self) -> None:
        """Let the event loop run what is due, including markers and their completion."""
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def shard(self) -> TransactionShard:
        """The shard of the only partition."""
        shard = self.coordinator.find_shard(0)
        assert shard is not None
        return shard

    def transaction(self, name: str = TX) -> Transaction:
        return self.shard.state.transactions[name]

    # -- shortcuts -------------------------------------------------------------------------

    async def init(
        self,
        name: str = TX,
        *,
        claimed: ProducerIdAndEpoch | None = None,
        timeout_ms: int = 60_000,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> InitProducerIdReply:
        had = NO_PRODUCER if claimed is None else claimed
        return await self.coordinator.init_producer_id(
            InitProducerId(
                transactional_id=name,
                timeout_ms=timeout_ms,
                two_phase=two_phase,
                keep_prepared=keep_prepared,
                producer_id=had.id,
                producer_epoch=had.epoch,
            )
        )

    async def producer(self, name: str = TX, **how: Any) -> ProducerIdAndEpoch:
        reply = await self.init(name, **how)
        assert reply.code is NONE, reply
        return ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)

    async def add(
        self,
        who: ProducerIdAndEpoch,
        *partitions: TopicPartition,
        name: str = TX,
        version: int = NEW_ADD,
        connection: int | None = None,
    ) -> ErrorCode:
        return await self.coordinator.add_partitions(
            name, who.id, who.epoch, partitions, version=version, connection=connection
        )

    async def end(
        self,
        who: ProducerIdAndEpoch,
        *,
        commit: bool = True,
        name: str = TX,
        version: int = NEW_END,
        connection: int | None = None,
    ) -> EndTxnReply:
        return await self.coordinator.end(
            name, who.id, who.epoch, commit=commit, version=version, connection=connection
        )


def run_scenario(
    scenario: Callable[[TransactionCoordinatorHarness], Coroutine[Any, Any, None]],
    harness: TransactionCoordinatorHarness | None = None,
) -> None:
    """Run a scenario with a running coordinator."""

    async def run() -> None:
        async with (harness or TransactionCoordinatorHarness()).running() as running:
            await scenario(running)

    asyncio.run(run())


def replay_log(log: TableLog, partition: int = 0) -> TransactionShardState:
    """Return the state after a replay of the log."""
    state = TransactionShardState()
    for _, batch in iter_batches(log.tables[partition].log):
        for record in _records_of(batch):
            state.replay(record)
    return state


# Tests that check after every step decode the same batches again.
@lru_cache(maxsize=1 << 12)
def _records_of(batch: bytes) -> tuple[TransactionRecord, ...]:
    reports: list[str] = []
    read = TransactionsLoader(reports.append).read(batch)
    records = tuple(record for record in read if record is not None)
    assert not reports
    return records
