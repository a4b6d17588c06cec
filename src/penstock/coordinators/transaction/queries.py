"""DescribeTransactions and ListTransactions, as read-only views of the state. Pure."""

from collections.abc import Callable, Mapping

from penstock.coordinators.transaction.pending_markers import EndKey
from penstock.coordinators.transaction.records import State, Transaction
from penstock.coordinators.transaction.requests import (
    NO_TIME,
    DescribedTransaction,
    ListTransactions,
    TransactionSummary,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

STATES = frozenset(state.value for state in State)


def describe(
    transactions: Mapping[str, Transaction],
    transactional_id: str,
    newer_open: Callable[[EndKey], frozenset[TopicPartition]],
) -> DescribedTransaction:
    """A kept transaction shows the producer id and epoch of its data. Partitions on which a newer
    transaction is open are left out: nobody owns that one, and a search for hanging transactions
    must find it."""
    transaction = transactions.get(transactional_id)
    if transaction is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribedTransaction(transactional_id=transactional_id, code=code)
    end = EndKey(transactional_id, transaction.producer_id, transaction.producer_epoch)
    return DescribedTransaction(
        transactional_id=transactional_id,
        code=ErrorCode.NONE,
        state=transaction.state.value,
        timeout_ms=transaction.timeout_ms,
        started_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        partitions=tuple(sorted(transaction.partitions - newer_open(end))),
        is_two_phase=transaction.is_two_phase,
    )


def list_transactions(
    transactions: Mapping[str, Transaction], filters: ListTransactions, now_ms: int
) -> list[TransactionSummary]:
    return [
        TransactionSummary(transactional_id, transaction.producer_id, transaction.state.value)
        for transactional_id, transaction in transactions.items()
        if _matches(transaction, filters, now_ms)
    ]


def _matches(transaction: Transaction, filters: ListTransactions, now_ms: int) -> bool:
    if filters.states and transaction.state.value not in filters.states:
        return False
    if filters.producer_ids and transaction.producer_id not in filters.producer_ids:
        return False
    return filters.min_duration_ms < 0 or _has_lasted(transaction, filters.min_duration_ms, now_ms)


def _has_lasted(transaction: Transaction, duration_ms: int, now_ms: int) -> bool:
    started_ms = transaction.started_ms
    return started_ms != NO_TIME and now_ms - started_ms > duration_ms
