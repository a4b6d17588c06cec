"""One led partition of `__penstock_deferred`: its messages, and the delivery of those that are due.

`CoordinatorShard` runs the commands; a timer wakes this shard when the next message is due, and a
`TargetDelivery` per target sends what is ready. Owned by the event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from penstock.coordinators.deferred.cancel import (
    CancelReply,
    StoredMessage,
    cancel_messages,
    deliver_now,
    forget_ended,
    forget_replaced,
)
from penstock.coordinators.deferred.config import DeferredConfig
from penstock.coordinators.deferred.counts import DeferredCounts
from penstock.coordinators.deferred.defer import (
    DeferLimits,
    DeferReply,
    SentBy,
    defer_messages,
    forget_producers,
)
from penstock.coordinators.deferred.delivery import DeliveryLimits
from penstock.coordinators.deferred.dependencies import DeliveryChannel, HalfCluster
from penstock.coordinators.deferred.due_index import HOUR_MS, DueEntry, RunStore
from penstock.coordinators.deferred.half_checks import forget_halves
from penstock.coordinators.deferred.half_rounds import HalfRounds
from penstock.coordinators.deferred.half_values import HalfIntake, IntakeReply
from penstock.coordinators.deferred.halves import HalfLimits, take_intake
from penstock.coordinators.deferred.loader import DeferredLoader, Entry, LoadedMarker
from penstock.coordinators.deferred.records import DeferredRecord, DelivererRecord, encode_record
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.coordinators.deferred.stored_messages import read_messages
from penstock.coordinators.deferred.target_delivery import Decide, TargetDelivery
from penstock.coordinators.deferred.values import DeferredMessage, DelayKey, Target
from penstock.coordinators.runtime.coordinator_shard import CoordinatorShard, ShardDependencies
from penstock.coordinators.runtime.dependencies import Report
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.coordinators.runtime.record_batches import TooLarge, build_batches
from penstock.coordinators.runtime.result import CoordinatorResult, Waiter
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.markers import TransactionMarker
from penstock.model.producer_ids import FIRST_DELIVERER_ID, ProducerIds
from penstock.protocol.control import build_end_marker_batch

WRITE_TIMEOUT_MS = 5_000
FORGOTTEN_AT_ONCE = 500
DUE_AT_ONCE = 2_000  # about 10 ms; then others have a turn of the event loop

_DUE = "due"  # keys of timers
_FORGET = "forget ended"
_HALVES = "look after halves"

ReplyType = TypeVar("ReplyType")
FindRefusal = Callable[[], ErrorCode]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredDependencies(ShardDependencies):
    """Shared by all shards of the coordinator."""

    channel: DeliveryChannel
    cluster: HalfCluster
    producer_ids: ProducerIds
    config: Callable[[], DeferredConfig]
    new_runs: Callable[[int], RunStore]  # empty ones, for a partition
    start: Callable[[Coroutine[Any, Any, None], str], None]  # as a task of the coordinator
    counts: DeferredCounts


class DeferredShard(CoordinatorShard[DeferredShardState, DeferredRecord]):
    def __init__(self, partition: int, dependencies: DeferredDependencies) -> None:
        self._dependencies = dependencies
        self._delivering: dict[Target, object] = {}  # with the token of the task that does it
        self._pauses: set[asyncio.Future[None]] = set()
        self._wakes_ms: int | None = None  # when the timer fires; None: it is not set
        self._choosing_deliverer = asyncio.Lock()
        self._rounds_ms: int | None = None  # when the next round of halves is; None: it is not set
        self._round: object | None = None  # a token of the one that runs
        self._ended_ms = 0  # the timestamp of the marker that is being written
        super().__init__(partition, dependencies)
        self._rounds = HalfRounds(
            self,
            dependencies.cluster,
            self._half_limits,
            dependencies.wall_ms,
            dependencies.notes,
            dependencies.counts,
            set(),
        )

    # -- commands --------------------------------------------------------------------------

    async def defer(
        self,
        messages: Sequence[DeferredMessage],
        sent_by: SentBy | None,
        find_refusal: FindRefusal | None,
    ) -> DeferReply | Failed:
        """`find_refusal`: they are sent in a transaction, and this says, right before they are
        written, whether it is still open."""
        config = self._dependencies.config()
        limits = DeferLimits(config.max_delay_ms, config.max_pending)

        def decide(
            state: DeferredShardState, now_ms: int
        ) -> CoordinatorResult[DeferReply, DeferredRecord]:
            code = ErrorCode.NONE if find_refusal is None else find_refusal()
            if code is not ErrorCode.NONE:
                return CoordinatorResult(reply=DeferReply(code))
            is_transactional = find_refusal is not None
            return defer_messages(
                state, messages, sent_by, limits, now_ms=now_ms, is_transactional=is_transactional
            )

        return await self.decide(decide)

    def end_transaction(self, marker: TransactionMarker) -> "asyncio.Future[ErrorCode | Failed]":
        """Written when this returns; NONE when it is committed."""
        return self.run(lambda *_: CoordinatorResult(reply=ErrorCode.NONE, end_marker=marker))

    async def cancel(self, delay_keys: Sequence[DelayKey]) -> tuple[CancelReply, ...] | Failed:
        """Of different messages, by one write."""
        replies = await self.decide(
            lambda state, now_ms: cancel_messages(state, delay_keys, now_ms=now_ms)
        )
        if not isinstance(replies, Failed):
            self._dependencies.counts.cancelled += replies.count(CancelReply.CANCELLED)
        return replies

    async def deliver_now(self, delay_key: DelayKey) -> CancelReply | Failed:
        """Makes the message due: it is delivered like any other."""
        number = self.state.find_waiting(delay_key)
        if number is None:  # it has ended, or never was: a cancel changes nothing then
            replies = await self.cancel((delay_key,))
            return replies if isinstance(replies, Failed) else replies[0]
        entry = DueEntry(0, number, self.state.get_offset(number), 0, Target(delay_key.topic_id, 0))
        (message,) = await self.read_entries([entry])
        stored = StoredMessage(number, message)
        return await self.decide(
            lambda state, now_ms: deliver_now(state, delay_key, stored, now_ms=now_ms)
        )

    async def take_intake(self, intake: HalfIntake) -> IntakeReply:
        """What was read from a half topic or its decisions."""
        reply = await self.decide(
            lambda state, now_ms: take_intake(state, intake, self._half_limits(), now_ms=now_ms)
        )
        if isinstance(reply, Failed):
            return IntakeReply(reply.code)
        self._dependencies.counts.add_decided(reply)
        is_full = self.state.halves.held_count >= self._dependencies.config().max_held
        return reply._replace(is_full=is_full)

    def _half_limits(self) -> HalfLimits:
        config = self._dependencies.config()
        return HalfLimits(
            config.first_check_ms,
            config.check_interval_ms,
            config.max_check_interval_ms,
            config.max_checks,
        )

    async def decide(self, decide: Decide[ReplyType]) -> ReplyType | Failed:
        """What commits have replaced is removed first: a decision may remove the messages that did,
        and compaction then their marker's reason."""
        if not self.is_active:
            return Failed(ErrorCode.NOT_COORDINATOR)
        if not self._try_forget_replaced():
            return Failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await self.run(lambda state, _, now_ms: decide(state, now_ms))

    def _try_forget_replaced(self) -> bool:
        code = ErrorCode.NONE
        while self.is_active and self.state.has_replaced and code is ErrorCode.NONE:
            code = self._execute(
                lambda state, *_: CoordinatorResult(
                    reply=None, records=forget_replaced(state, FORGOTTEN_AT_ONCE)
                )
            )
        return self.is_active and code is ErrorCode.NONE

    # -- halves ----------------------------------------------------------------------------

    def _wake_for_halves(self) -> None:
        delay_ms = self._rounds.delay_ms()
        if delay_ms is None or self._round is not None:
            return
        at_ms = self._dependencies.wall_ms() + delay_ms
        if self._rounds_ms is None or at_ms < self._rounds_ms:
            self._rounds_ms = at_ms
            self._timers.set(_HALVES, delay_ms, self._start_round)

    def _start_round(self) -> None:
        self._rounds_ms = None
        token = self._round = object()
        self._dependencies.start(self._run_round(token), f"halves of {self}")

    async def _run_round(self, token: object) -> None:
        try:
            await self._rounds.run()
        except Exception:
            if self._round is token:
                self._fail()
        if self._round is token:
            self._round = None
            if self.is_active:
                self._wake_for_halves()

    # -- what is due -----------------------------------------------------------------------

    def _wake_when_due(self) -> None:
        next_ms = self.state.next_due_ms()
        if next_ms is None or (self._wakes_ms is not None and self._wakes_ms <= next_ms):
            return
        self._wakes_ms = next_ms
        delay_ms = max(0, next_ms - self._dependencies.wall_ms())
        self._timers.set(_DUE, min(delay_ms, HOUR_MS), self._on_due)

    def _on_due(self) -> None:
        self._wakes_ms = None
        try:
            self.state.take_due(self._dependencies.wall_ms(), DUE_AT_ONCE)
        except Exception:  # of a timer, it would end the broker
            self._fail()
            return
        for target in self.state.ready_targets() + self.state.unconfirmed_targets():
            self._start_delivery(target)
        self._wake_when_due()

    def _start_delivery(self, target: Target) -> None:
        if target in self._delivering:
            return
        token = self._delivering[target] = object()
        config = self._dependencies.config()
        delivery = TargetDelivery(
            self,
            target,
            self._dependencies.channel,
            DeliveryLimits(config.max_delivery_messages, config.max_delivery_bytes),
            partial(self._is_delivering, target, token),
            self._pause,
            self._dependencies.counts.add_delivered,
            self._dependencies.logger,
        )
        self._dependencies.start(
            self._run_delivery(delivery, token), f"deliver to {target.topic_id}-{target.partition}"
        )

    async def _run_delivery(self, delivery: TargetDelivery, token: object) -> None:
        target = delivery.target
        try:
            await delivery.run()
        except Exception:
            if self._is_delivering(target, token):
                self._fail()
        if self._is_delivering(target, token):
            del self._delivering[target]
            if target in self.state.ready_targets():  # since it was last asked
                self._start_delivery(target)

    def _is_delivering(self, target: Target, token: object) -> bool:
        return self.is_active and self.is_led and self._delivering.get(target) is token

    async def _pause(self, duration_ms: int) -> None:
        """Ends at once when the shard does."""
        if not self.is_active:
            return
        paused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pauses.add(paused)
        self._timers.set(paused, duration_ms, partial(_resolve, paused))
        await paused
        self._pauses.discard(paused)

    async def read_sent(self, target: Target) -> list[DeferredMessage] | None:
        entries = self.state.find_sent(target)
        if entries is None:
            missing = self.state.find_missing(target)
            if missing is not None:
                raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"message {missing} is not in the log")
            return None
        return await self.read_entries(entries)

    async def read_entries(self, entries: Sequence[DueEntry]) -> list[DeferredMessage]:
        return await read_messages(
            self._dependencies.log, self.partition, entries, self._report_damage
        )

    async def get_deliverer(self) -> DelivererRecord:
        """One for all targets: it is committed before anything is sent in its name."""
        async with self._choosing_deliverer:
            if self.state.deliverer is None:
                producer_id = await self._dependencies.producer_ids.next_producer_id()
                record = DelivererRecord(FIRST_DELIVERER_ID + producer_id, 0)
                reply = await self.decide(
                    lambda state, _: CoordinatorResult(reply=True, records=(record,))
                )
                if isinstance(reply, Failed):
                    raise Refusal(reply.code)
            deliverer = self.state.deliverer
        if deliverer is None:  # the shard has reloaded meanwhile
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return deliverer

    # -- writing ---------------------------------------------------------------------------

    def _build_batches(self, result: CoordinatorResult[Any, DeferredRecord]) -> Sequence[bytearray]:
        """In one batch: half of a decision would lose messages or deliver them twice."""
        if result.end_marker is not None:
            return (self._build_marker(result.end_marker),)
        max_bytes = self._dependencies.log.max_batch_bytes(self.partition)
        batches = build_batches(
            result.records,
            encode_record,
            lambda record: type(record).__name__,
            now_ms=self._dependencies.wall_ms(),
            max_bytes=max_bytes,
            written_by=result.written_by,
        )
        if len(batches) > 1:
            raise TooLarge(
                f"{len(result.records)} records that belong together are above {max_bytes} bytes; "
                "send smaller batches, or raise the topic's max.message.bytes"
            )
        return batches

    def _build_marker(self, marker: TransactionMarker) -> bytearray:
        self._ended_ms = self._dependencies.wall_ms()
        return build_end_marker_batch(
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._ended_ms,
        )

    def _replay(self, result: CoordinatorResult[Any, DeferredRecord], base_offset: int) -> int:
        marker = result.end_marker
        if marker is not None:
            return self._replay_marker(marker, base_offset)
        for offset, record in enumerate(result.records, start=base_offset):
            self.state.replay(record, offset, result.written_by.producer_id)
        self._wake_when_due()
        self._wake_for_halves()
        return base_offset + len(result.records)

    def _replay_marker(self, marker: TransactionMarker, offset: int) -> int:
        self.state.end_transaction(
            marker.producer_id, commit=marker.commit, ended_ms=self._ended_ms
        )
        self._wake_when_due()
        if self.state.has_replaced:
            self._forget_later(0)
        return offset + 1

    def _write_timeout_ms(self) -> int:
        return WRITE_TIMEOUT_MS

    # -- forgetting ------------------------------------------------------------------------

    def _forget_later(self, delay_ms: int) -> None:
        self._timers.set(_FORGET, delay_ms, self._forget)

    def _forget(self) -> None:
        config = self._dependencies.config()
        forgotten = 0

        def forget(
            state: DeferredShardState, _: Waiter, now_ms: int
        ) -> CoordinatorResult[None, DeferredRecord]:
            nonlocal forgotten
            records = forget_replaced(state, FORGOTTEN_AT_ONCE)
            records += forget_ended(state, ended_before_ms=now_ms - config.ended_retention_ms)
            records += forget_producers(state, idle_since_ms=now_ms - config.producer_expiration_ms)
            records += forget_halves(
                state,
                decided_before_ms=now_ms - config.decided_retention_ms,
                expired_before_ms=now_ms - config.expired_retention_ms,
                limit=FORGOTTEN_AT_ONCE,
            )
            del records[FORGOTTEN_AT_ONCE:]
            forgotten = len(records)
            return CoordinatorResult(reply=None, records=records)

        code = self._execute(forget)
        if self.is_active:
            self._forget_later(
                0
                if code is ErrorCode.NONE and forgotten == FORGOTTEN_AT_ONCE
                else config.forget_interval_ms
            )

    # -- loading and ending ----------------------------------------------------------------

    def _new_state(self) -> DeferredShardState:
        return DeferredShardState(self._dependencies.new_runs(self.partition))

    def _new_reader(self, report: Report) -> DeferredLoader:
        return DeferredLoader(report)

    def _load_entry(self, entry: Entry) -> None:
        if isinstance(entry, LoadedMarker):
            self.state.end_transaction(
                entry.producer_id, commit=entry.commit, ended_ms=entry.ended_ms
            )
        else:
            self.state.replay(*entry)

    def _chunk_bytes(self) -> int:
        return self._dependencies.config().load_buffer_bytes

    def _on_active(self) -> None:
        self.state.on_loaded(self._written_end)
        interval_ms = self._dependencies.config().forget_interval_ms
        self._forget_later(0 if self.state.has_replaced else interval_ms)
        self._on_due()
        self._wake_for_halves()

    def _forget_volatile(self) -> None:
        self._delivering.clear()
        self._wakes_ms = self._rounds_ms = self._round = None
        self._rounds.postponed.clear()
        for paused in self._pauses:
            _resolve(paused)
        self._pauses.clear()

    def __str__(self) -> str:
        return f"__penstock_deferred-{self.partition}"


def _resolve(paused: "asyncio.Future[None]") -> None:
    if not paused.done():
        paused.set_result(None)
