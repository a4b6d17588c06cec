"""A task's part: its rows are written in a transaction of its own, which it leaves undecided.

Invariant: what a task reports is acknowledged by every in-sync replica, and only a decision of the
driver's ends it.
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
from penstock.spark.sink.exactly_once.transactional_ids import MicroBatchId, TransactionalIdPool
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.write_task import WriteResult, write_rows

_log = logging.getLogger(__name__)
_ABORT_TIMEOUT_MS = 5_000  # what a task that failed leaves behind, the driver ends


class PreparedTransaction(NamedTuple):
    state: PreparedState
    is_timed: bool  # the cluster aborts it when it gets too old


def write_prepared(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    columns: SinkColumns,
    name: MicroBatchId,
) -> tuple[WriteResult, PreparedTransaction | None]:
    """None: there were no rows."""
    rest = iter(batches)
    first = next((each for each in rest if each.num_rows), None)
    if first is None:
        return WriteResult(0, {}), None
    client = shared_client(options.client)
    _check_reachable(client)
    transactional_id = _process_slots().take(name)
    with explaining_requirements():
        begun = client.run(
            lambda cluster: _begin(cluster, transactional_id, options),
            timeout_ms=options.delivery_timeout_ms,
        )
    halt_at(FailPoint.TASK_BEGUN, name.batch)
    with explaining_timeouts(is_timed=begun.is_timed), _aborting(client, begun.transaction):
        written = write_rows(itertools.chain([first], rest), options, columns, begun.produce)
        halt_at(FailPoint.TASK_WRITTEN, name.batch)
        state = client.run(lambda _: begun.prepare())
    halt_at(FailPoint.TASK_PREPARED, name.batch)
    return written, PreparedTransaction(state, begun.is_timed)


def _check_reachable(client: BlockingClient) -> None:
    """A wrong address is told at once. To begin is tried for as long as a batch may take: once a
    cluster was there, it is taken to come back."""
    if client.settings not in _reached:
        client.metadata([])
        _reached.add(client.settings)


class _Begun(NamedTuple):
    transaction: RawTransaction
    is_timed: bool
    timeout_ms: int  # of one batch

    async def produce(self, _: ClusterClient, partition: TopicPartition, batch: Buffer) -> Produced:
        return await self.transaction.write(partition, batch, timeout_ms=self.timeout_ms)

    async def prepare(self) -> PreparedState:
        if self.is_timed:  # the cluster does not know the word; all is acknowledged
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
    """Or about the right to this transactional id: then, the next attempt is refused as well."""
    return (
        not isinstance(error, RefusedByBroker)
        or error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )


def _note_without_two_phases(options: SinkOptions) -> None:
    bootstrap = options.client.bootstrap
    if bootstrap not in _without_two_phases:
        _without_two_phases.add(bootstrap)
        _log.warning(
            "%s offers no two-phase commit (transaction.two.phase.commit.enable): what is written "
            "waits %d s for its commit at most. A driver that dies between decision and commit, "
            "and stays away for longer, leaves a batch half written, and says so at its next start",
            bootstrap,
            options.transaction_timeout_ms // 1000,
        )


@contextmanager
def _aborting(client: BlockingClient, transaction: RawTransaction) -> Iterator[None]:
    """What fails is not left to hold up readers until the driver has found it."""
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
_without_two_phases: set[str] = set()  # clusters, by where they are
_slots: dict[int, TransactionalIdPool] = {}  # by process id: a fork has its own


def _process_slots() -> TransactionalIdPool:
    # One atomic step: of two threads that come first, both get the same.
    return _slots.setdefault(os.getpid(), TransactionalIdPool(secrets.token_hex(6)))
