"""The readers of half topics on this broker: one per group and partition that it leads.

Starts and ends them as the metadata says. Owned by the event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from penstock.coordinators.runtime.dependencies import CoordinatorTimers
from penstock.inter_broker.half_calls import HalfCalls
from penstock.inter_broker.half_reader import HalfReader, SourceLog
from penstock.inter_broker.half_topics import HalfSource, HalfTopics
from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.model.cluster import BrokerId


class HalfReaders:
    def __init__(
        self,
        own_id: BrokerId,
        *,
        topics: HalfTopics,
        calls: HalfCalls,
        log: SourceLog,
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        start: Callable[[Coroutine[Any, Any, None]], None],
        logger: EventLogger,
    ) -> None:
        self._own_id = own_id
        self._topics = topics
        self._calls = calls
        self._log = log
        self._timers = timers
        self._start = start
        self._notes = RateLimitedLogger(logger, now_ms=wall_ms, add_timer=timers.add_after)
        self._running: dict[HalfSource, object] = {}  # with the token of its task
        self._pauses: set[asyncio.Future[None]] = set()
        self._is_closed = False

    def update(self) -> None:
        """After a change of the metadata."""
        led = {source for source in self._topics.sources() if source.leader == self._own_id}
        for source in self._running.keys() - led:
            del self._running[source]
        for source in led - self._running.keys():
            if not self._is_closed:
                token = self._running[source] = object()
                self._start(self._read(source, token))

    def close(self) -> None:
        self._is_closed = True
        self._running.clear()
        for over in self._pauses:
            _resolve(over)

    async def _read(self, source: HalfSource, token: object) -> None:
        reader = HalfReader(
            source,
            self._topics,
            self._calls,
            self._log,
            partial(self._is_wanted, source, token),
            self._pause,
            self._notes,
        )
        await reader.run()

    def _is_wanted(self, source: HalfSource, token: object) -> bool:
        return self._running.get(source) is token

    async def _pause(self, duration_ms: int) -> None:
        if self._is_closed:
            return
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
