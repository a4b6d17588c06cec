"""Carries out what automatic balancing decides: reads sizes, plans on a thread, reassigns, logs.

Owned by the controller's task; a plan is made beside it, and begun only if the brokers are still
the same.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.controller.balancing.auto_balance import (
    BalancerConfig,
    BalancerEvent,
    BalancerMemory,
    layout_of,
    look,
    with_plan,
    without,
    without_plan,
)
from penstock.controller.balancing.layout import BalanceGoals, CannotBalance
from penstock.controller.balancing.planner import plan_balance
from penstock.controller.interface import ApiError, Reassignment
from penstock.controller.state import ClusterState
from penstock.logs.event_logger import EventLogger
from penstock.model.cluster import BrokerId, BrokerNode
from penstock.model.ids import TopicPartition


class ReadsReplicaSizes(Protocol):
    async def replica_sizes(self, brokers: Sequence[BrokerNode]) -> Mapping[TopicPartition, int]:
        """The bytes of the largest replica of each partition; without brokers that do not
        answer."""


class NoReplicaSizes:
    """Of a single broker, which has nobody to balance with."""

    async def replica_sizes(self, brokers: Sequence[BrokerNode]) -> Mapping[TopicPartition, int]:
        return {}


class ReassignsPartitions(Protocol):
    """The active controller, as far as balancing needs it."""

    state: ClusterState

    async def begin_reassignments(
        self, reassignments: Sequence[Reassignment], reason: str
    ) -> Sequence[ApiError | None]: ...

    async def elect_preferred(self, partitions: Sequence[TopicPartition], reason: str) -> None: ...


class BalancerStatistics(NamedTuple):
    pending: int = 0
    under_way: int = 0
    is_held: bool = False
    gone_s: Mapping[BrokerId, float] = {}


class Balancer:
    def __init__(
        self,
        active: ReassignsPartitions,
        *,
        tasks: asyncio.TaskGroup,
        sizes: ReadsReplicaSizes,
        now_ms: Callable[[], int],
        wake: Callable[[], None],
        logger: EventLogger,
    ) -> None:
        self._active = active
        self._tasks = tasks
        self._sizes = sizes
        self._now_ms = now_ms
        self._wake = wake  # when a plan has been made
        self._logger = logger
        self._memory: BalancerMemory | None = None
        self._planning: asyncio.Task[None] | None = None

    async def look(self, config: BalancerConfig) -> None:
        if not config.is_on:
            self._memory = None  # what is under way finishes
            return
        step = look(self._memory, self._active.state, config, self._now_ms())
        self._memory = step.memory
        self._log(step.events)
        if step.reassignments:
            results = await self._active.begin_reassignments(step.reassignments, _REASON)
            self._drop_refused(step.reassignments, results)
        if step.elect:
            await self._active.elect_preferred(step.elect, _REASON)
        if step.goals is not None and self._planning is None:
            work = self._plan(step.goals, step.memory.live)
            self._planning = self._tasks.create_task(work, name="controller-balance-plan")

    def statistics(self) -> BalancerStatistics:
        memory = self._memory
        if memory is None:
            return BalancerStatistics()
        now_ms = self._now_ms()
        return BalancerStatistics(
            pending=len(memory.pending),
            under_way=len(memory.under_way),
            is_held=bool(memory.held),
            gone_s={broker: (now_ms - since) / 1000 for broker, since in memory.gone_since.items()},
        )

    def close(self) -> None:
        if self._planning is not None:
            self._planning.cancel()

    async def _plan(self, goals: BalanceGoals, live: frozenset[BrokerId]) -> None:
        """On a thread, because the plan of a large cluster takes seconds."""
        brokers = list(self._active.state.brokers.values())
        sizes = await self._sizes.replica_sizes(brokers)
        layout = layout_of(self._active.state, sizes)
        try:
            plan = await asyncio.to_thread(plan_balance, layout, goals)
        except CannotBalance as error:
            if self._memory is not None:
                self._keep(*without_plan(self._memory, str(error), self._now_ms()))
        else:
            if self._memory is not None and self._memory.live == live:
                self._keep(*with_plan(self._memory, plan, goals, self._now_ms()))
        self._planning = None
        self._wake()

    def _keep(self, memory: BalancerMemory, events: Sequence[BalancerEvent]) -> None:
        self._memory = memory
        self._log(events)

    def _drop_refused(
        self, begun: Sequence[Reassignment], results: Sequence[ApiError | None]
    ) -> None:
        refused = {one.tp: error for one, error in zip(begun, results, strict=True) if error}
        if refused and self._memory is not None:
            self._memory = without(self._memory, refused)
            tp, error = next(iter(refused.items()))
            self._logger.warning(
                "balance_refused",
                f"{len(refused)} reassignments of the balancing are refused, among them {tp}: "
                f"{error.message}",
                count=len(refused),
                partition=tp,
            )

    def _log(self, events: Sequence[BalancerEvent]) -> None:
        for level, event, message, fields in events:
            self._logger.log(level, event, message, fields)


_REASON = "automatic balancing"
