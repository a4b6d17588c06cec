"""A coordinator's topic as the coordinator sees it, on this broker's replicas. Keeps nothing.

Adapter of `state_topics.StateLog`: appends go the way of every other write, with acks of all in
sync.
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
    """A `state_topics.StateLog`. Owned by the event loop."""

    def __init__(
        self,
        topic: str,
        *,
        replication_factor: str,  # the setting that says it
        administration: CreatesTopics,
        context: BrokerContext,
        pread: Pread = os.pread,
    ) -> None:
        self._topic = topic
        self._replication_factor = replication_factor
        self._names: dict[int, TopicPartition] = {}
        self._replicas = context.replicas
        self._metadata = context.metadata
        self._administration = administration
        self._timers = context.timers
        self._config = context.config
        self._report = context.report
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
        """Its number of partitions and its settings are the controller's to fill in."""
        topic = CreatableTopic(
            name=self._topic, replication_factor=self._choose_replication_factor()
        )
        (answer,) = await self._administration.create_topics(
            [topic], validate_only=False, timeout_ms=CREATION_TIMEOUT_MS
        )
        if isinstance(answer, ApiError) and answer.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            self._report(f"{self._topic} could not be created: {answer.message}")

    def _choose_replication_factor(self) -> int:
        """As it was asked for; where nobody said how many, no more than there are brokers."""
        wanted = self._config().get_effective(self._replication_factor)
        assert isinstance(wanted.value, int)
        if wanted.source is not SettingSource.DEFAULT:
            return wanted.value
        return max(1, min(wanted.value, len(self._metadata.brokers)))

    # -- a partition -----------------------------------------------------------------------

    def find_leadership(self, partition: int) -> PartitionLeadership | None:
        found = self._find(partition)
        return None if found is None else found.leadership

    def ends(self, partition: int) -> LogEnds:
        found = self._find(partition)
        if found is None:
            return _NO_LOG
        return LogEnds(found.log_start_offset, found.high_watermark, found.log_end_offset)

    def max_batch_bytes(self, partition: int) -> int:
        config = self._replicas.get(self._name(partition)).log.config
        return min(config.max_message_bytes, config.segment_bytes)

    async def read(self, partition: int, start: int, max_bytes: int) -> LogChunk:
        """Off the loop: the files may be cold."""
        log = self._replicas.get(self._name(partition)).log
        try:
            read = log.read(
                Offset(start), below=log.log_end_offset, max_bytes=max_bytes, at_least_one=True
            )
        except StorageError as error:
            raise as_refusal(error) from error
        try:
            data = await asyncio.to_thread(_read_slices, self._pread, read.slices)
        except OSError as error:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            read.lease.release()
        return LogChunk(data, read.end_offset)

    def append(
        self, partition: int, batches: Sequence[bytearray], *, timeout_ms: int, done: Done
    ) -> Append:
        appending = _Appending(done)
        name, before = self._name(partition), self.ends(partition).end
        self._replicas.append(
            [(name, memoryview(batch)) for batch in batches],
            acks=_ALL_IN_SYNC,
            timeout_ms=timeout_ms,
            origin=AppendOrigin.COORDINATOR,
            done=appending.on_answers,
        )
        return appending.outcome(before)

    def when_committed(self, partition: int, offset: int, *, timeout_ms: int, done: Done) -> None:
        found = self._find(partition)
        if found is None or found.leadership is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        waiting = _UntilCommitted(found, found.leadership, offset, done)
        deadline_ms = self._timers.now_ms() + timeout_ms
        try:
            self._replicas.fetch_purgatory.try_complete_else_watch(
                waiting, (found.tp,), deadline_ms
            )
        except PurgatoryFull:
            done(ErrorCode.REQUEST_TIMED_OUT)

    def _find(self, partition: int) -> Partition | None:
        return self._replicas.find(self._name(partition))

    def _name(self, partition: int) -> TopicPartition:
        name = self._names.get(partition)
        if name is None:
            name = self._names[partition] = TopicPartition(self._topic, partition)
        return name


class _Appending:
    """Tells what was known at once from what came later."""

    def __init__(self, done: Done) -> None:
        self._done = done
        self._is_returned = False
        self._answers: list[PartitionAppended] | None = None

    def on_answers(self, answers: list[PartitionAppended]) -> None:
        self._answers = answers
        if self._is_returned:
            self._done(_worst(answers).code)

    def outcome(self, end_before: int) -> Append:
        self._is_returned = True
        if self._answers is None:
            return Append(end_before, None)
        worst = _worst(self._answers)
        is_written = all(each.base_offset >= 0 for each in self._answers)
        return Append(end_before if is_written else NOT_WRITTEN, worst.code)


class _UntilCommitted:
    """A `waiting.Operation`: everything below an offset is committed, or never will be for us."""

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


def _worst(answers: Sequence[PartitionAppended]) -> PartitionAppended:
    return next((each for each in answers if each.code is not ErrorCode.NONE), answers[0])


def _read_slices(pread: Pread, slices: Sequence[FileSlice]) -> bytes:
    return b"".join(part for each in slices for part in _read_slice(pread, each))


def _read_slice(pread: Pread, piece: FileSlice) -> Iterator[bytes]:
    position, left = piece.position, piece.length
    while left:
        data = pread(piece.fd, left, position)
        if not data:
            raise OSError(f"the file ends {left} bytes early, at {position}")
        yield data
        position += len(data)
        left -= len(data)
