"""The driver's part of the two-phase commit: it decides a batch's transactions together, then ends
them one by one.

Runs in whichever process Spark calls, perhaps a different one each time. The cluster holds all
state; what a process remembers only saves it from reading again.
"""

import asyncio
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError, RefusedByBroker
from penstock.client.transaction_values import TransactionalProducerId
from penstock.model.errors import ErrorCode
from penstock.spark.sink.exactly_once.cluster_requirements import ALLOW_MORE_TIME, AT_LEAST_ONCE
from penstock.spark.sink.exactly_once.decision_log import DecisionLog, DecisionLogState
from penstock.spark.sink.exactly_once.fail_points import FailPoint, halt_at
from penstock.spark.sink.exactly_once.ongoing_transactions import (
    OngoingTransaction,
    list_completing,
    list_ongoing,
)
from penstock.spark.sink.exactly_once.transactional_ids import (
    find_created_ms,
    is_batch_query,
)
from penstock.spark.sink.exactly_once.two_phase_commit import (
    NO_BATCH,
    CommitPlan,
    LostTransaction,
    PreparedBatch,
    plan_commit,
    plan_recovery,
)

_MAX_CONCURRENT_ENDS = 8
_MARKERS_TIMEOUT_S = 10
_FIRST_POLL_S, _MAX_POLL_S = 0.0005, 0.005
_MAX_CLOCK_SKEW_MS = 3_600_000  # between a driver and those who write decisions
# The transaction's owner has ended it, or has begun another one.
_ALREADY_ENDED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class RecoveredTransactions(NamedTuple):
    committed: int
    aborted: int


