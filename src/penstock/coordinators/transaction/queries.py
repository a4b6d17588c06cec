"""What is told about transactions to whoever looks: descriptions and lists. Pure."""

from collections.abc import Callable, Mapping

from penstock.coordinators.transaction.pending_markers import EndKey
from penstock.coordinators.transaction.records import State, Transaction
from penstock.coordinators.transaction.requests import (
    NO_TIME,
    DescribedTransaction,
    ListTransactions,
    TransactionListing,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

STATES = frozenset(each.value for each in State)


def describe(
    known: Mapping[str, Transaction],
    transactional_id: str,
    later: Callable[[EndKey], frozenset[TopicPartition]],
) -> DescribedTransaction:
    """Of one that was kept, id and epoch are those of its data. Not with partitions that hold a
    later transaction open: that one is nobody's, and whoever looks for such must find it."""
    transaction = known.get(transactional_id)
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
        partitions=tuple(sorted(transaction.partitions - later(end))),
        is_two_phase=transaction.is_two_phase,
    )


def list_transactions(
    known: Mapping[str, Transaction], asked: ListTransactions, now_ms: int
) -> list[TransactionListing]:
    return [
        TransactionListing(each, transaction.producer_id, transaction.state.value)
        for each, transaction in known.items()
        if _is_asked_for(transaction, asked, now_ms)
    ]


def _is_asked_for(transaction: Transaction, asked: ListTransactions, now_ms: int) -> bool:
    if asked.states and transaction.state.value not in asked.states:
        return False
    if asked.producer_ids and transaction.producer_id not in asked.producer_ids:
        return False
    return asked.min_duration_ms < 0 or _has_lasted(transaction, asked.min_duration_ms, now_ms)


def _has_lasted(transaction: Transaction, duration_ms: int, now_ms: int) -> bool:
    started_ms = transaction.started_ms
    return started_ms != NO_TIME and now_ms - started_ms > duration_ms
