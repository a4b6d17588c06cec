"""The interface of deferred messages to the API handlers. No behaviour.

The shard of a message may be led by this broker or by another; the implementation finds it, and
tries again for as long as the caller gives it.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.defer import DeferReply, SentBy
from penstock.coordinators.deferred.dependencies import DeliveryReply
from penstock.coordinators.deferred.half_values import HalfIntake, IntakeReply
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    InTransaction,
    Target,
)
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.model.errors import ErrorCode
from penstock.model.markers import TransactionMarker


class DeferredService(Protocol):
    async def defer(
        self,
        messages: Sequence[DeferredMessage],
        sent_by: SentBy | None,
        transaction: InTransaction | None = None,
        *,
        timeout_ms: int,
    ) -> DeferReply:
        """Messages of one batch. NONE: all of them are durable."""

    async def cancel(
        self, delay_keys: Sequence[DelayKey], *, timeout_ms: int
    ) -> Mapping[DelayKey, CancelReply] | Failed:
        """What has become of each."""

    async def deliver_now(
        self, delay_key: DelayKey, *, timeout_ms: int
    ) -> CancelReply | Failed: ...

    async def append(self, target: Target, batch: bytearray, *, timeout_ms: int) -> ErrorCode:
        """To a partition that any broker leads."""

    # -- for other brokers: this one leads what is asked for -------------------------------

    async def defer_here(
        self,
        partition: int,
        messages: Sequence[DeferredMessage],
        sent_by: SentBy | None,
        transaction: InTransaction | None,
    ) -> DeferReply: ...

    def end_transaction_here(
        self, partition: int, marker: TransactionMarker
    ) -> Awaitable[ErrorCode]:
        """The marker is written when this returns, and committed when the awaited code is NONE."""

    async def cancel_here(
        self, partition: int, delay_keys: Sequence[DelayKey]
    ) -> tuple[CancelReply, ...] | Failed:
        """Of different messages."""

    async def deliver_now_here(
        self, partition: int, delay_key: DelayKey
    ) -> CancelReply | Failed: ...

    async def append_here(
        self, target: Target, batch: bytearray, *, timeout_ms: int
    ) -> DeliveryReply:
        """NONE: all in-sync replicas have it, perhaps since an earlier attempt."""

    async def take_intake_here(self, intake: HalfIntake) -> IntakeReply: ...

    def log_ends_here(self, sources: Sequence[Target]) -> list[int]:
        """May raise Refusal."""
