"""A task's part of the two-phase commit: it writes its rows in a transaction of its own, which it
leaves undecided.

Invariant: what a task reports is acknowledged by every in-sync replica, and only the driver's
decision ends it.
"""

import itertools
import logging
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import Produced
from penstock.client.errors import ClientError, RefusedByBroker, UnsupportedByBroker
from penstock.client.raw_transaction import RawTransaction
from penstock.client.transaction_values import PreparedState
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer
from penstock.spark.connect.connections import BlockingClient, ClientSettings, shared_client
from penstock.spark.sink.columns import SinkColumns
from penstock.spark.sink.exactly_once.cluster_requirements import (
    explaining_requirements,
    explaining_timeouts,
)
from penstock.spark.sink.exactly_once.fail_points import FailPoint, halt_at
from penstock.spark.sink.exactly_once.lease_keeper import introduce_later, keeping_lease
from penstock.spark.sink.exactly_once.lease_log import Introduction
from penstock.spark.sink.exactly_once.transactional_ids import MicroBatchId, TransactionalIdPool
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.write_task import WriteResult, write_rows

_log = logging.getLogger(__name__)
_ABORT_TIMEOUT_MS = 5_000  # the driver ends what a failed task leaves behind


class PreparedTransaction(NamedTuple):
    state: PreparedState
    has_timeout: bool  # the cluster aborts it when it gets too old


def write_prepared(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    columns: SinkColumns,
    micro_batch: MicroBatchId,
    plan: str | None = None,
) -> tuple[WriteResult, PreparedTransaction | None]:
    """None: there were no rows. `plan`: the driver's name for the micro-batch."""
    client = shared_client(options.client)
    if options.client.bootstrap in _without_two_phases:  # there, transactions time out instead
        return _write_prepared(client, batches, options, columns, micro_batch)
    if plan is not None:
        introduction = Introduction(plan, micro_batch.query, micro_batch.run)
        introduce_later(client, introduction, options.abandoned_after_ms)
    # Also before the first row: other tasks of the batch may have prepared their transactions.
    with keeping_lease(client, micro_batch.query, options.abandoned_after_ms):
        return _write_prepared(client, batches, options, columns, micro_batch)


def _write_prepared(
    client: BlockingClient,
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    columns: SinkColumns,
    micro_batch: MicroBatchId,
) -> tuple[WriteResult, PreparedTransaction | None]:
    rest = iter(batches)
    first = next((batch for batch in rest if batch.num_rows), None)
    if first is None:
        return WriteResult(0, {}), None
    _check_reachable(client)
    transactional_id = _process_pool().take(
        micro_batch, abandoned_after_ms=options.abandoned_after_ms
    )
    with explaining_requirements():
        begun = client.run(
            lambda cluster: _begin(cluster, transactional_id, options),
            timeout_ms=options.delivery_timeout_ms,
        )
    halt_at(FailPoint.TASK_BEGUN, micro_batch.batch_id)
    with explaining_timeouts(has_timeout=begun.has_timeout), _aborting(client, begun.transaction):
        written = write_rows(itertools.chain([first], rest), options, columns, begun.produce)
        halt_at(FailPoint.TASK_WRITTEN, micro_batch.batch_id)
        state = client.run(lambda _: begun.prepare())
    halt_at(FailPoint.TASK_PREPARED, micro_batch.batch_id)
    return written, PreparedTransaction(state, begun.has_timeout)


def _check_reachable(client: BlockingClient) -> None:
    """Report a wrong address at once. Beginning a transaction is retried for delivery.timeout.ms,
    because a cluster that was reachable once is expected to come back."""
    if client.settings not in _reached:
        client.metadata([])
        _reached.add(client.settings)


class _Begun(NamedTuple):
    transaction: RawTransaction
    has_timeout: bool
    timeout_ms: int  # of one batch

    async def produce(self, _: ClusterClient, tp: TopicPartition, batch: Buffer) -> Produced:
        return await self.transaction.write(tp, batch, timeout_ms=self.timeout_ms)

    async def prepare(self) -> PreparedState:
        if self.has_timeout:  # the cluster has no prepare; everything is acknowledged
            return PreparedState(*self.transaction.producer)
        prepared = await self.transaction.prepare()
        assert prepared is not None, "there were rows"
        return prepared


async def _begin(client: ClusterClient, transactional_id: str, options: SinkOptions) -> _Begun:
    timeout_ms = options.delivery_timeout_ms
    if options.client.bootstrap not in _without_two_phases:
        try:
            transaction = await RawTransaction.begin(
                client, transactional_id, two_phase=True, timeout_ms=timeout_ms
            )
            return _Begun(transaction, False, timeout_ms)
        except (UnsupportedByBroker, RefusedByBroker) as error:
            if not _is_about_two_phases(error):
                raise
    transaction = await RawTransaction.begin(
        client,
        transactional_id,
        transaction_timeout_ms=options.transaction_timeout_ms,
        timeout_ms=timeout_ms,
    )
    _note_without_two_phases(options)
    return _Begun(transaction, True, timeout_ms)


def _is_about_two_phases(error: UnsupportedByBroker | RefusedByBroker) -> bool:
    """May also be about this transactional id: then the next attempt is refused as well."""
    return (
        not isinstance(error, RefusedByBroker)
        or error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )


def _note_without_two_phases(options: SinkOptions) -> None:
    bootstrap = options.client.bootstrap
    if bootstrap not in _without_two_phases:
        _without_two_phases.add(bootstrap)
        _log.warning(
            "%s offers no two-phase commit (transaction.two.phase.commit.enable): a transaction "
            "waits at most %d s for its commit. A driver that dies between decision and commit and "
            "is not restarted within that time leaves a batch half written; its next start fails "
            "and says so",
            bootstrap,
            options.transaction_timeout_ms // 1000,
        )


@contextmanager
def _aborting(client: BlockingClient, transaction: RawTransaction) -> Iterator[None]:
    """A failed transaction must not block readers until the driver finds it."""
    try:
        yield
    except BaseException:
        with suppress(ClientError, TimeoutError):
            client.run(
                lambda _: transaction.abort(timeout_ms=_ABORT_TIMEOUT_MS),
                timeout_ms=_ABORT_TIMEOUT_MS,
            )
        raise


_reached: set[ClientSettings] = set()
_without_two_phases: set[str] = set()  # bootstrap servers
_pools: dict[int, TransactionalIdPool] = {}  # by process id: a fork has its own


def _process_pool() -> TransactionalIdPool:
    # One atomic step, so that two threads that come first get the same pool.
    return _pools.setdefault(os.getpid(), TransactionalIdPool(secrets.token_hex(6)))
