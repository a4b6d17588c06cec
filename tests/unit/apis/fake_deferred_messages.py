"""Deferred messages without shards: what handlers hand over is kept here, and answered as a test
says."""

from collections.abc import Sequence

from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.defer import DONE, DeferReply, SentBy
from penstock.coordinators.deferred.dependencies import DeliveryReply
from penstock.coordinators.deferred.half_values import HalfIntake, IntakeReply
from penstock.coordinators.deferred.values import DeferredMessage, DelayKey, Target
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.model.errors import ErrorCode


class FakeDeferredMessages:
    """A DeferredService."""

    def __init__(self) -> None:
        self.deferred: list[tuple[DeferredMessage, SentBy | None]] = []
        self.ended: list[tuple[DelayKey, bool]] = []
        self.appended: list[tuple[Target, bytes]] = []
        self.steps: list[str] = []
        self.reply: DeferReply = DONE
        self.end_reply: CancelReply | Failed = CancelReply.CANCELLED

    async def defer(
        self, messages: Sequence[DeferredMessage], sent_by: SentBy | None, *, timeout_ms: int
    ) -> DeferReply:
        self.steps.append("defer")
        if self.reply == DONE:
            self.deferred += [(message, sent_by) for message in messages]
        return self.reply

    async def end(
        self, delay_key: DelayKey, *, deliver_now: bool, timeout_ms: int
    ) -> CancelReply | Failed:
        self.steps.append("end")
        self.ended.append((delay_key, deliver_now))
        return self.end_reply

    async def append(self, target: Target, batch: bytearray, *, timeout_ms: int) -> ErrorCode:
        self.appended.append((target, bytes(batch)))
        return ErrorCode.NONE

    async def defer_here(
        self, partition: int, messages: Sequence[DeferredMessage], sent_by: SentBy | None
    ) -> DeferReply:
        return await self.defer(messages, sent_by, timeout_ms=0)

    async def end_here(
        self, partition: int, delay_key: DelayKey, *, deliver_now: bool
    ) -> CancelReply | Failed:
        return await self.end(delay_key, deliver_now=deliver_now, timeout_ms=0)

    async def append_here(
        self, target: Target, batch: bytearray, *, timeout_ms: int
    ) -> DeliveryReply:
        return DeliveryReply(await self.append(target, batch, timeout_ms=timeout_ms))

    async def take_intake_here(self, intake: HalfIntake) -> IntakeReply:
        return IntakeReply(ErrorCode.NONE, intake.end_offset)

    def log_ends_here(self, sources: Sequence[Target]) -> list[int]:
        return [0] * len(sources)
