"""Transactional ids of the sink: how they are named, and the pool a task takes its id from. Pure.

A driver's id is that of its query, so that a later driver fences an earlier one. A task's id
belongs to one process and is reused once its batch is over, so that a cluster remembers as many ids
as there are tasks, not one for each task of every batch. It ends with the time after which the
query counts as dead when nobody renews its lease, so that brokers know what to end, and when.
Invariant: no two transactions that may still be undecided have the same id.
"""

import time
import uuid
from typing import NamedTuple

PREFIX = "penstock-spark"  # of every id of the sink
TASK_PREFIX = f"{PREFIX}:"  # of the ids of tasks
LEASES_TOPIC = "__penstock_spark_leases"
_DRIVER = f"{PREFIX}-driver:"
_BATCH_QUERY = "batch-"
_LEASED_PARTS = 4  # query, process, number, milliseconds


class MicroBatchId(NamedTuple):
    """The micro-batch that a task writes; the batches of a run follow one another. A batch write
    counts as the only batch of a query of its own."""

    query: str
    run: str | None  # None: unknown, so that no earlier batch can be taken to be over
    batch_id: int


def new_batch_query() -> str:
    """A query id for a batch write, with the time of its creation."""
    return f"{_BATCH_QUERY}{time.time_ns() // 1_000_000}-{uuid.uuid4()}"


def is_batch_query(query: str) -> bool:
    return query.startswith(_BATCH_QUERY)


def find_created_ms(query: str) -> int | None:
    """When a batch write began; None: a streaming query, or unknown."""
    created, _, rest = query.removeprefix(_BATCH_QUERY).partition("-")
    is_known = is_batch_query(query) and bool(rest) and created.isdecimal()
    return int(created) if is_known else None


def driver_transactional_id(query: str) -> str:
    return _DRIVER + query


def find_query(transactional_id: str) -> str | None:
    """The query whose task uses this id; None: not a task of the sink."""
    if not transactional_id.startswith(TASK_PREFIX):
        return None
    query, _, rest = transactional_id.removeprefix(TASK_PREFIX).partition(":")
    return query if rest else None


def find_abandoned_after_ms(transactional_id: str) -> int | None:
    """How long after its last sign of life the task's query counts as dead; None: not a task of the
    sink, or of a version without leases."""
    if find_query(transactional_id) is None:
        return None
    parts = transactional_id.removeprefix(TASK_PREFIX).split(":")
    has_lease = len(parts) == _LEASED_PARTS and parts[-1].isdecimal()
    return int(parts[-1]) if has_lease else None


class TransactionalIdPool:
    """The ids of one process. Owned by `prepared_write`."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._created = 0
        self._runs: dict[str, _Run] = {}  # the latest run of each query

    def take(self, micro_batch: MicroBatchId, *, abandoned_after_ms: int) -> str:
        """An id without an undecided transaction that is still needed."""
        if micro_batch.run is None:
            return self._create(micro_batch.query, abandoned_after_ms)
        run = self._runs.get(micro_batch.query)
        if run is None or run.name != micro_batch.run:
            run = self._runs[micro_batch.query] = _Run(micro_batch.run)
        free = (name for name, batch in run.last_batches.items() if batch < micro_batch.batch_id)
        transactional_id = next(free, None)
        if transactional_id is None:
            transactional_id = self._create(micro_batch.query, abandoned_after_ms)
        run.last_batches[transactional_id] = micro_batch.batch_id
        return transactional_id

    def _create(self, query: str, abandoned_after_ms: int) -> str:
        self._created += 1
        return f"{TASK_PREFIX}{query}:{self._process}:{self._created}:{abandoned_after_ms}"


class _Run:
    def __init__(self, name: str) -> None:
        self.name = name
        self.last_batches: dict[str, int] = {}  # by transactional id
