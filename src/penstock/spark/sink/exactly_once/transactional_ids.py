"""Transactional ids of the sink: how they are named, and the pool a task takes its id from. Pure.

A driver's id is that of its query, so that a later driver fences an earlier one. A task's id
belongs to one process and is reused once its batch is over, so that a cluster remembers as many ids
as there are tasks, not one for each task of every batch. Invariant: no two transactions that may
still be undecided have the same id.
"""

import uuid
from typing import NamedTuple

PREFIX = "penstock-spark"  # of every id of the sink
_TASK = f"{PREFIX}:"
_DRIVER = f"{PREFIX}-driver:"
_BATCH_QUERY = "batch-"


class MicroBatchId(NamedTuple):
    """The micro-batch that a task writes; the batches of a run follow one another. A batch write
    counts as the only batch of a query of its own."""

    query: str
    run: str | None  # None: unknown, so that no earlier batch can be taken to be over
    batch_id: int


def new_batch_query() -> str:
    """A query id for a batch write."""
    return f"{_BATCH_QUERY}{uuid.uuid4()}"


def is_batch_query(query: str) -> bool:
    return query.startswith(_BATCH_QUERY)


def driver_transactional_id(query: str) -> str:
    return _DRIVER + query


def find_query(transactional_id: str) -> str | None:
    """The query whose task uses this id; None: not a task of the sink."""
    if not transactional_id.startswith(_TASK):
        return None
    query, _, rest = transactional_id.removeprefix(_TASK).partition(":")
    return query if rest else None


class TransactionalIdPool:
    """The ids of one process. Owned by `prepared_write`."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._created = 0
        self._runs: dict[str, _Run] = {}  # the latest run of each query

    def take(self, micro_batch: MicroBatchId) -> str:
        """An id without an undecided transaction that is still needed."""
        if micro_batch.run is None:
            return self._create(micro_batch.query)
        run = self._runs.get(micro_batch.query)
        if run is None or run.name != micro_batch.run:
            run = self._runs[micro_batch.query] = _Run(micro_batch.run)
        free = (name for name, batch in run.last_batches.items() if batch < micro_batch.batch_id)
        transactional_id = next(free, None) or self._create(micro_batch.query)
        run.last_batches[transactional_id] = micro_batch.batch_id
        return transactional_id

    def _create(self, query: str) -> str:
        self._created += 1
        return f"{_TASK}{query}:{self._process}:{self._created}"


class _Run:
    def __init__(self, name: str) -> None:
        self.name = name
        self.last_batches: dict[str, int] = {}  # by transactional id
