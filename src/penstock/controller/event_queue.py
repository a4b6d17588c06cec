"""The controller's request queue: bounded, filled by callers, served by the controller's task.

Every request is answered exactly once: with its result, or with NOT_CONTROLLER when this broker
stops being the active controller. A request that was queued is carried out, even if its caller has
been answered REQUEST_TIMED_OUT. Callers wait here for the deliveries that a result depends on, so
that the controller's task does not.
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
DECISION_MS = 1_000  # least time for a decision: a timeout of 0 still learns what is refused

Result = TypeVar("Result")
Work = Callable[[ActiveController], Awaitable[DecisionResult[Result]]]
Late = Callable[[Any, ApiError], Any]  # a result and the timeout -> what is returned instead

NOT_CONTROLLER = ApiError(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER.message)
_RESIGNED = ApiError(
    ErrorCode.NOT_CONTROLLER,
    "this broker resigned as controller before this was complete; the next controller continues",
)
_TOO_MANY_QUEUED = ApiError(
    ErrorCode.REQUEST_TIMED_OUT,
    f"the controller has {MAX_QUEUED_REQUESTS} requests to decide first; nothing was begun, so "
    "try again later",
)


def answer_late(result: object, error: ApiError) -> ApiError:
    """The error instead of a result that not every broker knows in time."""
    return error


class NotActiveController(Exception):
    """Another broker is the active controller, or there is none at the moment."""


class _TooManyQueued(Exception):
    """There was no room in the queue in time."""


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

    async def ask(
        self,
        work: Work[Result],
        count: int,
        timeout_ms: int,
        late: Late = answer_late,
    ) -> list[Result | ApiError]:
        """`count` results, each once it is true on the brokers as well.

        A result that is not true there in time is returned as `late` makes it. Nothing waits
        with a timeout of 0 or less, so everything that takes effect is late then, as in Kafka.
        """
        now = asyncio.get_running_loop().time()
        deadline = now + max(timeout_ms, 0) / 1000
        try:
            decided = await self._decide(work, max(deadline, now + DECISION_MS / 1000))
        except NotActiveController:
            return [NOT_CONTROLLER] * count
        except _TooManyQueued:
            return [_TOO_MANY_QUEUED] * count
        if decided is None:
            return [_timed_out(timeout_ms)] * count
        await _wait_all(decided.deliveries.values(), deadline)
        return [
            result
            if isinstance(result, ApiError)
            else _settle(result, decided.deliveries.get(index, ()), timeout_ms, late)
            for index, result in enumerate(decided.results)
        ]

    async def ask_one(
        self, work: Work[Result], timeout_ms: int, late: Late = answer_late
    ) -> Result | ApiError:
        [result] = await self.ask(work, 1, timeout_ms, late)
        return result

    async def ask_or_raise(self, work: Work[Result], timeout_ms: int) -> Result:
        """Refusal in place of an ApiError."""
        result = await self.ask_one(work, timeout_ms)
        if isinstance(result, ApiError):
            raise Refusal(result.code, result.message)
        return result

    async def serve_next(self, active: ActiveController) -> None:
        request = self._queue.popleft()
        if request.result.done():  # its caller was cancelled
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

    async def _decide(self, work: Work[Result], deadline: float) -> DecisionResult[Result] | None:
        """None: not decided yet; the request stays in the queue."""
        result = await self._enqueue(work, deadline)
        remaining = max(deadline - asyncio.get_running_loop().time(), 0)
        try:
            await asyncio.wait({result}, timeout=remaining)
        except asyncio.CancelledError:
            result.cancel()
            raise
        if not result.done():
            result.add_done_callback(_ignore_error)
            return None
        return result.result()

    async def _enqueue(
        self, work: Work[Result], deadline: float
    ) -> asyncio.Future[DecisionResult[Result]]:
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise _TooManyQueued from None
        if not self.accepts_requests:
            self._slots.release()
            raise NotActiveController
        request = _QueuedRequest(work, asyncio.get_running_loop().create_future())
        request.result.add_done_callback(lambda _: self._slots.release())
        self._queue.append(request)
        self._wake()
        return request.result


async def _wait_all(by_result: Iterable[Sequence[Delivery]], deadline: float) -> None:
    pending = {delivery for deliveries in by_result for delivery in deliveries}
    if pending:
        remaining = max(deadline - asyncio.get_running_loop().time(), 0)
        await asyncio.wait(pending, timeout=remaining)


def _settle(
    result: Result, deliveries: Sequence[Delivery], timeout_ms: int, late: Late
) -> Result | ApiError:
    if not deliveries:
        return result
    if timeout_ms <= 0 or any(not delivery.done() for delivery in deliveries):
        settled: Result | ApiError = late(result, _timed_out(timeout_ms))
        return settled
    return _RESIGNED if any(delivery.cancelled() for delivery in deliveries) else result


def _ignore_error(result: asyncio.Future[Any]) -> None:
    """Its caller was answered REQUEST_TIMED_OUT: nobody reads the error."""
    if not result.cancelled():
        result.exception()


def _refuse(request: _QueuedRequest) -> None:
    if not request.result.done():
        request.result.set_exception(NotActiveController())


def _timed_out(timeout_ms: int) -> ApiError:
    return ApiError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"not done on every broker within {timeout_ms} ms; it continues, so check again later",
    )
