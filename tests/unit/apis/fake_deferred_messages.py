"""Deferred messages without shards: what handlers hand over is kept here, and answered as a test
says."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.defer import DONE, DeferReply, SentBy
from penstock.coordinators.deferred.dependencies import DeliveryReply
from penstock.coordinators.deferred.half_values import HalfIntake, IntakeReply
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    InTransaction,
    Target,
)
from penstock.coordinators.runtime.pending_replies import Failed, MarkerReply
from penstock.model.errors import ErrorCode
from penstock.model.markers import TransactionMarker
from penstock.protocol.batch import read_header


async def _nothing() -> None: ...


class FakeDeferredMessages:
    """A DeferredService."""

    def __init__(self) -> None:
        self.deferred: list[tuple[DeferredMessage, SentBy | None]] = []
        self.cancelled: list[tuple[DelayKey, ...]] = []
        self.appended: list[tuple[Target, bytes]] = []
        self.max_answers = 1000  # of one batch
        self.steps: list[str] = []
        self.transactions: list[InTransaction | None] = []
        self.before_reply: Callable[[], Awaitable[None]] = _nothing
        self.reply: DeferReply = DONE
        self.end_reply: CancelReply | Failed = CancelReply.CANCELLED

    async def defer(
        self,
        messages: Sequence[DeferredMessage],
        sent_by: SentBy | None,
        transaction: InTransaction | None = None,
        *,
        timeout_ms: int,
    ) -> DeferReply:
        self.steps.append("defer")
        self.transactions.append(transaction)
        await self.before_reply()
        if self.reply == DONE:
            self.deferred += [(message, sent_by) for message in messages]
        return self.reply

    async def cancel(
        self, delay_keys: Sequence[DelayKey], *, timeout_ms: int
    ) -> Mapping[DelayKey, CancelReply] | Failed:
        self.steps.append("cancel")
        self.cancelled.append(tuple(delay_keys))
        reply = self.end_reply
        return reply if isinstance(reply, Failed) else dict.fromkeys(delay_keys, reply)

    async def deliver_now(self, delay_key: DelayKey, *, timeout_ms: int) -> CancelReply | Failed:
        return self.end_reply

    async def append(self, target: Target, batch: bytearray, *, timeout_ms: int) -> ErrorCode:
        if read_header(batch).record_count > self.max_answers:
            return ErrorCode.MESSAGE_TOO_LARGE
        self.appended.append((target, bytes(batch)))
        return ErrorCode.NONE

    async def defer_here(
        self,
        partition: int,
        messages: Sequence[DeferredMessage],
        sent_by: SentBy | None,
        transaction: InTransaction | None,
    ) -> DeferReply:
        return await self.defer(messages, sent_by, transaction, timeout_ms=0)

    def end_transaction_here(
        self, partition: int, marker: TransactionMarker
    ) -> Awaitable[ErrorCode]:
        return MarkerReply(ErrorCode.NOT_COORDINATOR)

    async def cancel_here(
        self, partition: int, delay_keys: Sequence[DelayKey]
    ) -> tuple[CancelReply, ...] | Failed:
        replies = await self.cancel(delay_keys, timeout_ms=0)
        return replies if isinstance(replies, Failed) else tuple(replies.values())

    async def deliver_now_here(self, partition: int, delay_key: DelayKey) -> CancelReply | Failed:
        return await self.deliver_now(delay_key, timeout_ms=0)

    async def append_here(
        self, target: Target, batch: bytearray, *, timeout_ms: int
    ) -> DeliveryReply:
        return DeliveryReply(await self.append(target, batch, timeout_ms=timeout_ms))

    async def take_intake_here(self, intake: HalfIntake) -> IntakeReply:
        return IntakeReply(ErrorCode.NONE, intake.end_offset)

    def log_ends_here(self, sources: Sequence[Target]) -> list[int]:
        return [0] * len(sources)
