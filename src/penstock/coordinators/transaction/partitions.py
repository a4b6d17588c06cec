"""The partitions of a transaction: added by its owner, verified by partition leaders. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.coordinators.transaction.producer_epochs import check_producer_epoch
from penstock.coordinators.transaction.records import State, Transaction, TransactionRecord
from penstock.coordinators.transaction.requests import ProducerIdAndEpoch
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition

Codes = Mapping[TopicPartition, ErrorCode]


def add_partitions(
    transactions: Mapping[str, Transaction],
    transactional_id: str,
    claimed: ProducerIdAndEpoch,
    partitions: Iterable[TopicPartition],
    *,
    version: int,
    now_ms: int,
) -> CoordinatorResult[ErrorCode, TransactionRecord]:
    """AddPartitionsToTxn. The first partition begins the transaction, by the version of its rules
    that it keeps: brokers add partitions of internal topics, whatever the client's version."""
    transaction = transactions.get(transactional_id)
    refusal = _find_refusal(transaction, claimed)
    if transaction is None or refusal is not ErrorCode.NONE:
        return CoordinatorResult(reply=refusal)
    if transaction.is_kept:  # its new owner has to end it first
        return CoordinatorResult(reply=ErrorCode.INVALID_TXN_STATE)
    is_ongoing = transaction.state is State.ONGOING
    added = frozenset(partitions)
    if not added or (is_ongoing and added <= transaction.partitions):
        return CoordinatorResult(reply=ErrorCode.NONE)
    extended = replace(
        transaction,
        state=State.ONGOING,
        partitions=transaction.partitions | added,
        previous_producer_id=NO_PRODUCER_ID,
        started_ms=transaction.started_ms if is_ongoing else now_ms,
        updated_ms=now_ms,
        client_version=transaction.client_version if is_ongoing else version,
    )
    record = TransactionRecord(transactional_id, extended)
    return CoordinatorResult(reply=ErrorCode.NONE, records=(record,))


def verify_partitions(
    transactions: Mapping[str, Transaction],
    transactional_id: str,
    claimed: ProducerIdAndEpoch,
    partitions: Iterable[TopicPartition],
) -> Codes:
    """Whether each partition belongs to the ongoing transaction (KIP-890)."""
    transaction = transactions.get(transactional_id)
    refusal = _find_refusal(transaction, claimed)
    if transaction is None or refusal is not ErrorCode.NONE:
        return dict.fromkeys(partitions, refusal)
    added = transaction.partitions
    return {
        tp: ErrorCode.NONE if tp in added else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions
    }


def _find_refusal(transaction: Transaction | None, claimed: ProducerIdAndEpoch) -> ErrorCode:
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    fenced = check_producer_epoch(transaction, claimed)
    if fenced is not ErrorCode.NONE:
        return fenced
    is_ending = transaction.state.is_prepared
    return ErrorCode.CONCURRENT_TRANSACTIONS if is_ending else ErrorCode.NONE
