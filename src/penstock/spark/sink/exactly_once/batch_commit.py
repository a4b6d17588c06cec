"""Commits or aborts a batch after its tasks have reported, called from Spark's threads."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext

from penstock.client.errors import ClientError
from penstock.spark.connect.connections import shared_client
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.exactly_once.cluster_requirements import explaining_requirements
from penstock.spark.sink.exactly_once.commit_coordinator import CommitCoordinator
from penstock.spark.sink.exactly_once.fail_points import ABORT_BEGUN, FailPoint, halt_at
from penstock.spark.sink.exactly_once.lease_keeper import keeping_lease
from penstock.spark.sink.exactly_once.prepared_write import PreparedTransaction
from penstock.spark.sink.exactly_once.two_phase_commit import PreparedBatch
from penstock.spark.sink.options import SinkOptions

_log = logging.getLogger(__name__)
_REQUESTS = 8  # consecutive requests of one commit
_RECHECK_S = 0.5


def commit_batch(
    options: SinkOptions,
    query: str,
    batch_id: int,
    prepared: Iterable[PreparedTransaction | None],
) -> None:
    halt_at(FailPoint.COMMIT_BEGUN, batch_id)
    transactions = [transaction for transaction in prepared if transaction is not None]
    batch = PreparedBatch(
        query,
        batch_id,
        tuple(transaction.state for transaction in transactions),
        has_timeout=any(transaction.has_timeout for transaction in transactions),
    )

    client = shared_client(options.client)
    has_lease = bool(transactions) and not batch.has_timeout
    with keeping_lease(client, query, options.abandoned_after_ms) if has_lease else nullcontext():
        _run(options, query, lambda coordinator: coordinator.commit(batch))


def abort_batch(options: SinkOptions, query: str, batch_id: int, *, watch_s: float = 0) -> None:
    """Abort what is undecided. For `watch_s`, tasks of the batch may still leave transactions.

    A failed abort is only logged, because the user has to see why the batch was aborted."""

    halt_at(ABORT_BEGUN, batch_id)

    async def abort(coordinator: CommitCoordinator) -> None:
        end_s = time.monotonic() + watch_s
        await coordinator.abort(batch_id)
        while time.monotonic() < end_s:
            await asyncio.sleep(_RECHECK_S)
            await coordinator.abort(batch_id)

    try:
        # If the cluster is unreachable, fail now: the user should not wait delivery.timeout.ms for
        # the original error, and the next start of the query finds what was left.
        shared_client(options.client).metadata([])
        _run(options, query, abort)
    except (ClientError, SparkSourceError, TimeoutError) as error:
        _log.warning("cannot abort the undecided transactions of query %s: %s", query, error)


def _run(
    options: SinkOptions, query: str, work: Callable[[CommitCoordinator], Awaitable[None]]
) -> None:
    timeout_ms = options.delivery_timeout_ms
    client = shared_client(options.client)
    bootstrap = options.client.bootstrap
    with explaining_requirements():
        client.run(
            lambda cluster: work(CommitCoordinator(cluster, bootstrap, query, timeout_ms)),
            timeout_ms=_REQUESTS * timeout_ms,
        )
