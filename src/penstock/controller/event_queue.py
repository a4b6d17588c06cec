"""Requests that wait for the controller's task: a bounded queue, and the askers' side of it.

Every request is answered once: with its outcome, or refused when the controller stops leading.
What an answer promises is waited for here, beside the task.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from penstock.controller.active_controller import ActiveController, DecisionResult
from penstock.controller.channel_manager import Delivery
from penstock.controller.interface import ApiError
from penstock.model.errors import ErrorCode, Refusal

MAX_QUEUED_REQUESTS = 500

Answer = TypeVar("Answer")
Work = Callable[[ActiveController], Awaitable[DecisionResult[Answer]]]

_NOT_CONTROLLER = ApiError(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER.message)
_GIVEN_UP = ApiError(
    ErrorCode.NOT_CONTROLLER,
    "this broker stopped being the controller before all was done; the next one goes on with it",
)


class NotActiveController(Exception):
    """Another broker is the controller, or none is at the moment."""


class _Request(NamedTuple):
    work: Work[Any]
    outcome: asyncio.Future[DecisionResult[Any]]


class ControllerEventQueue:
    """Filled by whoever asks, emptied by the controller's task."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: deque[_Request] = deque()
        self._room = asyncio.Semaphore(MAX_QUEUED_REQUESTS)
        self.is_open = False  # somebody leads here, and takes requests

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, work: Work[Answer], count: int, timeout_ms: int) -> list[Answer | ApiError]:
        """`count` answers, each when what it says is true on the brokers as well."""
        deadline = asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1000
        try:
            async with asyncio.timeout_at(deadline):
                outcome = await self._enqueue(work)
        except TimeoutError:
            return [_late(timeout_ms)] * count
        except NotActiveController:
            return [_NOT_CONTROLLER] * count
        await _wait_all(outcome.waits.values(), deadline)
        return [
            _find_problem(outcome.waits.get(place, ()), timeout_ms) or answer
            for place, answer in enumerate(outcome.answers)
        ]

    async def ask_one(self, work: Work[Answer], timeout_ms: int) -> Answer | ApiError:
        [answer] = await self.ask(work, 1, timeout_ms)
        return answer

    async def ask_or_raise(self, work: Work[Answer], timeout_ms: int) -> Answer:
        answer = await self.ask_one(work, timeout_ms)
        if isinstance(answer, ApiError):
            raise Refusal(answer.code, answer.message)
        return answer

    async def answer_next(self, term: ActiveController) -> None:
        request = self._waiting.popleft()
        if request.outcome.done():  # whoever asked has given up
            return
        try:
            outcome = await request.work(term)
        except BaseException:
            _refuse(request)
            raise
        if not request.outcome.done():
            request.outcome.set_result(outcome)

    def close(self) -> None:
        """Nobody leads here any more."""
        self.is_open = False
        while self._waiting:
            _refuse(self._waiting.popleft())

    async def _enqueue(self, work: Work[Answer]) -> DecisionResult[Answer]:
        async with self._room:
            if not self.is_open:
                raise NotActiveController
            request = _Request(work, asyncio.get_running_loop().create_future())
            self._waiting.append(request)
            self._wake()
            return await request.outcome


async def _wait_all(waits: Iterable[Sequence[Delivery]], deadline: float) -> None:
    deliveries = {delivery for each in waits for delivery in each}
    if deliveries:
        left = max(deadline - asyncio.get_running_loop().time(), 0)
        await asyncio.wait(deliveries, timeout=left)


def _find_problem(deliveries: Sequence[Delivery], timeout_ms: int) -> ApiError | None:
    if any(not delivery.done() for delivery in deliveries):
        return _late(timeout_ms)
    return _GIVEN_UP if any(delivery.cancelled() for delivery in deliveries) else None


def _refuse(request: _Request) -> None:
    if not request.outcome.done():
        request.outcome.set_exception(NotActiveController())


def _late(timeout_ms: int) -> ApiError:
    return ApiError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"not done on every broker within {timeout_ms} ms; what was begun goes on: look again",
    )
