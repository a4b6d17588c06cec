"""From what the tasks of a batch have reported to its commit or abort, for Spark's threads."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from penstock.client.errors import ClientError
from penstock.spark.connect.connections import shared_client
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.exactly_once.cluster_requirements import explaining_requirements
from penstock.spark.sink.exactly_once.commit_coordinator import CommitCoordinator, end_abandoned
from penstock.spark.sink.exactly_once.fail_points import FailPoint, halt_at
from penstock.spark.sink.exactly_once.prepared_write import PreparedTransaction
from penstock.spark.sink.exactly_once.two_phase_commit import PreparedBatch
from penstock.spark.sink.options import SinkOptions

_log = logging.getLogger(__name__)
_REQUESTS = 8  # one after the other, in a commit
_LOOK_EVERY_S = 0.5


def commit_batch(
    options: SinkOptions, query: str, batch: int, prepared: Iterable[PreparedTransaction | None]
) -> None:
    halt_at(FailPoint.COMMIT_BEGUN, batch)
    found = [each for each in prepared if each is not None]
    asked = PreparedBatch(
        query,
        batch,
        tuple(each.state for each in found),
        is_timed=any(each.is_timed for each in found),
    )

    async def commit(decider: CommitCoordinator) -> None:
        is_first = decider.is_new_here
        await decider.commit(asked)
        if is_first:
            await _end_abandoned(decider, options.abandoned_after_ms)

    _run(options, query, commit)


def abort_batch(options: SinkOptions, query: str, batch: int, *, watch_s: float = 0) -> None:
    """What is not decided. `watch_s`: for so long tasks of the batch may still leave something.

    Why a batch is aborted is what its user has to hear: that it cannot be is told beside it."""

    async def abort(decider: CommitCoordinator) -> None:
        end_s = time.monotonic() + watch_s
        await decider.abort(batch)
        while time.monotonic() < end_s:
            await asyncio.sleep(_LOOK_EVERY_S)
            await decider.abort(batch)

    try:
        # Where nobody can be reached, who waits for the error is not kept for as long as a batch
        # may take: the next start finds what was left.
        shared_client(options.client).metadata([])
        _run(options, query, abort)
    except (ClientError, SparkSourceError, TimeoutError) as error:
        _log.warning("what query %s left undecided could not be aborted: %s", query, error)


async def _end_abandoned(decider: CommitCoordinator, older_than_ms: int) -> None:
    """Is not this query's work: that it fails must not be this query's end."""
    try:
        for query in await end_abandoned(decider, older_than_ms=older_than_ms):
            _log.warning("ended what query %s had left undecided; is it dead?", query)
    except ClientError as error:
        _log.warning("what dead queries have left undecided could not be ended: %s", error)


def _run(
    options: SinkOptions, query: str, work: Callable[[CommitCoordinator], Awaitable[None]]
) -> None:
    timeout_ms = options.delivery_timeout_ms
    client = shared_client(options.client)
    with explaining_requirements():
        client.run(
            lambda cluster: work(
                CommitCoordinator(cluster, options.client.bootstrap, query, timeout_ms)
            ),
            timeout_ms=_REQUESTS * timeout_ms,
        )
