"""Transactional ids of the sink, and which of them a task may use. Pure.

A driver's id is its query's, so that a later driver fences an earlier one. A task's id belongs to
one process and is used again once its batch is over: a cluster remembers as many as there are
tasks, not one for each task of every batch. Invariant: no two transactions that may still be
undecided have the same id.
"""

import uuid
from typing import NamedTuple

PREFIX = "penstock-spark"  # of all that the sink uses
_TASK = f"{PREFIX}:"
_DRIVER = f"{PREFIX}-driver:"
_ONE_BATCH = "batch-"


class MicroBatchId(NamedTuple):
    """What a task writes for. Batches of a run come one after the other."""

    query: str
    run: str | None  # None: not known, so that nobody can say which batches are over
    batch: int


def new_batch_query() -> str:
    """For a write that is not a stream's: it stands for a query of one batch."""
    return f"{_ONE_BATCH}{uuid.uuid4()}"


def is_batch_query(query: str) -> bool:
    return query.startswith(_ONE_BATCH)


def driver_transactional_id(query: str) -> str:
    return _DRIVER + query


def find_query(transactional_id: str) -> str | None:
    """Whose task writes under this id; None: no task of the sink's."""
    if not transactional_id.startswith(_TASK):
        return None
    query, _, rest = transactional_id.removeprefix(_TASK).partition(":")
    return query if rest else None


class TransactionalIdPool:
    """The ids of one process. Owned by its connections."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._made = 0
        self._runs: dict[str, _Run] = {}  # the last run of each query

    def take(self, write: MicroBatchId) -> str:
        """An id of which nothing is undecided that is still wanted."""
        if write.run is None:
            return self._make(write.query)
        run = self._runs.get(write.query)
        if run is None or run.name != write.run:
            run = self._runs[write.query] = _Run(write.run)
        free = (name for name, batch in run.last_batches.items() if batch < write.batch)
        name = next(free, None) or self._make(write.query)
        run.last_batches[name] = write.batch
        return name

    def _make(self, query: str) -> str:
        self._made += 1
        return f"{_TASK}{query}:{self._process}:{self._made}"


class _Run:
    def __init__(self, name: str) -> None:
        self.name = name
        self.last_batches: dict[str, int] = {}  # of each id
