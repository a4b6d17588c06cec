"""A produce request whose writes are in the log and not yet as safe as the client asked.

Answers once: when every write got through or cannot any more, or at the deadline. Invariant: no
write is answered with NONE before the offset it waits for has been reached under its leadership.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TimestampMs
from penstock.replication.partition import Partition, PartitionLeadership


class PartitionAppended(NamedTuple):
    """One partition's answer to a produce request; offsets and times are -1 where unknown."""

    code: ErrorCode
    base_offset: Offset
    log_append_time_ms: TimestampMs  # -1 unless the topic stamps it
    log_start_offset: Offset
    message: str | None


Done = Callable[[list[PartitionAppended]], None]


class ProducePartitionStatus(NamedTuple):
    """What one partition's share of the request waits for."""

    place: int  # of its answer
    partition: Partition
    leadership: PartitionLeadership
    end_offset: Offset


class DelayedProduce:
    """A `waiting.Operation`."""

    __slots__ = ("_answers", "_done", "_for_all", "_writes")

    def __init__(
        self,
        answers: list[PartitionAppended],
        writes: list[ProducePartitionStatus],
        *,
        for_all: bool,
        done: Done,
    ) -> None:
        self._answers = answers  # as if everything succeeds
        self._writes = writes
        self._for_all = for_all  # the high watermark counts, not just this broker's disk
        self._done = done

    def is_satisfied(self) -> bool:
        # Decided writes stay decided, so each is asked about once: a request of many partitions
        # would else be gone through as a whole for every one of them.
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
        """None: still open."""
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
            self._answers[write.place] = self._answers[write.place]._replace(code=code)
