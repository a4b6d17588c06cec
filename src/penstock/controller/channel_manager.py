"""Delivers the controller's requests: one queue per broker, in order, retried until applied.

A request is never dropped while its broker is registered. Queues are bounded: one that overflows
is cleared and the broker gets the full state instead. Requests are numbered, so that a broker
recognizes a late duplicate.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.controller.interface import ControllerChannel
from penstock.controller.state import AddressedRequest
from penstock.logs.event_logger import EventLogger
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerRequest,
    ControllerRequestBody,
)
from penstock.model.errors import ErrorCode, Refusal

MAX_PENDING = 1000
FIRST_BACKOFF_MS = 50
MAX_BACKOFF_MS = 2000

# True: applied. False: the broker's registration or this controller's epoch ended first.
Delivery = asyncio.Future[bool]


class _Pending(NamedTuple):
    request: ControllerRequest
    delivery: Delivery


class ChannelDependencies(NamedTuple):
    """Dependencies of a request queue on its controller."""

    channel: ControllerChannel
    full_state: Callable[[BrokerId], tuple[ControllerRequestBody, ...]]  # as of now
    on_stale_controller: Callable[[], None]  # a broker knows a newer controller
    wait_ms: Callable[[int], Awaitable[None]]
    logger: EventLogger
    # Request numbers: one sequence for all brokers and for every time that this broker becomes the
    # active controller, because it may do so twice in the same controller epoch.
    numbers: Iterator[int]


class ControllerChannelManager:
    """The request queues of all live brokers.

    Owned by the controller's task; the task of each queue only sends.
    """

    def __init__(self, tasks: asyncio.TaskGroup, dependencies: ChannelDependencies) -> None:
        self._tasks = tasks
        self._dependencies = dependencies
        self._queues: dict[BrokerId, _RequestQueue] = {}

    def set_brokers(self, brokers: Mapping[BrokerId, BrokerNode]) -> None:
        """Open queues for new brokers, close those of brokers that went or restarted."""
        for broker, queue in list(self._queues.items()):
            if broker not in brokers or brokers[broker].epoch != queue.epoch:
                self._queues.pop(broker).close()
        for broker, node in brokers.items():
            if broker not in self._queues:
                self._queues[broker] = _RequestQueue(node, self._tasks, self._dependencies)

    def send(self, requests: Sequence[AddressedRequest]) -> list[Delivery]:
        return [self._queues[broker].put(request) for broker, request in requests]

    def close(self) -> None:
        self.set_brokers({})


class _RequestQueue:
    def __init__(
        self, node: BrokerNode, tasks: asyncio.TaskGroup, dependencies: ChannelDependencies
    ) -> None:
        self.epoch: BrokerEpoch = node.epoch
        self._node = node
        self._dependencies = dependencies
        self._pending: deque[_Pending] = deque()
        self._limit = MAX_PENDING
        self._sending: _Pending | None = None
        self._wake = asyncio.Event()
        self._task = tasks.create_task(self._run(), name=f"controller-to-broker-{node.id}")

    def put(self, body: ControllerRequestBody) -> Delivery:
        delivery = self._append(body)
        if len(self._pending) > self._limit:
            self._send_full_state()
        self._wake.set()
        return delivery

    def _append(self, body: ControllerRequestBody) -> Delivery:
        delivery: Delivery = asyncio.get_running_loop().create_future()
        request = ControllerRequest(self.epoch, body, next(self._dependencies.numbers))
        self._pending.append(_Pending(request, delivery))
        return delivery

    def close(self) -> None:
        self._task.cancel()
        unsent = [*self._pending] if self._sending is None else [self._sending, *self._pending]
        self._pending.clear()
        for pending in unsent:
            _complete(pending.delivery, applied=False)

    def _send_full_state(self) -> None:
        """Queue overflow: drop pending requests and send the full state, which subsumes them."""
        dropped = [pending.delivery for pending in self._pending]
        self._dependencies.logger.warning(
            "controller_requests_dropped",
            f"broker {self._node.id} has {len(dropped)} controller requests pending; sending the "
            f"full state instead",
        )
        self._pending.clear()
        full_state = self._dependencies.full_state(self._node.id)
        # Or the next request would overflow the queue again.
        self._limit = max(MAX_PENDING, 2 * len(full_state))
        for body in full_state:
            self._append(body)

        def complete_dropped(last: Delivery) -> None:
            for delivery in dropped:
                _complete(delivery, applied=last.result())

        self._pending[-1].delivery.add_done_callback(complete_dropped)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                pending = self._sending = self._pending.popleft()
                applied = await self._send(pending.request)
                self._sending = None
                _complete(pending.delivery, applied=applied)

    async def _send(self, request: ControllerRequest) -> bool:
        backoff_ms = FIRST_BACKOFF_MS
        while True:
            try:
                await self._dependencies.channel.send(self._node, request)
            except ConnectionError as error:
                if backoff_ms == FIRST_BACKOFF_MS:
                    self._dependencies.logger.warning(
                        "broker_unreachable",
                        f"broker {self._node.id} cannot be reached ({error}); retrying its "
                        f"controller requests until it answers or its registration ends",
                    )
                await self._dependencies.wait_ms(backoff_ms)
                backoff_ms = min(2 * backoff_ms, MAX_BACKOFF_MS)
            except Refusal as refusal:
                self._on_refusal(refusal)
                return False
            else:
                return True

    def _on_refusal(self, refusal: Refusal) -> None:
        if refusal.code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._dependencies.on_stale_controller()
        elif refusal.code is not ErrorCode.STALE_BROKER_EPOCH:  # stale: the broker has restarted
            raise refusal


def _complete(delivery: Delivery, *, applied: bool) -> None:
    if not delivery.done():
        delivery.set_result(applied)
