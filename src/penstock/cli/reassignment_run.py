"""Runs a plan's reassignments, some at once, with progress, until done or stopped.

What is known of a run is in the cluster: planning again continues one that was stopped. A stop
cancels what is under way; what has finished stays.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.cli.throttled_reassignments import begin_throttle, end_throttle
from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError
from penstock.client.reassignments import ReassignmentResult
from penstock.controller.balancing.layout import PlannedReassignment
from penstock.model.admin import ElectionType
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

POLL_S = 0.5
SIZES_EVERY_S = 2.0
APPLIED_WITHIN_S = 30.0  # until brokers show what the controller has decided


class RunProgress(NamedTuple):
    done: int
    under_way: int
    total: int
    copied_bytes: int
    total_bytes: int
    seconds: float
    absent: tuple[BrokerId, ...]  # brokers that replicas wait for


@dataclass
class RunResult:
    done: list[TopicPartition] = field(default_factory=list)
    cancelled: list[TopicPartition] = field(default_factory=list)  # by this run, when stopped
    overtaken: list[TopicPartition] = field(default_factory=list)  # changed by somebody else
    refused: dict[TopicPartition, str] = field(default_factory=dict)
    left: int = 0  # not begun
    copied_bytes: int = 0
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        return not (self.cancelled or self.overtaken or self.refused or self.left)


class ReassignmentRun:
    """Owned by the command's event loop; `stop` may be set at any time."""

    def __init__(
        self,
        client: ClusterClient,
        planned: Sequence[PlannedReassignment],
        *,
        at_once: int,
        stop: asyncio.Event,
        show: Callable[[RunProgress], None],
    ) -> None:
        self._client = client
        self._pending = list(planned)
        self._at_once = at_once
        self._stop = stop
        self._show = show
        self._total = len(planned)
        self._total_bytes = sum(planned_one.copied_bytes for planned_one in planned)
        self._under_way: dict[TopicPartition, PlannedReassignment] = {}
        self._partly: int = 0  # bytes of what is under way
        self._sized_at = 0.0
        self._began_at = time.monotonic()
        self.result = RunResult()

    async def run(self) -> RunResult:
        while (self._pending or self._under_way) and not self._stop.is_set():
            await self._begin_some()
            await self._finish_some()
            await self._report()
            if self._under_way:
                await self._wait()
        if self._under_way:
            await self._cancel()
        await self._elect_leaders()
        self.result.left = len(self._pending)
        self.result.seconds = time.monotonic() - self._began_at
        return self.result

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(POLL_S):
                await self._stop.wait()
        except TimeoutError:
            pass

    async def _begin_some(self) -> None:
        count = max(0, self._at_once - len(self._under_way))
        some, self._pending = self._pending[:count], self._pending[count:]
        if not some:
            return
        results = await self._client.reassignments.alter({one.tp: one.after for one in some})
        for one in some:
            refused = _refusal(results, one.tp)
            if refused is None:
                self._under_way[one.tp] = one
            else:
                self.result.refused[one.tp] = refused

    async def _finish_some(self) -> None:
        ongoing = await self._client.reassignments.list_ongoing()
        ended = [one for tp, one in self._under_way.items() if tp not in ongoing]
        if not ended:
            return
        reached = await self._wait_reached(ended)
        for one in ended:
            del self._under_way[one.tp]
            if one.tp in reached:
                self.result.done.append(one.tp)
                self.result.copied_bytes += one.copied_bytes
            else:
                self.result.overtaken.append(one.tp)
        if self.result.overtaken:
            self._stop.set()  # somebody has cancelled this, or wants something else

    async def _wait_reached(self, ended: Sequence[PlannedReassignment]) -> set[TopicPartition]:
        """Those that have their replicas, once all have or brokers have had time to say so."""
        deadline = time.monotonic() + APPLIED_WITHIN_S
        while True:
            metadata = await self._client.metadata({one.tp.topic for one in ended})
            reached = {
                one.tp
                for one in ended
                if (partition := metadata.find_partition(*one.tp)) is not None
                and partition.replicas == one.after
            }
            if len(reached) == len(ended) or time.monotonic() > deadline:
                return reached
            await asyncio.sleep(POLL_S / 2)

    async def _cancel(self) -> None:
        results = await self._client.reassignments.alter(dict.fromkeys(self._under_way))
        for tp, one in self._under_way.items():
            refused = results.get(tp)
            if refused is not None and refused.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                self.result.done.append(tp)  # finished a moment ago
                self.result.copied_bytes += one.copied_bytes
            else:
                self.result.cancelled.append(tp)
        self._under_way.clear()

    async def _elect_leaders(self) -> None:
        """A preferred leader that was changed leads at the next election, so there is one now."""
        if self.result.done:
            choice = ElectionType.PREFERRED
            await self._client.reassignments.elect_leaders(self.result.done, choice=choice)

    async def _report(self) -> None:
        now = time.monotonic()
        absent: tuple[BrokerId, ...] = ()
        if now - self._sized_at >= SIZES_EVERY_S and self._under_way:
            self._sized_at = now
            self._partly = await self._read_partly()
        if self._under_way:
            live = (await self._client.metadata(())).brokers
            targets = {broker for one in self._under_way.values() for broker in one.after}
            absent = tuple(sorted(targets - live.keys()))
        partly = self._partly if self._under_way else 0
        self._show(
            RunProgress(
                len(self.result.done),
                len(self._under_way),
                self._total,
                min(self._total_bytes, self.result.copied_bytes + partly),
                self._total_bytes,
                now - self._began_at,
                absent,
            )
        )

    async def _read_partly(self) -> int:
        """The bytes that are there already of what is under way."""
        wanted = {tp: one.adding for tp, one in self._under_way.items() if one.adding}
        live = (await self._client.metadata(())).brokers
        targets = sorted({broker for adding in wanted.values() for broker in adding} & live.keys())
        if not targets:
            return 0
        try:
            described = await self._client.admin.describe_log_dirs(
                brokers=targets, partitions=list(wanted)
            )
        except ClientError:
            return self._partly  # only the progress lacks it
        return sum(
            min(replica.size_bytes, self._under_way[tp].size_bytes)
            for broker, directories in described.items()
            for directory in directories
            for tp, replica in directory.replicas.items()
            if broker in wanted.get(tp, ())
        )


async def run_throttled(
    client: ClusterClient, run: ReassignmentRun, throttle: int | None
) -> RunResult:
    """The throttle ends with the run, also after an error."""
    if throttle is None:
        return await run.run()
    end_throttle_changes = await begin_throttle(client, throttle)
    try:
        return await run.run()
    finally:
        await client.admin.incremental_alter_configs(end_throttle_changes)


async def cancel_all(client: ClusterClient) -> list[TopicPartition]:
    """Cancel every reassignment of the cluster, and end its throttle."""
    ongoing = await client.reassignments.list_ongoing()
    results = await client.reassignments.alter(dict.fromkeys(ongoing)) if ongoing else {}
    await end_throttle(client)
    return sorted(tp for tp, result in results.items() if result.code is ErrorCode.NONE)


def _refusal(
    results: Mapping[TopicPartition, ReassignmentResult], tp: TopicPartition
) -> str | None:
    result = results.get(tp)
    if result is None:
        return "the controller said nothing of it"
    if result.code is ErrorCode.NONE:
        return None
    return f"{result.message or result.code.message} ({result.code.name})"
