"""Runs the readers of half topics on a broker, and keeps them informed of metadata changes."""

from collections.abc import Coroutine
from typing import Any

from penstock.inter_broker.half_calls import HalfCalls
from penstock.inter_broker.half_readers import HalfReaders
from penstock.inter_broker.half_topics import HalfTopics
from penstock.model.cluster import UpdateMetadataRequest
from penstock.server.context import BrokerContext
from penstock.server.half_sources import ReplicaSourceLog


class RunningHalfReaders:
    """Owned by the event loop."""

    def __init__(self, context: BrokerContext, topics: HalfTopics, calls: HalfCalls) -> None:
        self._context = context
        self._log = ReplicaSourceLog(context)
        self._readers = HalfReaders(
            context.broker_id,
            topics=topics,
            calls=calls,
            log=self._log,
            timers=context.timers,
            wall_ms=context.wall_ms,
            start=self._start,
            logger=context.get_logger("deferred_coordinator"),
        )
        context.metadata.listen(self._on_update)
        self._readers.update()

    def close(self) -> None:
        """No reader goes on; those that wait end."""
        self._readers.close()
        self._log.close()

    def _on_update(self, update: UpdateMetadataRequest) -> None:
        self._readers.update()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._context.run(self._when_logs_are_ready(work))

    async def _when_logs_are_ready(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await self._context.logs_ready.wait()
        except BaseException:
            work.close()
            raise
        await work
