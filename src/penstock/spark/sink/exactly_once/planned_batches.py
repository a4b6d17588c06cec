"""Which queries of a driver are alive in the middle of a micro-batch. Pure.

The driver plans a batch before its tasks run, without saying for which query; a task knows the
query, and says so if the batch takes long. A query has one thread in the driver while it is active.
Which one is unknown, but it is among those seen whenever a batch of its run was planned. Invariant:
no query is listed as alive whose thread has ended.
"""

from collections.abc import Set
from typing import NamedTuple

from penstock.spark.sink.exactly_once.stream_threads import StreamThread

_MAX_BATCHES = 1_000  # whose end nobody reports, such as those of failed queries

Threads = frozenset[StreamThread]


class QueryRun(NamedTuple):
    """A query between its start and its stop."""

    query: str
    run: str | None  # None: unknown, so that no two batches are known to be of the same run


class _Batch(NamedTuple):
    threads: Threads
    of: QueryRun | None = None  # None: no task has said so yet
    is_due: bool = False  # planned before the last check


class PlannedBatches:
    """Those of one driver. Owned by its lease keeper."""

    def __init__(self) -> None:
        self._batches: dict[str, _Batch] = {}  # by plan, while they run
        self._candidates: dict[QueryRun, Threads] = {}

    def plan(self, plan: str, threads: Threads) -> None:
        """A batch begins. `threads`: all of the driver's queries at this moment."""
        self._batches[plan] = _Batch(threads)
        while len(self._batches) > _MAX_BATCHES:
            del self._batches[next(iter(self._batches))]

    def introduce(self, plan: str, run: QueryRun) -> None:
        """A task of the batch says which query it is of. Plans of other drivers are ignored."""
        batch = self._batches.get(plan)
        if batch is not None:
            self._batches[plan] = batch._replace(of=run)
            self._narrow(run, batch.threads)

    def end(self, plan: str, run: QueryRun) -> None:
        """The batch is committed, or aborted."""
        batch = self._batches.pop(plan, None)
        if batch is not None:
            self._narrow(run, batch.threads)

    @property
    def has_due(self) -> bool:
        return any(batch.is_due for batch in self._batches.values())

    def check(self, threads: Set[StreamThread]) -> list[str]:
        """The queries that are alive with these threads, and have been in a batch since the last
        check at least."""
        alive = {
            batch.of.query
            for batch in self._batches.values()
            if batch.is_due and batch.of is not None and self._is_alive(batch, batch.of, threads)
        }
        self._batches = {
            plan: batch._replace(is_due=True)
            for plan, batch in self._batches.items()
            if batch.threads & threads
        }
        self._candidates = {
            run: candidates for run, candidates in self._candidates.items() if candidates & threads
        }
        return sorted(alive)

    def _narrow(self, run: QueryRun, threads: Threads) -> None:
        if run.run is not None:
            self._candidates[run] = self._candidates.get(run, threads) & threads

    def _is_alive(self, batch: _Batch, run: QueryRun, threads: Set[StreamThread]) -> bool:
        candidates = self._candidates.get(run, batch.threads)
        return bool(candidates) and candidates <= threads