class CommitCoordinator(NamedTuple):
    """Commits and aborts the batches of one query. `timeout_ms` is per request."""

    client: ClusterClient
    bootstrap: str
    query: str
    timeout_ms: int

    async def commit(self, batch: PreparedBatch) -> None:
        """On return, the transactions decided for this batch are committed and visible to readers,
        and the query has no undecided transaction."""
        if batch.has_timeout:
            await self._check_not_timed_out(batch)
        log, others = await self._begin(
            exclude=[state.transactional_id for state in batch.transactions]
        )
        plan = plan_commit(log.state.last, batch, [*others, *batch.transactions])
        await self._carry_out(log, plan, batch.batch_id)
        await self._forget_batch_write(log)

    async def abort(self, batch_id: int) -> None:
        """Spark also aborts after a failed commit: then what was decided is committed."""
        log, _ = await self._recover(batch_id)
        await self._forget_batch_write(log)

    async def recover(self) -> RecoveredTransactions:
        """For a query that seems dead: finish what its driver decided, abort the rest. The decision
        stays, also that of a batch write: should the driver be alive, it must find it."""
        _, plan = await self._recover(NO_BATCH)
        _log_states.pop(self._state_key, None)
        return RecoveredTransactions(len(plan.commits), len(plan.aborts))

    async def _recover(self, batch_id: int) -> tuple[DecisionLog, CommitPlan]:
        log, ongoing = await self._begin()
        plan = plan_recovery(log.state.last, ongoing)
        await self._carry_out(log, plan, batch_id)
        return log, plan

    async def _begin(
        self, *, exclude: Iterable[str] = ()
    ) -> tuple[DecisionLog, list[TransactionalProducerId]]:
        """Fences all other drivers. A transaction listed here that was decided before is in the
        log, or was ended by the driver that decided it."""
        log, ongoing = await asyncio.gather(
            DecisionLog.begin(
                self.client,
                self.query,
                _log_states.get(self._state_key),
                since_ms=self._find_first_decision_ms(),
                timeout_ms=self.timeout_ms,
            ),
            list_ongoing(
                self.client, query=self.query, exclude=set(exclude), timeout_ms=self.timeout_ms
            ),
        )
        _log_states[self._state_key] = log.state
        return log, [transaction.producer for transaction in ongoing]

    async def _carry_out(self, log: DecisionLog, plan: CommitPlan, batch_id: int) -> None:
        halt_at(FailPoint.DECIDING, batch_id)
        if plan.is_new:
            await log.write(plan.decision, timeout_ms=self.timeout_ms)
        halt_at(FailPoint.DECIDED, batch_id)
        await self._end_all(plan, batch_id)
        await self._wait_for_markers(plan)
        halt_at(FailPoint.ENDED, batch_id)

    async def _end_all(self, plan: CommitPlan, batch_id: int) -> None:
        """Tries every transaction, even after one has failed."""
        limit = asyncio.Semaphore(_MAX_CONCURRENT_ENDS)

        async def end(producer: TransactionalProducerId, *, commit: bool) -> None:
            async with limit:
                await self._end(producer, plan, commit=commit)
                halt_at(FailPoint.ENDING, batch_id)

        failures = await asyncio.gather(
            *(end(producer, commit=True) for producer in plan.commits),
            *(end(producer, commit=False) for producer in plan.aborts),
            return_exceptions=True,
        )
        for failure in failures:
            if failure is not None:
                raise failure

    async def _end(
        self, producer: TransactionalProducerId, plan: CommitPlan, *, commit: bool
    ) -> None:
        try:
            await self.client.transactions.end(producer, commit=commit, timeout_ms=self.timeout_ms)
        except RefusedByBroker as error:
            if error.code not in _ALREADY_ENDED:
                raise
            # A transactional id expires long after its transaction has ended, never before.
            is_expired = error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            if commit and (plan.decision.has_timeout or not is_expired):
                raise self._lost(producer, plan.decision.batch_id, error) from error

    async def _wait_for_markers(self, plan: CommitPlan) -> None:
        """A coordinator answers before every partition has its marker, and readers see nothing
        until then. If it takes long, the batch is complete anyway."""
        ended = {producer.transactional_id for producer in (*plan.commits, *plan.aborts)}
        poll_s = _FIRST_POLL_S
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_MARKERS_TIMEOUT_S):
                while True:
                    if ended.isdisjoint(await list_completing(self.client, self.timeout_ms)):
                        return
                    await asyncio.sleep(poll_s)
                    poll_s = min(2 * poll_s, _MAX_POLL_S)

    async def _check_not_timed_out(self, batch: PreparedBatch) -> None:
        """Without two-phase commit, the cluster aborts transactions that take too long."""
        descriptions = await asyncio.gather(
            *(
                self.client.transactions.describe(
                    state.transactional_id, timeout_ms=self.timeout_ms
                )
                for state in batch.transactions
            )
        )
        for expected, actual in zip(batch.transactions, descriptions, strict=True):
            if actual.state != "Ongoing" or actual.producer != tuple(expected):
                raise LostTransaction(
                    f"batch {batch.batch_id} of query {batch.query} took longer than the cluster "
                    f"keeps a transaction open ({actual.timeout_ms / 1000:g} s), and none of it is "
                    f"written: {ALLOW_MORE_TIME}; {AT_LEAST_ONCE}"
                )

    def _lost(
        self, producer: TransactionalProducerId, batch_id: int, error: RefusedByBroker
    ) -> LostTransaction:
        return LostTransaction(
            f"batch {batch_id} of query {self.query} was decided, but its transaction "
            f"{producer.transactional_id!r} was aborted by an administrator or by a timeout: its "
            f"rows are missing, and those of the batch's other tasks are there ({error}). Replay "
            "the batch's offsets by hand, then start with a new checkpoint"
        )

    def _find_first_decision_ms(self) -> int | None:
        """Saves a batch write from reading the decisions that were written before it began."""
        created_ms = find_created_ms(self.query)
        return None if created_ms is None else max(0, created_ms - _MAX_CLOCK_SKEW_MS)

    async def _forget_batch_write(self, log: DecisionLog) -> None:
        """It never runs again."""
        if not is_batch_query(self.query) or log.state.last is None:
            return
        log = await DecisionLog.begin(
            self.client, self.query, _log_states.pop(self._state_key), timeout_ms=self.timeout_ms
        )
        await log.forget(timeout_ms=self.timeout_ms)

    @property
    def _state_key(self) -> tuple[str, str]:
        return self.bootstrap, self.query


# The decision log as far as this process has read it, by cluster and query.
_log_states: dict[tuple[str, str], DecisionLogState] = {}


async def end_abandoned(coordinator: CommitCoordinator, *, older_than_ms: int) -> list[str]:
    """Finish or abort the transactions of other queries that have been undecided for so long that
    the query must be dead; if it is not, its next commit is rejected. Returns those queries."""
    ongoing = await list_ongoing(coordinator.client, timeout_ms=coordinator.timeout_ms)
    abandoned = abandoned_queries(
        ongoing, older_than_ms=older_than_ms, now_ms=time.time_ns() // 1_000_000
    )
    others = sorted(abandoned - {coordinator.query})
    for query in others:
        await coordinator._replace(query=query).recover()
    return others


def abandoned_queries(
    ongoing: Collection[OngoingTransaction], *, older_than_ms: int, now_ms: int
) -> set[str]:
    """Queries with at least one transaction older than this."""
    return {
        transaction.query
        for transaction in ongoing
        if now_ms - transaction.start_ms > older_than_ms
    }
