"""The sink's undecided transactions as the transaction coordinators list them, and transactions
that are decided but whose markers are not yet in every partition.
"""

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from penstock.client.cluster import ClusterClient
from penstock.client.errors import RefusedByBroker
from penstock.client.transaction_values import TransactionalProducerId, TransactionDescription
from penstock.model.errors import ErrorCode
from penstock.spark.sink.exactly_once.transactional_ids import find_query

_ONGOING = "Ongoing"
_COMPLETING = ("PrepareCommit", "PrepareAbort")


class OngoingTransaction(NamedTuple):
    query: str
    producer: TransactionalProducerId
    start_ms: int


async def list_ongoing(
    client: ClusterClient,
    *,
    query: str | None = None,
    exclude: Collection[str] = (),
    timeout_ms: int,
) -> list[OngoingTransaction]:
    """Ongoing transactions of one query or of all, without the transactional ids in `exclude`."""
    listed = await client.transactions.list_transactions(states=[_ONGOING], timeout_ms=timeout_ms)
    owners = {entry.transactional_id: find_query(entry.transactional_id) for entry in listed}
    wanted = {
        transactional_id: owner
        for transactional_id, owner in owners.items()
        if owner is not None and query in (None, owner) and transactional_id not in exclude
    }
    described = await asyncio.gather(
        *(_describe(client, transactional_id, timeout_ms) for transactional_id in wanted)
    )
    return [
        OngoingTransaction(
            wanted[transaction.transactional_id], transaction.producer, transaction.start_ms
        )
        for transaction in described
        if transaction is not None
        and transaction.state == _ONGOING
        and transaction.start_ms is not None
    ]


async def list_completing(client: ClusterClient, timeout_ms: int) -> set[str]:
    """The transactional ids of all producers that are in this state, the sink's or not."""
    listed = await client.transactions.list_transactions(states=_COMPLETING, timeout_ms=timeout_ms)
    return {entry.transactional_id for entry in listed}


async def _describe(
    client: ClusterClient, transactional_id: str, timeout_ms: int
) -> TransactionDescription | None:
    try:
        return await client.transactions.describe(transactional_id, timeout_ms=timeout_ms)
    except RefusedByBroker as error:
        if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise
