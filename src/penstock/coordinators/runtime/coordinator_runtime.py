"""CoordinatorRuntime: creates, loads and drops shards as their partitions gain and lose leadership.

A coordinator adds the requests that can be sent to them. It also holds the failure policy: an
unexpected error reloads one shard; too many in a row stop the broker. Owned by the event loop.
Invariant: a shard serves only under the leadership that it was loaded in.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from time import monotonic
from typing import Any, ClassVar, Generic, TypeVar

from penstock.coordinators.runtime.coordinator_shard import CoordinatorShard, Status
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers
from penstock.coordinators.runtime.key_hash import partition_for
from penstock.coordinators.runtime.load_times import LoadStatistics
from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.model.errors import ErrorCode

Shard = TypeVar("Shard", bound=CoordinatorShard[Any, Any])

MAX_CONCURRENT_LOADS = 4
RELOAD_PAUSE_MS = 100  # so that a shard whose load fails at once does not spin
MAX_ERRORS_IN_A_ROW = 3  # unexpected ones in a shard, before the broker stops


class CoordinatorFailed(Exception):
    """A shard keeps failing unexpectedly, so its log or this code is broken."""


class CoordinatorRuntime(ABC, Generic[Shard]):
    """`run` is its task; everything else is called beside it, on the same loop."""

    NAME: ClassVar[str]  # as log lines call it, such as "group coordinator"

    def __init__(
        self,
        *,
        log: CoordinatorLog,
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        logger: EventLogger,
    ) -> None:
        self._log = log
        self._timers = timers
        self._logger = logger
        self._notes = RateLimitedLogger(logger, now_ms=wall_ms, add_timer=timers.add_after)
        self._shards: dict[int, Shard] = {}
        self._tasks: asyncio.TaskGroup | None = None  # while `run` runs
        self._to_start: list[tuple[Coroutine[Any, Any, None], str]] = []  # until then
        self._load_slots = asyncio.Semaphore(MAX_CONCURRENT_LOADS)
        self._closed = asyncio.Event()
        self._failure: CoordinatorFailed | None = None
        self._unexpected_errors = 0
        self._loads = LoadStatistics()

    @abstractmethod
    def _new_shard(self, partition: int) -> Shard: ...

    @abstractmethod
    def _planned_partitions(self) -> int:
        """How many partitions the topic will have, while it does not exist."""

    async def run(self) -> None:
        """Load shards as their partitions are taken, until `close`. Raises CoordinatorFailed."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            to_start, self._to_start = self._to_start, []
            for work, name in to_start:
                self._start(work, name)
            await self._closed.wait()
            if self._failure is not None:
                raise self._failure

    def close(self) -> None:
        """Send all waiting clients to another coordinator; no partition is taken from now on."""
        self._closed.set()
        while self._to_start:
            self._to_start.pop()[0].close()
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            shard.end(ErrorCode.NOT_COORDINATOR)
        if shards:
            self._logger.info("coordinator_closed", f"the {self.NAME} stops", count=len(shards))

    # -- failure policy --------------------------------------------------------------------

    def _on_unexpected_error(self, shard: Shard, trace: str) -> None:
        self._unexpected_errors += 1
        self._logger.error(
            "shard_failed",
            f"unexpected error in {self.NAME} shard {shard}; reloading from the log\n{trace}",
        )
        if shard.errors_in_a_row < MAX_ERRORS_IN_A_ROW or self._failure is not None:
            return
        self._failure = CoordinatorFailed(
            f"{self.NAME} shard {shard} failed {shard.errors_in_a_row} times in a row; "
            "stopping the broker, the errors are in the log above"
        )
        self._closed.set()

    # -- partitions ------------------------------------------------------------------------

    def take_partition(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition, from now on or still."""
        shard = self._shards.get(partition)
        if shard is not None and shard.status is not Status.GONE and shard.is_led:
            shard.leader_epoch = leader_epoch
            return  # a later epoch of the same leadership: nobody else has written
        if shard is not None:
            shard.end(ErrorCode.NOT_COORDINATOR)
        if self._closed.is_set():
            return
        shard = self._shards[partition] = self._new_shard(partition)
        shard.leader_epoch = leader_epoch
        if not shard.is_led:
            self.drop_partition(partition)  # leadership was lost again in the meantime
            return
        ends = self._log.ends(partition)
        if ends.start == ends.end:
            shard.activate()
        else:
            self._load(shard)

    def drop_partition(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.end(ErrorCode.NOT_COORDINATOR)
            self._logger.info(
                "coordinator_unloaded",
                f"{shard} is no longer coordinated here",
                partition=partition,
                leader_epoch=shard.leader_epoch,
            )

    def _load(self, shard: Shard) -> None:
        self._start(self._load_in_slot(shard), f"load {shard}")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start it as a task of `run`, now or when that starts."""
        if self._closed.is_set():
            work.close()
        elif self._tasks is None:
            self._to_start.append((work, name))
        else:
            self._tasks.create_task(work, name=name)

    async def _load_in_slot(self, shard: Shard) -> None:
        async with self._load_slots:
            if shard.status is Status.LOADING:
                began_s = monotonic()
                await shard.load()
                self._loads = self._loads.plus(monotonic() - began_s)

    def _load_again(self, shard: Shard) -> None:
        self._timers.add_after(RELOAD_PAUSE_MS, partial(self._load_if_current, shard))

    def _load_if_current(self, shard: Shard) -> None:
        if self._shards.get(shard.partition) is shard and shard.status is Status.LOADING:
            self._load(shard)

    # -- finding the shard -----------------------------------------------------------------

    def partition_of(self, name: str) -> int:
        return partition_for(name, self._log.partition_count() or self._planned_partitions())

    async def ensure_topic(self) -> ErrorCode:
        """Called by FindCoordinator: NONE once the topic exists."""
        if self._log.partition_count() is not None:
            return ErrorCode.NONE
        return await self._log.ensure_topic()

    def find_shard(self, partition: int) -> Shard | None:
        return self._shards.get(partition)

    def _find_shard(self, name: str) -> Shard | ErrorCode:
        """The active shard of this name, or why there is none."""
        count = self._log.partition_count()
        if count is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._find_active_shard(partition_for(name, count))

    def _find_active_shard(self, partition: int) -> Shard | ErrorCode:
        if self._closed.is_set():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self._shards.get(partition)
        if shard is None or shard.status is Status.GONE or not shard.is_led:
            return ErrorCode.NOT_COORDINATOR
        if shard.status is Status.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return shard
