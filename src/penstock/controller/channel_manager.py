"""The way of the controller's orders: one outbox a broker, in order, tried until it is gone.

An order is never dropped while its broker lives. Outboxes are bounded: one that is full is
emptied, and the broker is told everything anew. By an order's number its broker knows a copy that
comes late.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.controller.interface import ControllerChannel
from penstock.controller.state import AddressedRequest
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerRequest,
    ControllerRequestBody,
)
from penstock.model.errors import ErrorCode, Refusal

MAX_PENDING = 1000
FIRST_PAUSE_MS = 50
LONGEST_PAUSE_MS = 2000

Delivery = asyncio.Future[bool]  # True: applied. False: the broker, or the leadership, went first


class _Item(NamedTuple):
    sent: ControllerRequest
    delivery: Delivery


class ChannelDependencies(NamedTuple):
    """What an outbox needs of its controller."""

    channel: ControllerChannel
    everything: Callable[[BrokerId], tuple[ControllerRequestBody, ...]]  # as of now
    on_stale: Callable[[], None]  # a broker knows of a newer controller
    wait_ms: Callable[[int], Awaitable[None]]
    report: Callable[[str], None]
    # Of the orders: one series for all brokers and all terms of a controller. A term that begins
    # anew may have the same epoch, and brokers count on.
    numbers: Iterator[int]


class ControllerChannelManager:
    """Of all live brokers. Owned by the controller's task; each outbox's task only sends."""

    def __init__(self, tasks: asyncio.TaskGroup, wiring: ChannelDependencies) -> None:
        self._tasks = tasks
        self._wiring = wiring
        self._outboxes: dict[BrokerId, _RequestQueue] = {}

    def follow(self, brokers: Mapping[BrokerId, BrokerNode]) -> None:
        """Begin with those that came, end those that went; another life is another broker."""
        for broker, outbox in list(self._outboxes.items()):
            if broker not in brokers or brokers[broker].epoch != outbox.epoch:
                self._outboxes.pop(broker).close()
        for broker, node in brokers.items():
            if broker not in self._outboxes:
                self._outboxes[broker] = _RequestQueue(node, self._tasks, self._wiring)

    def push(self, orders: Sequence[AddressedRequest]) -> list[Delivery]:
        return [self._outboxes[each.broker].push(each.request) for each in orders]

    def close(self) -> None:
        self.follow({})


class _RequestQueue:
    def __init__(
        self, node: BrokerNode, tasks: asyncio.TaskGroup, wiring: ChannelDependencies
    ) -> None:
        self.epoch: BrokerEpoch = node.epoch
        self._broker = node.id
        self._node = node
        self._wiring = wiring
        self._pending: deque[_Item] = deque()
        self._limit = MAX_PENDING
        self._sending: _Item | None = None
        self._wake = asyncio.Event()
        self._task = tasks.create_task(self._run(), name=f"controller-orders-{node.id}")

    def push(self, order: ControllerRequestBody) -> Delivery:
        delivery = self._put(order)
        if len(self._pending) > self._limit:
            self._start_anew()
        self._wake.set()
        return delivery

    def _put(self, order: ControllerRequestBody) -> Delivery:
        delivery: Delivery = asyncio.get_running_loop().create_future()
        sent = ControllerRequest(self.epoch, order, next(self._wiring.numbers))
        self._pending.append(_Item(sent, delivery))
        return delivery

    def close(self) -> None:
        self._task.cancel()
        left = [*self._pending] if self._sending is None else [self._sending, *self._pending]
        self._pending.clear()
        for item in left:
            _settle(item.delivery, applied=False)

    def _start_anew(self) -> None:
        """All that waits is in the state by now: told as a whole, it is told."""
        waiting = [item.delivery for item in self._pending]
        self._wiring.report(
            f"broker {self._broker} has not taken {len(waiting)} orders of the controller; it "
            f"gets the whole state in their place"
        )
        self._pending.clear()
        whole = self._wiring.everything(self._broker)
        self._limit = max(MAX_PENDING, 2 * len(whole))  # or each order would start it anew
        for order in whole:
            self._put(order)

        def settle_all(last: Delivery) -> None:
            for delivery in waiting:
                _settle(delivery, applied=last.result())

        self._pending[-1].delivery.add_done_callback(settle_all)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                item = self._sending = self._pending.popleft()
                applied = await self._send(item.sent)
                self._sending = None
                _settle(item.delivery, applied=applied)

    async def _send(self, sent: ControllerRequest) -> bool:
        pause_ms = FIRST_PAUSE_MS
        while True:
            try:
                await self._wiring.channel.send(self._node, sent)
            except ConnectionError as error:
                if pause_ms == FIRST_PAUSE_MS:
                    self._wiring.report(
                        f"broker {self._broker} cannot be reached ({error}); its orders are "
                        f"tried again until it answers or its registration ends"
                    )
                await self._wiring.wait_ms(pause_ms)
                pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
            except Refusal as refusal:
                return self._give_up(refusal)
            else:
                return True

    def _give_up(self, refusal: Refusal) -> bool:
        if refusal.code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._wiring.on_stale()
        elif refusal.code is not ErrorCode.STALE_BROKER_EPOCH:  # for a life that is over
            raise refusal
        return False


def _settle(delivery: Delivery, *, applied: bool) -> None:
    if not delivery.done():
        delivery.set_result(applied)
