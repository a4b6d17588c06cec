"""Delivers a shard's due messages to one target, in one batch after another, until none is ready.

Each step is decided and committed by the shard before the next one: what is sent, then that it has
arrived. A target that refuses or is gone holds up nobody else. Owned by its shard, as a task; it
ends when the shard has reloaded or is led elsewhere.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

from penstock.coordinators.deferred.delivery import (
    DeliveryLimits,
    begin_delivery,
    confirm_delivery,
    drop_delivery,
)
from penstock.coordinators.deferred.dependencies import DeliveryChannel, DeliveryReply
from penstock.coordinators.deferred.records import DeferredRecord, DelivererRecord
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.coordinators.deferred.values import DeferredMessage, Target
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.logs.event_logger import EventLogger
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.records import Record, build_batch

FIRST_PAUSE_MS = 100
MAX_PAUSE_MS = 10_000
_ARRIVED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})

ReplyType = TypeVar("ReplyType")
Decide = Callable[[DeferredShardState, int], CoordinatorResult[ReplyType, DeferredRecord]]


class DeliveringShard(Protocol):
    """What a delivery needs of its shard."""

    state: DeferredShardState

    async def decide(self, decide: Decide[ReplyType], /) -> ReplyType | Failed:
        """Runs a command; its reply comes when it is committed."""

    async def get_deliverer(self) -> DelivererRecord:
        """May raise Refusal."""

    async def read_sent(self, target: Target, /) -> list[DeferredMessage] | None:
        """None: not all of them are due here yet. May raise Refusal."""


class TargetDelivery(NamedTuple):
    shard: DeliveringShard
    target: Target
    channel: DeliveryChannel
    limits: DeliveryLimits
    is_wanted: Callable[[], bool]
    pause: Callable[[int], Awaitable[None]]  # for so many ms, or until the shard ends
    on_delivered: Callable[[int], None]  # so many messages
    logger: EventLogger

    async def run(self) -> None:
        pause_ms = FIRST_PAUSE_MS
        while self.is_wanted():
            try:
                has_more = await self._deliver_some()
            except Refusal as refusal:
                self._log_failure(refusal.code, pause_ms)
                await self.pause(pause_ms)
                pause_ms = min(2 * pause_ms, MAX_PAUSE_MS)
            else:
                if not has_more:
                    return
                pause_ms = FIRST_PAUSE_MS

    async def _deliver_some(self) -> bool:
        """False: nothing is ready. Refusal: try again later."""
        if not _check(await self.shard.decide(lambda state, _: self._begin(state))):
            return False
        if not self.is_wanted():
            return False
        messages = await self.shard.read_sent(self.target)
        if messages is None or not self.is_wanted():
            return False
        code, base_offset = await self._send(messages)
        if code in _ARRIVED:
            _check(await self._confirm(base_offset))
            self.on_delivered(len(messages))
        elif code is ErrorCode.UNKNOWN_TOPIC_ID:
            await self._drop()
        else:
            raise Refusal(code)
        return True

    def _begin(self, state: DeferredShardState) -> CoordinatorResult[bool, DeferredRecord]:
        """An earlier delivery that is unconfirmed comes first. Its reply waits, too, until what was
        written is committed: otherwise the next leader could send something else in its place."""
        if state.find_delivery(self.target).numbers:
            return CoordinatorResult(reply=True)
        return begin_delivery(state, self.target, self.limits)

    async def _send(self, messages: list[DeferredMessage]) -> DeliveryReply:
        deliverer = await self.shard.get_deliverer()
        batch = build_batch(
            [
                Record(offset, _timestamp_ms(message), message.key, message.value, message.headers)
                for offset, message in enumerate(messages)
            ],
            producer_id=deliverer.producer_id,
            producer_epoch=deliverer.producer_epoch,
            base_sequence=self.shard.state.find_delivery(self.target).sequence,
        )
        return await self.channel.send(self.target, batch)

    async def _confirm(self, base_offset: int) -> object:
        if not self.is_wanted():
            return None
        return await self.shard.decide(
            lambda state, now_ms: confirm_delivery(
                state, self.target, base_offset=base_offset, now_ms=now_ms
            )
        )

    async def _drop(self) -> None:
        if self.is_wanted():
            dropped = _check(
                await self.shard.decide(
                    lambda state, now_ms: drop_delivery(state, self.target, now_ms=now_ms)
                )
            )
            self.logger.warning(
                "deferred_messages_dropped",
                f"{dropped} messages were due, but their topic {self.target.topic_id} is deleted",
                topic_id=str(self.target.topic_id),
                partition=self.target.partition,
                count=dropped,
            )

    def _log_failure(self, code: ErrorCode, pause_ms: int) -> None:
        if pause_ms == FIRST_PAUSE_MS:  # once per row of failures
            self.logger.warning(
                "deferred_messages_not_delivered",
                f"partition {self.target.partition} of topic {self.target.topic_id} did not take "
                f"messages that are due: {code.name}; trying again",
                topic_id=str(self.target.topic_id),
                partition=self.target.partition,
            )


def _timestamp_ms(message: DeferredMessage) -> int:
    """When it was due, because retention and look-ups by time would take it for older than any of
    its neighbours."""
    return max(message.timestamp_ms, message.due_ms)


def _check(reply: ReplyType | Failed) -> ReplyType:
    if isinstance(reply, Failed):
        raise Refusal(reply.code)
    return reply
