"""What time does to transactions: those that take too long are aborted, ids without use forgotten.

Pure. A transaction of a two-phase commit never takes too long, and nothing that is open or being
ended is forgotten.
"""

from collections.abc import Iterable, Mapping

from penstock.coordinators.transaction.end_transaction import abort
from penstock.coordinators.transaction.records import State, Transaction, TransactionRecord


def abort_late(
    known: Mapping[str, Transaction], transactional_ids: Iterable[str], *, now_ms: int
) -> tuple[TransactionRecord, ...]:
    """Of these ids, as far as they are there."""
    return tuple(
        TransactionRecord(each, abort(transaction, now_ms=now_ms, may_come_back=True))
        for each in transactional_ids
        if (transaction := known.get(each)) is not None and is_late(transaction, now_ms)
    )


def is_late(transaction: Transaction, now_ms: int) -> bool:
    if transaction.state is not State.ONGOING or transaction.is_two_phase:
        return False
    return now_ms - transaction.started_ms > transaction.timeout_ms


def forget_unused(
    known: Mapping[str, Transaction],
    transactional_ids: Iterable[str],
    *,
    now_ms: int,
    expiration_ms: int,
) -> tuple[TransactionRecord, ...]:
    return tuple(
        TransactionRecord(each, None)
        for each in transactional_ids
        if (transaction := known.get(each)) is not None
        and _is_unused(transaction)
        and now_ms - transaction.updated_ms >= expiration_ms
    )


def _is_unused(transaction: Transaction) -> bool:
    return transaction.state is State.EMPTY or transaction.state.is_complete
