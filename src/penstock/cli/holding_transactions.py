"""Finds the open transactions that hold back consumers, and ends a Spark query's, for `penstock
transaction`.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.cli.transaction_search import list_open
from penstock.client.cluster import ClusterClient
from penstock.client.errors import RefusedByBroker
from penstock.client.transaction_values import OpenTransaction, TransactionDescription
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.spark.sink.exactly_once.commit_coordinator import (
    CommitCoordinator,
    RecoveredTransactions,
)
from penstock.spark.sink.exactly_once.ongoing_transactions import list_ongoing
from penstock.spark.sink.exactly_once.transactional_ids import find_query

_TIMEOUT_MS = 30_000
_HANGING = "nobody: see find-hanging"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingTransaction:
    """A transaction in one partition that it holds back."""

    tp: TopicPartition
    start_offset: int
    producer_id: int
    description: TransactionDescription | None  # None: no coordinator knows it

    @property
    def transactional_id(self) -> str | None:
        return None if self.description is None else self.description.transactional_id

    @property
    def query(self) -> str | None:
        """The Spark query; None: it is not of the Spark sink."""
        return None if self.description is None else find_query(self.description.transactional_id)

    @property
    def holder(self) -> str:
        if self.description is None:
            return _HANGING
        if self.query is not None:
            return f"Spark query {self.query}"
        return "two-phase commit" if self.description.is_two_phase else "producer"

    def age_ms(self, now_ms: int) -> int | None:
        if self.description is None or self.description.start_ms is None:
            return None
        return max(0, now_ms - self.description.start_ms)

    def as_json(self, now_ms: int) -> dict[str, object]:
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "start_offset": self.start_offset,
            "producer_id": self.producer_id,
            "transactional_id": self.transactional_id,
            "spark_query": self.query,
            "state": None if self.description is None else self.description.state,
            "age_ms": self.age_ms(now_ms),
        }


async def find_holding(
    client: ClusterClient, topics: Collection[str] | None
) -> list[HoldingTransaction]:
    """Those of these topics, or of all; the first to hold back a partition comes first."""
    open_ones = await list_open(client, topics)
    if not open_ones:
        return []
    return describe_holding(open_ones, await _describe_owners(client, open_ones))


def describe_holding(
    open_ones: Sequence[OpenTransaction], described: Mapping[int, TransactionDescription]
) -> list[HoldingTransaction]:
    """`described`: by producer id. One that has ended meanwhile is left out."""
    holding = [
        HoldingTransaction(
            tp=one.tp,
            start_offset=one.start_offset,
            producer_id=one.producer_id,
            description=described.get(one.producer_id),
        )
        for one in open_ones
    ]
    return sorted(
        (one for one in holding if one.description is None or one.description.is_open),
        key=lambda one: (one.tp, one.start_offset),
    )


async def _describe_owners(
    client: ClusterClient, open_ones: Sequence[OpenTransaction]
) -> dict[int, TransactionDescription]:
    producer_ids = sorted({one.producer_id for one in open_ones})
    listed = await client.transactions.list_transactions(producer_ids=producer_ids)
    described = await asyncio.gather(
        *(_find_description(client, transaction.transactional_id) for transaction in listed)
    )
    return {one.producer_id: one for one in described if one is not None}


async def _find_description(
    client: ClusterClient, transactional_id: str
) -> TransactionDescription | None:
    try:
        return await client.transactions.describe(transactional_id)
    except RefusedByBroker as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None


async def end_spark_query(client: ClusterClient, query: str) -> RecoveredTransactions:
    """Refused if the query has nothing undecided: its driver would be fenced for nothing."""
    if not await list_ongoing(client, query=query, timeout_ms=_TIMEOUT_MS):
        raise RefusedByBroker(
            f"end query {query!r}",
            ErrorCode.INVALID_TXN_STATE,
            "it has no undecided transaction; `penstock transaction holding` shows who has",
        )
    return await CommitCoordinator(client, "", query, _TIMEOUT_MS).recover()
