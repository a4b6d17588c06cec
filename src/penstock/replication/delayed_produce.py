"""A produce request whose writes are in the log but do not satisfy its acks yet.

It responds once: when every write has succeeded or can no longer succeed, or at the deadline.
Invariant: no write gets NONE before its leadership has reached the offset that it needs.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TimestampMs
from penstock.replication.partition import Partition, PartitionLeadership

RecordErrors = tuple[tuple[int, str], ...]  # index in the batch, message


class PartitionAppended(NamedTuple):
    """One partition of a produce response; offsets and times are -1 where unknown."""

    code: ErrorCode
    base_offset: Offset
    log_append_time_ms: TimestampMs  # -1 unless the topic uses LogAppendTime
    log_start_offset: Offset
    message: str | None
    record_errors: RecordErrors = ()  # the records that the batch is refused for


Done = Callable[[list[PartitionAppended]], None]


class ProducePartitionStatus(NamedTuple):
    """The condition that one partition of the request waits for."""

    position: int  # of its result
    partition: Partition
    leadership: PartitionLeadership
    end_offset: Offset


class DelayedProduce:
    """A delayed operation."""

    __slots__ = ("_answers", "_done", "_for_all", "_writes")

    def __init__(
        self,
        answers: list[PartitionAppended],
        writes: list[ProducePartitionStatus],
        *,
        for_all: bool,
        done: Done,
    ) -> None:
        self._answers = answers  # as if every write succeeds
        self._writes = writes
        self._for_all = for_all  # wait for the high watermark, not for this broker's flush alone
        self._done = done

    def is_satisfied(self) -> bool:
        # A decided write stays decided, so it is looked at once: else a request of many partitions
        # would be walked through as a whole for every one of them.
        writes = self._writes
        while writes and (code := self._find_outcome(writes[-1])) is not None:
            self._settle(writes.pop(), code)
        return not writes

    def complete(self) -> None:
        self._done(self._answers)

    def expire(self) -> None:
        for write in self._writes:
            code = self._find_outcome(write)
            self._settle(write, ErrorCode.REQUEST_TIMED_OUT if code is None else code)
        self._done(self._answers)

    def _find_outcome(self, write: ProducePartitionStatus) -> ErrorCode | None:
        """None: undecided."""
        _, partition, leadership, end_offset = write
        offsets = partition.log if leadership.ended is None else leadership
        reached = offsets.high_watermark if self._for_all else offsets.durable_offset
        if reached >= end_offset:
            if self._for_all and partition.under_min_isr:
                return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            return ErrorCode.NONE
        return leadership.ended

    def _settle(self, write: ProducePartitionStatus, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self._answers[write.position] = self._answers[write.position]._replace(code=code)
