"""The driver's part: a batch's transactions are decided together, then ended one by one.

Runs in whatever process Spark asks, each time perhaps in another one. What counts is in the
cluster; what a process remembers only spares it reading.
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
from penstock.spark.sink.exactly_once.cluster_requirements import AT_LEAST_ONCE, MORE_TIME
from penstock.spark.sink.exactly_once.decision_log import DecisionLog, DecisionLogState
from penstock.spark.sink.exactly_once.fail_points import FailPoint, halt_at
from penstock.spark.sink.exactly_once.ongoing_transactions import (
    OngoingTransaction,
    list_completing,
    list_ongoing,
)
from penstock.spark.sink.exactly_once.transactional_ids import is_batch_query
from penstock.spark.sink.exactly_once.two_phase_commit import (
    NO_BATCH,
    CommitPlan,
    LostTransaction,
    PreparedBatch,
    plan_commit,
    plan_recovery,
)

_AT_ONCE = 8  # transactions that are being ended
_MARKED_WITHIN_S = 10
_LOOK_EVERY_S = 0.005
# Its owner has ended it, or has begun another one.
_OVER = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class CommitCoordinator(NamedTuple):
    """Decides for one query. `timeout_ms` is for each request."""

    client: ClusterClient
    bootstrap: str
    query: str
    timeout_ms: int

    @property
    def is_new_here(self) -> bool:
        """This process has not decided for the query yet."""
        return self._place not in _read

    async def commit(self, asked: PreparedBatch) -> None:
        """Once it returns, what was decided for this batch is committed and readers see it, and
        nothing of the query is undecided."""
        if asked.is_timed:
            await self._check_in_time(asked)
        log, others = await self._begin(
            is_fresh=is_batch_query(self.query),
            but=[each.transactional_id for each in asked.prepared],
        )
        follows = plan_commit(log.read.last, asked, [*others, *asked.prepared])
        await self._carry_out(log, follows, asked.batch)

    async def abort(self, batch: int) -> None:
        """Spark asks for it after a commit that failed, too: what was decided is committed."""
        log, still_open = await self._begin()
        await self._carry_out(log, plan_recovery(log.read.last, still_open), batch)

    async def _begin(
        self, *, is_fresh: bool = False, but: Iterable[str] = ()
    ) -> tuple[DecisionLog, list[TransactionalProducerId]]:
        """Once this returns nobody else can decide. What is listed here and was decided before is
        in the log, or ended by whoever decided it."""
        log, found = await asyncio.gather(
            DecisionLog.begin(
                self.client,
                self.query,
                _read.get(self._place),
                is_fresh=is_fresh,
                timeout_ms=self.timeout_ms,
            ),
            list_ongoing(self.client, query=self.query, but=set(but), timeout_ms=self.timeout_ms),
        )
        _read[self._place] = log.read
        return log, [each.producer for each in found]

    async def _carry_out(self, log: DecisionLog, follows: CommitPlan, batch: int) -> None:
        halt_at(FailPoint.DECIDING, batch)
        if follows.is_new:
            await log.write(follows.decision, timeout_ms=self.timeout_ms)
        halt_at(FailPoint.DECIDED, batch)
        await self._end_all(follows, batch)
        await self._wait_marked(follows)
        halt_at(FailPoint.ENDED, batch)
        if is_batch_query(self.query) and log.read.last is not None:
            await self._forget()

    async def _end_all(self, follows: CommitPlan, batch: int) -> None:
        """Every one is tried, whatever becomes of the others."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def end(producer: TransactionalProducerId, *, commit: bool) -> None:
            async with limit:
                await self._end(producer, follows, commit=commit)
                halt_at(FailPoint.ENDING, batch)

        outcomes = await asyncio.gather(
            *(end(each, commit=True) for each in follows.commits),
            *(end(each, commit=False) for each in follows.aborts),
            return_exceptions=True,
        )
        for failure in outcomes:
            if failure is not None:
                raise failure

    async def _end(
        self, producer: TransactionalProducerId, follows: CommitPlan, *, commit: bool
    ) -> None:
        try:
            await self.client.transactions.end(producer, commit=commit, timeout_ms=self.timeout_ms)
        except RefusedByBroker as error:
            if error.code not in _OVER:
                raise
            # An id is forgotten long after its transaction has ended, and never before.
            is_forgotten = error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            if commit and (follows.decision.is_timed or not is_forgotten):
                raise self._lost(producer, follows.decision.batch, error) from error

    async def _wait_marked(self, follows: CommitPlan) -> None:
        """A coordinator answers before every partition has its marker, and readers see nothing
        before that. Where it takes long the batch is done all the same."""
        ended = {each.transactional_id for each in (*follows.commits, *follows.aborts)}
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_MARKED_WITHIN_S):
                while True:
                    if ended.isdisjoint(await list_completing(self.client, self.timeout_ms)):
                        return
                    await asyncio.sleep(_LOOK_EVERY_S)

    async def _check_in_time(self, asked: PreparedBatch) -> None:
        """Without two-phase commit, the cluster aborts what takes too long."""
        states = await asyncio.gather(
            *(
                self.client.transactions.describe(each.transactional_id, timeout_ms=self.timeout_ms)
                for each in asked.prepared
            )
        )
        for wanted, found in zip(asked.prepared, states, strict=True):
            if found.state != "Ongoing" or found.producer != tuple(wanted):
                raise LostTransaction(
                    f"batch {asked.batch} of query {asked.query} took longer than the cluster lets "
                    f"a transaction be open ({found.timeout_ms / 1000:g} s), and nothing of it is "
                    f"written: {MORE_TIME}; {AT_LEAST_ONCE}"
                )

    def _lost(
        self, producer: TransactionalProducerId, batch: int, error: RefusedByBroker
    ) -> LostTransaction:
        return LostTransaction(
            f"batch {batch} of query {self.query} was decided, but its transaction "
            f"{producer.transactional_id!r} was aborted by somebody else, an administrator or a "
            f"time-out: its rows are missing, and those of the batch's other tasks are there "
            f"({error}). Replay the batch's offsets by hand, then start with a new checkpoint"
        )

    async def _forget(self) -> None:
        log = await DecisionLog.begin(
            self.client, self.query, _read.pop(self._place), timeout_ms=self.timeout_ms
        )
        await log.forget(timeout_ms=self.timeout_ms)

    @property
    def _place(self) -> tuple[str, str]:
        return self.bootstrap, self.query


# How far this process has read, by cluster and query.
_read: dict[tuple[str, str], DecisionLogState] = {}


async def end_abandoned(here: CommitCoordinator, *, older_than_ms: int) -> list[str]:
    """Finish or abort what other queries have left undecided for so long that they must be dead;
    one that is not, and decides afterwards, is refused. Which queries those were."""
    found = await list_ongoing(here.client, timeout_ms=here.timeout_ms)
    abandoned = abandoned_queries(
        found, older_than_ms=older_than_ms, now_ms=time.time_ns() // 1_000_000
    )
    others = sorted(abandoned - {here.query})
    for query in others:
        await here._replace(query=query).abort(NO_BATCH)
    return others


def abandoned_queries(
    undecided: Collection[OngoingTransaction], *, older_than_ms: int, now_ms: int
) -> set[str]:
    """By their oldest transaction."""
    return {each.query for each in undecided if now_ms - each.start_ms > older_than_ms}
