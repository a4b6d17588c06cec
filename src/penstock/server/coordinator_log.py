"""The `CoordinatorLog` of a coordinator: its internal topic on this broker's replicas. Stateless.

Appends take the path of every other produce, with acks=all.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence

from penstock.config.effective_config import SettingSource
from penstock.controller.interface import ApiError, CreatableTopic, CreatesTopics
from penstock.coordinators.runtime.dependencies import (
    NOT_WRITTEN,
    Append,
    Done,
    LogChunk,
    LogEnds,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import Offset, TopicPartition
from penstock.model.slices import FileSlice
from penstock.purgatory.delayed_operations import PurgatoryFull
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.partition import Partition, PartitionLeadership
from penstock.replication.storage_errors import as_refusal
from penstock.server.context import BrokerContext
from penstock.storage.engine import AppendOrigin
from penstock.storage.errors import StorageError

CREATION_TIMEOUT_MS = 30_000
Pread = Callable[[int, int, int], bytes]

_ALL_IN_SYNC = -1
_NO_LOG = LogEnds(0, 0, 0)


class ReplicatedCoordinatorLog:
    """A `CoordinatorLog`. Owned by the event loop."""

    def __init__(
        self,
        topic: str,
        *,
        replication_factor: str,  # the name of its setting
        administration: CreatesTopics,
        context: BrokerContext,
        pread: Pread = os.pread,
    ) -> None:
        self._topic = topic
        self._replication_factor = replication_factor
        self._tps: dict[int, TopicPartition] = {}
        self._replicas = context.replicas
        self._metadata = context.metadata
        self._administration = administration
        self._timers = context.timers
        self._config = context.config
        self._logger = context.get_logger("server")
        self._pread = pread
        self._creation = asyncio.Lock()

    # -- the topic -------------------------------------------------------------------------

    def partition_count(self) -> int | None:
        topic = self._metadata.find_topic(self._topic)
        return None if topic is None else len(topic.partitions)

    async def ensure_topic(self) -> ErrorCode:
        async with self._creation:
            if self.partition_count() is None:
                await self._create_topic()
        is_there = self.partition_count() is not None
        return ErrorCode.NONE if is_there else ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def _create_topic(self) -> None:
        """The controller fills in the number of partitions and the configs."""
        topic = CreatableTopic(
            name=self._topic, replication_factor=self._choose_replication_factor()
        )
        (answer,) = await self._administration.create_topics(
            [topic], validate_only=False, timeout_ms=CREATION_TIMEOUT_MS
        )
        if isinstance(answer, ApiError) and answer.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            self._logger.warning(
                "topic_not_created", f"could not create {self._topic}: {answer.message}"
            )

    def _choose_replication_factor(self) -> int:
        """The configured factor; the default is limited to the number of brokers."""
        wanted = self._config().get_effective(self._replication_factor)
        assert isinstance(wanted.value, int)
        if wanted.source is not SettingSource.DEFAULT:
            return wanted.value
        return max(1, min(wanted.value, len(self._metadata.brokers)))

    # -- a partition -----------------------------------------------------------------------

    def find_leadership(self, partition: int) -> PartitionLeadership | None:
        replica = self._find(partition)
        return None if replica is None else replica.leadership

    def ends(self, partition: int) -> LogEnds:
        replica = self._find(partition)
        if replica is None:
            return _NO_LOG
        return LogEnds(replica.log_start_offset, replica.high_watermark, replica.log_end_offset)

    def max_batch_bytes(self, partition: int) -> int:
        config = self._replicas.get(self._tp(partition)).log.config
        return min(config.max_message_bytes, config.segment_bytes)

    async def read(self, partition: int, start: int, max_bytes: int) -> LogChunk:
        """Read off the event loop, because the files may not be in the page cache."""
        log = self._replicas.get(self._tp(partition)).log
        try:
            read = log.read(
                Offset(start), below=log.log_end_offset, max_bytes=max_bytes, at_least_one=True
            )
        except StorageError as error:
            raise as_refusal(error) from error
        try:
            data = await asyncio.to_thread(read_slices, self._pread, read.slices)
        except OSError as error:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            read.lease.release()
        return LogChunk(data, read.end_offset)

    def append(
        self, partition: int, batches: Sequence[bytearray], *, timeout_ms: int, done: Done
    ) -> Append:
        appending = _Appending(done)
        tp, before = self._tp(partition), self.ends(partition).end
        self._replicas.append(
            [(tp, memoryview(batch)) for batch in batches],
            acks=_ALL_IN_SYNC,
            timeout_ms=timeout_ms,
            origin=AppendOrigin.COORDINATOR,
            done=appending.on_results,
        )
        return appending.result(before)

    def when_committed(self, partition: int, offset: int, *, timeout_ms: int, done: Done) -> None:
        replica = self._find(partition)
        if replica is None or replica.leadership is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        operation = _UntilCommitted(replica, replica.leadership, offset, done)
        deadline_ms = self._timers.now_ms() + timeout_ms
        try:
            self._replicas.fetch_purgatory.try_complete_else_watch(
                operation, (replica.tp,), deadline_ms
            )
        except PurgatoryFull:
            done(ErrorCode.REQUEST_TIMED_OUT)

    def _find(self, partition: int) -> Partition | None:
        return self._replicas.find(self._tp(partition))

    def _tp(self, partition: int) -> TopicPartition:
        tp = self._tps.get(partition)
        if tp is None:
            tp = self._tps[partition] = TopicPartition(self._topic, partition)
        return tp


class _Appending:
    """Separates results that are available at once from those that arrive later."""

    def __init__(self, done: Done) -> None:
        self._done = done
        self._is_returned = False
        self._results: list[PartitionAppended] | None = None

    def on_results(self, results: list[PartitionAppended]) -> None:
        self._results = results
        if self._is_returned:
            self._done(_worst(results).code)

    def result(self, end_before: int) -> Append:
        self._is_returned = True
        if self._results is None:
            return Append(end_before, None)
        worst = _worst(self._results)
        is_written = all(result.base_offset >= 0 for result in self._results)
        return Append(end_before if is_written else NOT_WRITTEN, worst.code)


class _UntilCommitted:
    """A delayed operation: all below an offset is committed, or this leadership has ended."""

    def __init__(
        self, partition: Partition, leadership: PartitionLeadership, offset: int, done: Done
    ) -> None:
        self._partition = partition
        self._leadership = leadership
        self._offset = offset
        self._done = done

    def is_satisfied(self) -> bool:
        is_committed = self._partition.high_watermark >= self._offset
        return is_committed or self._leadership.ended is not None

    def complete(self) -> None:
        self._done(self._leadership.ended or ErrorCode.NONE)

    def expire(self) -> None:
        self._done(ErrorCode.REQUEST_TIMED_OUT)


def _worst(results: Sequence[PartitionAppended]) -> PartitionAppended:
    return next((result for result in results if result.code is not ErrorCode.NONE), results[0])


def read_slices(pread: Pread, slices: Sequence[FileSlice]) -> bytes:
    return b"".join(data for file_slice in slices for data in _read_slice(pread, file_slice))


def _read_slice(pread: Pread, piece: FileSlice) -> Iterator[bytes]:
    position, left = piece.position, piece.length
    while left:
        data = pread(piece.fd, left, position)
        if not data:
            raise OSError(f"the file ends {left} bytes early, at {position}")
        yield data
        position += len(data)
        left -= len(data)
