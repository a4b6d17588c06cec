"""Reads partitions of half topics on this broker's replicas, as far as they are stable."""

import asyncio
import os

from penstock.inter_broker.half_reading import AbortedRange, SourceChunk
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import Offset, TopicPartition
from penstock.purgatory.delayed_operations import PurgatoryFull
from penstock.replication.partition import Partition
from penstock.replication.storage_errors import as_refusal
from penstock.server.context import BrokerContext
from penstock.server.coordinator_log import read_slices
from penstock.storage.errors import StorageError

CHUNK_BYTES = 256 * 1024  # or one batch
WAIT_MS = 30_000  # then whoever waits looks whether it is still wanted


class ReplicaSourceLog:
    """A `SourceLog`. Owned by the event loop."""

    def __init__(self, context: BrokerContext) -> None:
        self._replicas = context.replicas
        self._timers = context.timers
        self._waits: set[asyncio.Future[None]] = set()
        self._is_closed = False

    async def read(self, tp: TopicPartition, start: int) -> SourceChunk | None:
        """Off the event loop, because the files may not be in the page cache."""
        partition = self._get_led(tp)
        log = partition.log
        start = max(start, log.log_start_offset)
        below = log.last_stable_offset
        if start >= below:
            return None
        try:
            read = log.read(Offset(start), below=below, max_bytes=CHUNK_BYTES, at_least_one=True)
        except StorageError as error:
            raise as_refusal(error) from error
        try:
            data = await asyncio.to_thread(read_slices, os.pread, read.slices)
        except OSError as error:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            read.lease.release()
        end_offset = max(read.end_offset, start + 1) if data else below
        aborted = [
            AbortedRange(txn.producer_id, txn.first_offset, txn.last_offset)
            for txn in log.aborted(Offset(start), Offset(end_offset))
        ]
        return SourceChunk(data, end_offset, log.log_start_offset, aborted)

    async def wait(self, tp: TopicPartition, offset: int) -> None:
        partition = self._get_led(tp)
        if self._is_closed:
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits.add(over)
        operation = _UntilStable(partition, offset, over)
        deadline_ms = self._timers.now_ms() + WAIT_MS
        try:
            watched = self._replicas.fetch_purgatory.try_complete_else_watch(
                operation, (tp,), deadline_ms
            )
        except PurgatoryFull as error:
            self._waits.discard(over)
            raise Refusal(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
        try:
            await over
        finally:
            self._waits.discard(over)
            if watched.ending is None:
                self._replicas.fetch_purgatory.cancel(watched)

    def close(self) -> None:
        self._is_closed = True
        for over in self._waits:
            if not over.done():
                over.set_result(None)

    def _get_led(self, tp: TopicPartition) -> Partition:
        partition = self._replicas.find(tp)
        if partition is None or not partition.is_leader:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} is not led here")
        return partition


class _UntilStable:
    """A delayed operation: something can be read at an offset, or this leadership has ended."""

    def __init__(self, partition: Partition, offset: int, over: "asyncio.Future[None]") -> None:
        self._partition = partition
        self._leadership = partition.leadership
        self._offset = offset
        self._over = over

    def is_satisfied(self) -> bool:
        leadership = self._leadership
        is_stable = self._partition.last_stable_offset > self._offset
        return is_stable or leadership is None or leadership.ended is not None

    def complete(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def expire(self) -> None:
        self.complete()
