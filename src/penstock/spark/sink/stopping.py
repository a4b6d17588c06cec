"""Stops a streaming query and ends at once what it leaves undecided.

Spark interrupts the thread that would abort the running batch, so that a stop may leave prepared
transactions. Brokers end them within `abandonedAfter`; a program that stops its own query need not
wait for that, because it knows that the query is over.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError
from penstock.spark.connect.connections import settings_of, shared_client
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.exactly_once.commit_coordinator import CommitCoordinator
from penstock.spark.sink.exactly_once.ongoing_transactions import list_ongoing

_TIMEOUT_MS = 10_000  # per request
_REQUESTS = 8
_log = logging.getLogger(__name__)


class Stoppable(Protocol):
    """Spark's StreamingQuery."""

    @property
    def id(self) -> str: ...

    def stop(self) -> None: ...


def stop_query(query: Stoppable, bootstrap: str) -> None:
    """Stop a query of this program that writes to topics, and end its undecided transactions: what
    its driver had decided is committed, the rest is aborted."""
    query.stop()
    end_left_overs(bootstrap, [query.id])


def end_left_overs(bootstrap: str, queries: Iterable[str]) -> None:
    """For queries that have been stopped. A failure is only logged: a broker ends them later."""
    client = shared_client(settings_of(bootstrap))
    for query in queries:
        try:
            client.run(partial(_end, bootstrap, query), timeout_ms=_REQUESTS * _TIMEOUT_MS)
        except (ClientError, SparkSourceError, TimeoutError) as error:
            _log.warning("cannot end the undecided transactions of query %s: %s", query, error)
            return  # the others would wait for the same cluster


async def _end(bootstrap: str, query: str, client: ClusterClient) -> None:
    await client.connect(timeout_ms=_TIMEOUT_MS)  # fails at once if no broker answers
    if await list_ongoing(client, query=query, timeout_ms=_TIMEOUT_MS):
        await CommitCoordinator(client, bootstrap, query, _TIMEOUT_MS).recover()
