"""The controller's request queue: bounded, filled by callers, served by the controller's task.

Every request is answered exactly once: with its result, or with NOT_CONTROLLER when this broker
stops being the active controller. Callers wait here for the deliveries that a result depends on,
so that the controller's task does not.
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

Result = TypeVar("Result")
Work = Callable[[ActiveController], Awaitable[DecisionResult[Result]]]

_NOT_CONTROLLER = ApiError(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER.message)
_RESIGNED = ApiError(
    ErrorCode.NOT_CONTROLLER,
    "this broker stopped being the controller before all was done; the next one continues",
)


class NotActiveController(Exception):
    """Another broker is the active controller, or there is none at the moment."""


class _QueuedRequest(NamedTuple):
    work: Work[Any]
    result: asyncio.Future[DecisionResult[Any]]


class ControllerEventQueue:
    """Filled by callers, emptied by the controller's task."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._queue: deque[_QueuedRequest] = deque()
        self._slots = asyncio.Semaphore(MAX_QUEUED_REQUESTS)
        self.accepts_requests = False  # this broker is the active controller

    def __len__(self) -> int:
        return len(self._queue)

    async def ask(self, work: Work[Result], count: int, timeout_ms: int) -> list[Result | ApiError]:
        """`count` results, each once it is true on the brokers as well."""
        deadline = asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1000
        try:
            async with asyncio.timeout_at(deadline):
                decided = await self._enqueue(work)
        except TimeoutError:
            return [_timed_out(timeout_ms)] * count
        except NotActiveController:
            return [_NOT_CONTROLLER] * count
        await _wait_all(decided.deliveries.values(), deadline)
        return [
            _find_error(decided.deliveries.get(index, ()), timeout_ms) or result
            for index, result in enumerate(decided.results)
        ]

    async def ask_one(self, work: Work[Result], timeout_ms: int) -> Result | ApiError:
        [result] = await self.ask(work, 1, timeout_ms)
        return result

    async def ask_or_raise(self, work: Work[Result], timeout_ms: int) -> Result:
        """Refusal in place of an ApiError."""
        result = await self.ask_one(work, timeout_ms)
        if isinstance(result, ApiError):
            raise Refusal(result.code, result.message)
        return result

    async def serve_next(self, active: ActiveController) -> None:
        request = self._queue.popleft()
        if request.result.done():  # its caller has timed out
            return
        try:
            decided = await request.work(active)
        except Refusal as refusal:  # decided before anything was written
            if not request.result.done():
                request.result.set_exception(refusal)
            return
        except BaseException:
            _refuse(request)
            raise
        if not request.result.done():
            request.result.set_result(decided)

    def close(self) -> None:
        """This broker is not the active controller any more."""
        self.accepts_requests = False
        while self._queue:
            _refuse(self._queue.popleft())

    async def _enqueue(self, work: Work[Result]) -> DecisionResult[Result]:
        async with self._slots:
            if not self.accepts_requests:
                raise NotActiveController
            request = _QueuedRequest(work, asyncio.get_running_loop().create_future())
            self._queue.append(request)
            self._wake()
            return await request.result


async def _wait_all(by_result: Iterable[Sequence[Delivery]], deadline: float) -> None:
    pending = {delivery for deliveries in by_result for delivery in deliveries}
    if pending:
        remaining = max(deadline - asyncio.get_running_loop().time(), 0)
        await asyncio.wait(pending, timeout=remaining)


def _find_error(deliveries: Sequence[Delivery], timeout_ms: int) -> ApiError | None:
    if any(not delivery.done() for delivery in deliveries):
        return _timed_out(timeout_ms)
    return _RESIGNED if any(delivery.cancelled() for delivery in deliveries) else None


def _refuse(request: _QueuedRequest) -> None:
    if not request.result.done():
        request.result.set_exception(NotActiveController())


def _timed_out(timeout_ms: int) -> ApiError:
    return ApiError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"not done on every broker within {timeout_ms} ms; it continues, so check again later",
    )
