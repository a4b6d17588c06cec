"""BrokerContext: a broker's identity, config, clocks, log, metadata, replicas and tasks.

Not a registry: parts that only some need (controller, coordinators, listeners) are passed as
arguments. Built once, before all parts, and owned by the event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from penstock.config.effective_config import EffectiveConfig
from penstock.logs.event_logger import EventLogger
from penstock.model.cluster import BrokerId
from penstock.model.stop_requests import BrokerEnding
from penstock.purgatory.timing_wheel import Timer
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import Clock, ReplicaManager


class BrokerTimers(Clock, Protocol):
    """`purgatory.LoopTimers`, or a clock that tests advance."""

    def add_after(
        self, delay_ms: int, value: Callable[[], None], /
    ) -> Timer[Callable[[], None]]: ...


class BrokerContext(NamedTuple):  # a frozen dataclass costs 10 times the start-up time
    broker_id: BrokerId
    config: Callable[[], EffectiveConfig]  # the effective broker config as of now
    timers: BrokerTimers
    wall_ms: Callable[[], int]
    metadata: MetadataCache
    replicas: ReplicaManager
    tasks: asyncio.TaskGroup  # a task that fails ends the broker
    get_logger: Callable[[str], EventLogger]  # by component
    # Set once the recovered logs are flushed: coordinators load their state only then.
    logs_ready: asyncio.Event

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """BrokerEnding if a part has failed already: the task group cancels the others."""
        try:
            self.tasks.create_task(work)
        except RuntimeError as error:
            work.close()
            raise BrokerEnding("the broker is ending, because a part of it failed") from error

    def run_when_logs_ready(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        async def wait_and_run() -> None:
            await self.logs_ready.wait()
            await work()

        self.tasks.create_task(wait_and_run(), name=name)
