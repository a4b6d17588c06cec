"""Brings messages that wait, and what ends them, to the shards that own them, here or elsewhere.

Implements `apis.DeferredService`. It keeps nothing: an attempt that may have reached the shard is
repeated only where a repeat is recognised.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.config import DeferredConfig
from penstock.coordinators.deferred.coordinator import DeferredCoordinator
from penstock.coordinators.deferred.defer import DONE, DeferReply, SentBy, find_long_delay
from penstock.coordinators.deferred.dependencies import DeliveryReply
from penstock.coordinators.deferred.half_values import HalfIntake, IntakeReply
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    InTransaction,
    Target,
)
from penstock.coordinators.runtime.dependencies import CoordinatorTimers
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.inter_broker.broker_connections import PrivateCalls
from penstock.inter_broker.config import InterBrokerConfig
from penstock.inter_broker.deferred_appends import DeferredAppends
from penstock.inter_broker.deferred_transactions import DeferredTransactions
from penstock.inter_broker.messages.deferred import (
    DEFER_MESSAGES_VERSIONS,
    DEFERRED_VERSIONS,
    MAX_CANCELS,
    WITH_SEVERAL_CANCELS,
    WITH_TRANSACTIONS,
    DeferMessagesRequest,
    EndDeferredRequest,
    decode_ends,
    encode_defer_messages,
    encode_end_deferred,
)
from penstock.model.cluster import DEFERRED_TOPIC, BrokerId, BrokerNode
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicId
from penstock.model.markers import TransactionMarker
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse
from penstock.replication.metadata_cache import MetadataCache

FIRST_PAUSE_MS = 20
MAX_PAUSE_MS = 500

# Nothing was done: the shard is elsewhere by now, or is not there yet.
_CERTAIN = frozenset(
    (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
# It may have been done.
_UNCERTAIN = frozenset((ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION))


class _Ends(NamedTuple):
    """What has become of messages, in the order of a request."""

    replies: tuple[CancelReply, ...]
    code: ErrorCode = ErrorCode.NONE


Reply = TypeVar("Reply", bound=DeferReply | _Ends | Failed)


class DeferredRouter:
    """Owned by the event loop."""

    def __init__(
        self,
        own_id: BrokerId,
        *,
        metadata: MetadataCache,
        get_coordinator: Callable[[], DeferredCoordinator],
        brokers: PrivateCalls,
        appends: DeferredAppends,
        transactions: DeferredTransactions,
        config: Callable[[], DeferredConfig],
        calls_config: Callable[[], InterBrokerConfig],
        timers: CoordinatorTimers,
        now_ms: Callable[[], int],  # monotonic
        wall_ms: Callable[[], int],
    ) -> None:
        self._own_id = own_id
        self._metadata = metadata
        self._get_coordinator = get_coordinator
        self._brokers = brokers
        self._appends = appends
        self._transactions = transactions
        self._config = config
        self._calls_config = calls_config
        self._timers = timers
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._pauses: set[asyncio.Future[None]] = set()
        self._is_closed = False

    def close(self) -> None:
        """Nothing is tried again from now on."""
        self._is_closed = True
        for over in self._pauses:
            _resolve(over)

    # -- for handlers of clients -----------------------------------------------------------

    async def defer(
        self,
        messages: Sequence[DeferredMessage],
        sent_by: SentBy | None,
        transaction: InTransaction | None = None,
        *,
        timeout_ms: int,
    ) -> DeferReply:
        too_long = find_long_delay(messages, self._config().max_delay_ms, self._wall_ms())
        if too_long is not None:  # before some of the shards have taken their part
            return DeferReply(ErrorCode.POLICY_VIOLATION, too_long)
        deadline_ms = self._now_ms() + timeout_ms
        coordinator = self._get_coordinator()
        code = await coordinator.ensure_topic()
        if code is not ErrorCode.NONE:
            return DeferReply(code, f"{DEFERRED_TOPIC} could not be created; see the broker's log")
        by_shard: dict[int, list[DeferredMessage]] = {}
        for message in messages:
            by_shard.setdefault(coordinator.partition_of_message(message), []).append(message)
        replies = await asyncio.gather(
            *(
                self._repeat(
                    partial(self._defer_once, shard, some, sent_by, transaction),
                    deadline_ms,
                    is_recognised=sent_by is not None,
                )
                for shard, some in by_shard.items()
            )
        )
        return next((reply for reply in replies if reply.code is not ErrorCode.NONE), DONE)

    async def cancel(
        self, delay_keys: Sequence[DelayKey], *, timeout_ms: int
    ) -> Mapping[DelayKey, CancelReply] | Failed:
        deadline_ms = self._now_ms() + timeout_ms
        if self._metadata.find_topic(DEFERRED_TOPIC) is None:
            return dict.fromkeys(delay_keys, CancelReply.UNKNOWN)  # nothing has ever waited
        requests = list(self._divide_cancels(delay_keys))
        attempts = [partial(self._end_once, request) for request in requests]
        answers = await asyncio.gather(
            *(self._repeat(attempt, deadline_ms, is_recognised=True) for attempt in attempts)
        )
        replies: dict[DelayKey, CancelReply] = {}
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Failed):
                return answer
            replies.update(zip(request.delay_keys, answer.replies, strict=True))
        return replies

    def _divide_cancels(self, delay_keys: Sequence[DelayKey]) -> Iterator[EndDeferredRequest]:
        """A request for each shard, or several if it has too many."""
        coordinator = self._get_coordinator()
        by_shard: dict[tuple[int, TopicId], list[DelayKey]] = {}
        for delay_key in dict.fromkeys(delay_keys):
            shard = coordinator.partition_of_key(delay_key)
            by_shard.setdefault((shard, delay_key.topic_id), []).append(delay_key)
        for (shard, _), of_shard in by_shard.items():
            for first in range(0, len(of_shard), MAX_CANCELS):
                some = of_shard[first : first + MAX_CANCELS]
                yield EndDeferredRequest(shard, some, deliver_now=False)

    async def deliver_now(self, delay_key: DelayKey, *, timeout_ms: int) -> CancelReply | Failed:
        deadline_ms = self._now_ms() + timeout_ms
        if self._metadata.find_topic(DEFERRED_TOPIC) is None:
            return CancelReply.UNKNOWN  # nothing has ever waited
        shard = self._get_coordinator().partition_of_key(delay_key)
        attempt = partial(self._end_once, EndDeferredRequest(shard, [delay_key], deliver_now=True))
        answer = await self._repeat(attempt, deadline_ms, is_recognised=True)
        return answer if isinstance(answer, Failed) else answer.replies[0]

    async def append(self, target: Target, batch: bytearray, *, timeout_ms: int) -> ErrorCode:
        return await self._appends.append(target, batch, timeout_ms=timeout_ms)

    # -- for other brokers -----------------------------------------------------------------

    async def defer_here(
        self,
        partition: int,
        messages: Sequence[DeferredMessage],
        sent_by: SentBy | None,
        transaction: InTransaction | None,
    ) -> DeferReply:
        coordinator = self._get_coordinator()
        if transaction is None:
            return await coordinator.defer(partition, messages, sent_by)
        if sent_by is None:
            return DeferReply(ErrorCode.INVALID_REQUEST, "a transaction has a producer")
        async with self._transactions.join(partition, sent_by, transaction) as find_refusal:
            return await coordinator.defer(partition, messages, sent_by, find_refusal)

    def end_transaction_here(
        self, partition: int, marker: TransactionMarker
    ) -> Awaitable[ErrorCode]:
        return self._get_coordinator().end_transaction(partition, marker)

    async def cancel_here(
        self, partition: int, delay_keys: Sequence[DelayKey]
    ) -> tuple[CancelReply, ...] | Failed:
        return await self._get_coordinator().cancel(partition, delay_keys)

    async def deliver_now_here(self, partition: int, delay_key: DelayKey) -> CancelReply | Failed:
        try:
            return await self._get_coordinator().deliver_now(partition, delay_key)
        except Refusal as refusal:
            return Failed(refusal.code)

    async def append_here(
        self, target: Target, batch: bytearray, *, timeout_ms: int
    ) -> DeliveryReply:
        return await self._appends.append_here(target, batch, timeout_ms=timeout_ms)

    async def take_intake_here(self, intake: HalfIntake) -> IntakeReply:
        return await self._get_coordinator().take_intake(intake)

    def log_ends_here(self, sources: Sequence[Target]) -> list[int]:
        return self._appends.log_ends(sources)

    # -- one attempt -----------------------------------------------------------------------

    async def _defer_once(
        self,
        shard: int,
        messages: Sequence[DeferredMessage],
        sent_by: SentBy | None,
        transaction: InTransaction | None,
    ) -> DeferReply:
        node = self._find_leader(shard)
        if node is None:
            return DeferReply(ErrorCode.LEADER_NOT_AVAILABLE)
        if node.id == self._own_id:
            return await self.defer_here(shard, messages, sent_by, transaction)
        request = DeferMessagesRequest(shard, messages, sent_by, transaction)
        response = await self._ask(
            node,
            PrivateKey.DEFER_MESSAGES,
            partial(encode_defer_messages, request),
            DEFER_MESSAGES_VERSIONS if transaction is None else WITH_TRANSACTIONS,
        )
        return DeferReply(response.code, response.message)

    async def _end_once(self, request: EndDeferredRequest) -> "_Ends | Failed":
        node = self._find_leader(request.partition)
        if node is None:
            return Failed(ErrorCode.LEADER_NOT_AVAILABLE)
        if node.id == self._own_id:
            return await self._end_here(request)
        response = await self._ask(
            node,
            PrivateKey.END_DEFERRED,
            partial(encode_end_deferred, request),
            WITH_SEVERAL_CANCELS if len(request.delay_keys) > 1 else DEFERRED_VERSIONS,
        )
        if response.code is not ErrorCode.NONE:
            return Failed(response.code)
        return _Ends(decode_ends(response.payload))

    async def _end_here(self, request: EndDeferredRequest) -> "_Ends | Failed":
        partition, delay_keys, deliver_now = request
        if deliver_now:
            reply = await self.deliver_now_here(partition, delay_keys[0])
            return reply if isinstance(reply, Failed) else _Ends((reply,))
        replies = await self.cancel_here(partition, delay_keys)
        return replies if isinstance(replies, Failed) else _Ends(replies)

    def _find_leader(self, shard: int) -> BrokerNode | None:
        topic = self._metadata.find_topic(DEFERRED_TOPIC)
        if topic is None or shard >= len(topic.partitions):
            return None
        return self._metadata.brokers.get(topic.partitions[shard].leader)

    async def _ask(
        self,
        node: BrokerNode,
        key: PrivateKey,
        body: Callable[[int], bytes],
        versions: range = DEFERRED_VERSIONS,
    ) -> PrivateResponse:
        timeout_ms = self._calls_config().request_timeout_ms
        try:
            return await self._brokers.call_private(
                node, key, versions, body, timeout_ms=timeout_ms
            )
        except ConnectionError as error:
            return PrivateResponse(ErrorCode.NETWORK_EXCEPTION, str(error), 0, 0)

    # -- until it is done ------------------------------------------------------------------

    async def _repeat(
        self, attempt: Callable[[], Awaitable[Reply]], deadline_ms: int, *, is_recognised: bool
    ) -> Reply:
        """`is_recognised`: a second attempt changes nothing if the first was successful."""
        pause_ms = FIRST_PAUSE_MS
        while True:
            reply = await attempt()
            code = reply.code
            is_repeated = code in _CERTAIN or (is_recognised and code in _UNCERTAIN)
            is_late = self._now_ms() + pause_ms >= deadline_ms
            if not is_repeated or is_late or self._is_closed:
                return reply
            await self._pause(pause_ms)
            pause_ms = min(2 * pause_ms, MAX_PAUSE_MS)

    async def _pause(self, duration_ms: int) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._timers.add_after(duration_ms, partial(_resolve, over))
        self._pauses.add(over)
        try:
            await over
        finally:
            self._pauses.discard(over)
            self._timers.cancel(timer)


def _resolve(over: "asyncio.Future[None]") -> None:
    if not over.done():
        over.set_result(None)
