"""Reads a partition of halves or decisions that this broker leads, for one group's shard.

The shard keeps how far it is read, so that a repeat, another leader, or two at once change nothing.
Decisions carry the ends of the group's half topics, asked for after they were read. Ends as a task
when it is not wanted any more.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from penstock.coordinators.deferred.half_values import HalfIntake, IntakeReply, ReadUpTo
from penstock.inter_broker.half_calls import HalfCalls
from penstock.inter_broker.half_reading import (
    HalfContext,
    SourceChunk,
    read_decisions_of,
    read_messages_of,
)
from penstock.inter_broker.half_topics import HalfSource, HalfTopics
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.protocol.half_headers import EXPIRED_SUFFIX

FIRST_PAUSE_MS = 10
MAX_PAUSE_MS = 1_000
_EARLY_ATTEMPTS = 20  # with the same ends; a log can have lost its tail since they were asked for
_UNKNOWN = -1  # a position


class SourceLog(Protocol):
    async def read(self, tp: TopicPartition, start: int, /) -> SourceChunk | None:
        """From `start` on, or from the log start; None: nothing is there yet. May raise Refusal."""

    async def wait(self, tp: TopicPartition, offset: int, /) -> None:
        """Until the last stable offset has passed it, or for a while."""


class HalfReader(NamedTuple):
    source: HalfSource
    topics: HalfTopics
    calls: HalfCalls
    log: SourceLog
    is_wanted: Callable[[], bool]
    pause: Callable[[int], Awaitable[None]]  # for so many ms, or until nobody is wanted
    notes: RateLimitedLogger

    async def run(self) -> None:
        position, pause_ms = _UNKNOWN, FIRST_PAUSE_MS
        while self.is_wanted():
            try:
                if position == _UNKNOWN:
                    position = await self._find_position()
                position = await self._read_some(position)
                pause_ms = FIRST_PAUSE_MS
            except Refusal as refusal:
                position = _UNKNOWN
                if pause_ms == MAX_PAUSE_MS:
                    self._report(f"is not read for group {self.source.group}: {refusal}")
                await self.pause(pause_ms)
                pause_ms = min(2 * pause_ms, MAX_PAUSE_MS)

    async def _find_position(self) -> int:
        await self.calls.ensure_topic()
        reply = await self.calls.send_intake(self._intake(SourceChunk(b"", -1, 0, ()), -1))
        return _check(reply)

    async def _read_some(self, position: int) -> int:
        chunk = await self.log.read(self.source.tp, position)
        if chunk is None:
            if self.calls.is_full(self.source.group):  # nothing comes until it is asked again
                await self.pause(MAX_PAUSE_MS)
                return _UNKNOWN
            await self.log.wait(self.source.tp, position)
            return position
        intake = self._decode(chunk, max(position, chunk.log_start_offset))
        if not intake.decisions:
            return _check(await self.calls.send_intake(intake))
        return await self._send_decisions(intake)

    async def _send_decisions(self, intake: HalfIntake) -> int:
        """Again and again until the halves that were sent before them are read."""
        after: list[ReadUpTo] = []
        pause_ms = FIRST_PAUSE_MS
        for attempt in range(_EARLY_ATTEMPTS):
            if not attempt:
                after = await self.calls.half_ends(self.source.group)
            position = _check(await self.calls.send_intake(intake._replace(after=after)))
            if position != intake.base_offset or not self.is_wanted():
                return position
            await self.pause(pause_ms)
            pause_ms = min(2 * pause_ms, MAX_PAUSE_MS)
        return intake.base_offset  # read them again, with new ends

    def _decode(self, chunk: SourceChunk, base_offset: int) -> HalfIntake:
        source = self.source
        target = self.topics.find_same_partition(source.topic, source.target.partition)
        if target is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {source.topic} is deleted")
        groups = self.topics.groups_of(source.topic) or (source.group,)
        context = HalfContext(source.group, groups, source.topic, target)
        intake = self._intake(chunk, base_offset)
        if source.is_decisions:
            return intake._replace(decisions=read_decisions_of(chunk, context, self._report))
        return intake._replace(messages=read_messages_of(chunk, context, self._report))

    def _intake(self, chunk: SourceChunk, base_offset: int) -> HalfIntake:
        source = self.source
        expired = self.topics.find_same_partition(
            source.topic + EXPIRED_SUFFIX, source.target.partition
        )
        if expired is None:
            raise Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {source.topic}{EXPIRED_SUFFIX}; create it",
            )
        return HalfIntake(
            source.group,
            source.topic,
            source.target,
            base_offset,
            chunk.end_offset,
            chunk.log_start_offset,
            expired,
        )

    def _report(self, line: str) -> None:
        self.notes.warning("half_topic_not_read", str(self.source.tp), f"{self.source.tp}: {line}")


def _check(reply: IntakeReply) -> int:
    if reply.code is not ErrorCode.NONE:
        raise Refusal(reply.code)
    return reply.next_offset
