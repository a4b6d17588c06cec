"""Which partitions belong to a transaction: added by its owner, asked for by leaders. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.coordinators.transaction.records import State, Transaction, TransactionRecord
from penstock.coordinators.transaction.requests import ProducerIdAndEpoch
from penstock.coordinators.transaction.result import TransactionResult, find_stranger
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition

Codes = Mapping[TopicPartition, ErrorCode]


def add_partitions(
    known: Mapping[str, Transaction],
    transactional_id: str,
    claimed: ProducerIdAndEpoch,
    partitions: Iterable[TopicPartition],
    *,
    version: int,
    now_ms: int,
) -> TransactionResult[ErrorCode]:
    """The first of them begins the transaction."""
    transaction = known.get(transactional_id)
    refusal = _find_refusal(transaction, claimed)
    if transaction is None or refusal is not ErrorCode.NONE:
        return TransactionResult(answer=refusal)
    if transaction.is_kept:  # it has to be ended first, by whoever kept it
        return TransactionResult(answer=ErrorCode.INVALID_TXN_STATE)
    is_open = transaction.state is State.ONGOING
    added = frozenset(partitions)
    if not added or (is_open and added <= transaction.partitions):
        return TransactionResult(answer=ErrorCode.NONE)
    extended = replace(
        transaction,
        state=State.ONGOING,
        partitions=transaction.partitions | added,
        previous_producer_id=NO_PRODUCER_ID,
        started_ms=transaction.started_ms if is_open else now_ms,
        updated_ms=now_ms,
        client_version=version,
    )
    record = TransactionRecord(transactional_id, extended)
    return TransactionResult(answer=ErrorCode.NONE, records=(record,))


def verify_partitions(
    known: Mapping[str, Transaction],
    transactional_id: str,
    claimed: ProducerIdAndEpoch,
    partitions: Iterable[TopicPartition],
) -> Codes:
    """Whether each belongs to what is open now (KIP-890)."""
    transaction = known.get(transactional_id)
    refusal = _find_refusal(transaction, claimed)
    if transaction is None or refusal is not ErrorCode.NONE:
        return dict.fromkeys(partitions, refusal)
    open_ones = transaction.partitions
    return {
        each: ErrorCode.NONE if each in open_ones else ErrorCode.TRANSACTION_ABORTABLE
        for each in partitions
    }


def _find_refusal(transaction: Transaction | None, claimed: ProducerIdAndEpoch) -> ErrorCode:
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    stranger = find_stranger(transaction, claimed)
    if stranger is not ErrorCode.NONE:
        return stranger
    is_ending = transaction.state.is_prepared
    return ErrorCode.CONCURRENT_TRANSACTIONS if is_ending else ErrorCode.NONE
