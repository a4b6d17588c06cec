"""The life of a coordinator's shards: taken, loaded, dropped with the partitions that are led here.

A coordinator adds what can be asked of them. Owned by the event loop. Invariant: a shard serves
only while the partition is led under the same term that it was loaded in.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.coordinators.runtime.coordinator_shard import CoordinatorShard, Status
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers
from penstock.coordinators.runtime.key_hash import partition_for
from penstock.model.errors import ErrorCode

Shard = TypeVar("Shard", bound=CoordinatorShard[Any])

LOADS_AT_A_TIME = 4
RELOAD_PAUSE_MS = 100  # so that a shard that fails at once again does not spin


class CoordinatorRuntime(ABC, Generic[Shard]):
    """`run` is its task; everything else is called beside it, on the same loop."""

    def __init__(self, *, log: CoordinatorLog, timers: CoordinatorTimers) -> None:
        self._log = log
        self._timers = timers
        self._shards: dict[int, Shard] = {}
        self._tasks: asyncio.TaskGroup | None = None  # while `run` is under way
        self._to_start: list[tuple[Coroutine[Any, Any, None], str]] = []  # until then
        self._loading = asyncio.Semaphore(LOADS_AT_A_TIME)
        self._closed = asyncio.Event()

    @abstractmethod
    def _new_shard(self, partition: int) -> Shard: ...

    @abstractmethod
    def _planned_partitions(self) -> int:
        """Of the topic, while it does not exist."""

    async def run(self) -> None:
        """Until `close`. Loads the shards of partitions as they are taken."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            waiting, self._to_start = self._to_start, []
            for work, name in waiting:
                self._start(work, name)
            await self._closed.wait()

    def close(self) -> None:
        """Whoever waits is sent elsewhere, and no more is taken."""
        self._closed.set()
        while self._to_start:
            self._to_start.pop()[0].close()
        for partition in list(self._shards):
            self.drop_partition(partition)

    # -- partitions ------------------------------------------------------------------------

    def take_partition(self, partition: int, leader_epoch: int) -> None:
        """This broker leads it, from now on or still."""
        known = self._shards.get(partition)
        if known is not None and known.status is not Status.GONE and known.is_led:
            known.leader_epoch = leader_epoch
            return  # a later epoch of the same time of leading: nobody else has written
        if known is not None:
            known.end(ErrorCode.NOT_COORDINATOR)
        if self._closed.is_set():
            return
        shard = self._shards[partition] = self._new_shard(partition)
        shard.leader_epoch = leader_epoch
        if not shard.is_led:
            self.drop_partition(partition)  # lost again before we heard of it
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

    def _load(self, shard: Shard) -> None:
        self._start(self._load_in_turn(shard), f"load {shard}")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """A task of `run`, now or when that begins."""
        if self._closed.is_set():
            work.close()
        elif self._tasks is None:
            self._to_start.append((work, name))
        else:
            self._tasks.create_task(work, name=name)

    async def _load_in_turn(self, shard: Shard) -> None:
        async with self._loading:
            if shard.status is Status.LOADING:
                await shard.load()

    def _load_again(self, shard: Shard) -> None:
        self._timers.add_after(RELOAD_PAUSE_MS, partial(self._load_if_led, shard))

    def _load_if_led(self, shard: Shard) -> None:
        if self._shards.get(shard.partition) is shard and shard.status is Status.LOADING:
            self._load(shard)

    # -- finding the shard -----------------------------------------------------------------

    def partition_of(self, name: str) -> int:
        return partition_for(name, self._log.partition_count() or self._planned_partitions())

    async def ensure_topic(self) -> ErrorCode:
        """For who looks for a coordinator: NONE once its topic exists."""
        if self._log.partition_count() is not None:
            return ErrorCode.NONE
        return await self._log.ensure_topic()

    def find_shard(self, partition: int) -> Shard | None:
        return self._shards.get(partition)

    def _find_shard(self, name: str) -> Shard | ErrorCode:
        """One that can be asked, or why there is none."""
        count = self._log.partition_count()
        if count is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._find_shard_of(partition_for(name, count))

    def _find_shard_of(self, partition: int) -> Shard | ErrorCode:
        if self._closed.is_set():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self._shards.get(partition)
        if shard is None or shard.status is Status.GONE or not shard.is_led:
            return ErrorCode.NOT_COORDINATOR
        if shard.status is Status.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return shard
