"""Ends the transactions that dead queries of the Spark sink have left undecided.

They are two-phase, so they never time out, and read_committed consumers cannot read past them.
Each broker watches those that it coordinates (`spark.sink.exactly_once.lease` decides when a query
is dead) and ends them as a restarted driver would: it fences the query's driver, reads its
decisions, commits what was decided, records which transactions it aborts, and aborts them. Two
brokers that do this at once fence each other, and nothing is ended twice. No other two-phase
transaction is touched. Owned by the event loop.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from penstock.client.errors import ClientError, ConnectFailed
from penstock.client.security.config import PLAINTEXT, ClientSecurity
from penstock.coordinators.transaction.records import Transaction
from penstock.logs.event_logger import EventLogger
from penstock.spark.sink.exactly_once.lease import LeaseWatch, WatchedTransaction
from penstock.spark.sink.exactly_once.transactional_ids import TASK_PREFIX

if TYPE_CHECKING:
    from penstock.client.cluster import ClusterClient
    from penstock.spark.sink.exactly_once.lease_log import RenewalReader

CHECK_EVERY_S = 1.0
_MAX_WATCHED_MS = 2_000  # in one step: while the broker stood still, it could see no sign of life
_REQUEST_TIMEOUT_MS = 10_000
_READ_TIMEOUT_MS = 5_000
_MAX_CONCURRENT = 8  # queries
_CLIENT_ID = "spark-transaction-reaper"
_FAILURES = (ClientError, ValueError, OSError)  # ValueError: what others wrote cannot be read


class ListsPrepared(Protocol):
    """The transaction coordinator."""

    def iter_prepared(self, prefix: str, /) -> Iterator[tuple[str, Transaction]]: ...


class SparkTransactionReaper:
    """`run` it beside the coordinator, until it is cancelled."""

    def __init__(
        self,
        coordinator: ListsPrepared,
        *,
        find_bootstrap: Callable[[], str | None],  # None: not registered yet
        find_security: Callable[[], ClientSecurity] = lambda: PLAINTEXT,
        has_leases: Callable[[], bool],  # whether the topic of leases exists
        logger: EventLogger,
        check_every_s: float = CHECK_EVERY_S,
    ) -> None:
        self._coordinator = coordinator
        self._find_bootstrap = find_bootstrap
        self._find_security = find_security
        self._has_leases = has_leases
        self._logger = logger
        self._check_every_s = check_every_s
        self._watch = LeaseWatch()
        self._client: ClusterClient | None = None  # while there is something to watch
        self._renewals: RenewalReader | None = None
        self._ending: set[str] = set()  # queries
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def run(self) -> None:
        checked_s = time.monotonic()
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await asyncio.sleep(self._check_every_s)
                    elapsed_ms = round((time.monotonic() - checked_s) * 1000)
                    checked_s = time.monotonic()
                    for query in await self.check(min(elapsed_ms, _MAX_WATCHED_MS)):
                        self._ending.add(query)
                        tasks.create_task(self._end(query), name=f"end {query}")
        finally:
            await self._disconnect()

    async def check(self, watched_ms: int) -> list[str]:
        """The queries to end now."""
        undecided = self._list_undecided()
        if not undecided:
            self._watch = LeaseWatch()
            if not self._ending:
                await self._disconnect()
            return []
        try:
            renewed = await self._read_renewals()
        except _FAILURES as error:  # also a malformed record: nothing is ended on doubtful grounds
            self._renewals = None
            watched_ms, renewed = 0, set()
            self._logger.warning(
                "spark_leases_not_read", f"cannot read the leases of Spark queries: {error}"
            )
        expired = self._watch.observe(undecided, renewed, watched_ms=watched_ms)
        return [query for query in expired if query not in self._ending]

    def _list_undecided(self) -> list[WatchedTransaction]:
        return [
            WatchedTransaction(
                transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.started_ms,
            )
            for transactional_id, transaction in self._coordinator.iter_prepared(TASK_PREFIX)
        ]

    async def _read_renewals(self) -> set[str]:
        if not self._watch.needs_renewals or not self._has_leases():
            return set()
        from penstock.spark.sink.exactly_once.lease_log import RenewalReader

        if self._renewals is None:
            self._renewals = RenewalReader(self._connect(), timeout_ms=_READ_TIMEOUT_MS)
        return await self._renewals.read()

    async def _end(self, query: str) -> None:
        from penstock.spark.sink.exactly_once.commit_coordinator import CommitCoordinator

        try:
            async with self._slots:
                client = self._connect()
                coordinator = CommitCoordinator(client, _CLIENT_ID, query, _REQUEST_TIMEOUT_MS)
                committed, aborted = await coordinator.recover()
        except _FAILURES as error:
            self._watch.postpone(query)
            self._logger.warning(
                "spark_transactions_not_ended",
                f"cannot end the transactions that Spark query {query} left undecided: {error}; "
                "trying again",
                query=query,
            )
        else:
            self._logger.info(
                "spark_transactions_ended",
                f"Spark query {query} gave no sign of life: of its undecided transactions "
                f"{committed} were committed, as its driver had decided, and {aborted} aborted",
                query=query,
                committed=committed,
                aborted=aborted,
            )
        finally:
            self._ending.discard(query)

    def _connect(self) -> "ClusterClient":
        if self._client is None:
            from penstock.client.cluster import ClusterClient

            bootstrap = self._find_bootstrap()
            if bootstrap is None:
                raise ConnectFailed("this broker", "it is not registered yet")
            self._client = ClusterClient(
                bootstrap,
                client_id=_CLIENT_ID,
                request_timeout_ms=_REQUEST_TIMEOUT_MS,
                security=self._find_security(),
            )
        return self._client

    async def _disconnect(self) -> None:
        client, self._client, self._renewals = self._client, None, None
        if client is not None:
            with suppress(OSError):
                await client.close()
