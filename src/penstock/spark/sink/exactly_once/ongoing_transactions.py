"""Transactions of the sink that nobody has decided, as the cluster's coordinators know them, and
those that are decided and not yet marked in every partition."""

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from penstock.client.cluster import ClusterClient
from penstock.client.errors import RefusedByBroker
from penstock.client.transaction_values import TransactionalProducerId, TransactionDescription
from penstock.model.errors import ErrorCode
from penstock.spark.sink.exactly_once.transactional_ids import find_query

_ONGOING = "Ongoing"
_ENDING = ("PrepareCommit", "PrepareAbort")


class OngoingTransaction(NamedTuple):
    query: str
    producer: TransactionalProducerId
    start_ms: int


async def list_ongoing(
    client: ClusterClient,
    *,
    query: str | None = None,
    but: Collection[str] = (),
    timeout_ms: int,
) -> list[OngoingTransaction]:
    """Of one query or of all; those that the caller knows by name are left out."""
    listed = await client.transactions.list_transactions(states=[_ONGOING], timeout_ms=timeout_ms)
    names = {each.transactional_id: find_query(each.transactional_id) for each in listed}
    wanted = {
        name: owner
        for name, owner in names.items()
        if owner is not None and query in (None, owner) and name not in but
    }
    found = await asyncio.gather(*(_find(client, each, timeout_ms) for each in wanted))
    return [
        OngoingTransaction(wanted[each.transactional_id], each.producer, each.start_ms)
        for each in found
        if each is not None and each.state == _ONGOING and each.start_ms is not None
    ]


async def list_completing(client: ClusterClient, timeout_ms: int) -> set[str]:
    """Whoever's they are, by transactional id."""
    listed = await client.transactions.list_transactions(states=_ENDING, timeout_ms=timeout_ms)
    return {each.transactional_id for each in listed}


async def _find(client: ClusterClient, name: str, timeout_ms: int) -> TransactionDescription | None:
    try:
        return await client.transactions.describe(name, timeout_ms=timeout_ms)
    except RefusedByBroker as error:
        if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise
