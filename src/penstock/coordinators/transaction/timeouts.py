"""Time-outs of transactions and expiry of transactional ids. Pure.

A two-phase transaction never times out (KIP-939), and an id with an open or ending transaction
never expires.
"""

from collections.abc import Iterable, Mapping

from penstock.coordinators.transaction.end_transaction import abort
from penstock.coordinators.transaction.records import State, Transaction, TransactionRecord


def abort_timed_out(
    transactions: Mapping[str, Transaction], transactional_ids: Iterable[str], *, now_ms: int
) -> tuple[TransactionRecord, ...]:
    """Abort the timed-out transactions of these ids; ids that no longer exist are skipped."""
    return tuple(
        TransactionRecord(transactional_id, abort(transaction, now_ms=now_ms, may_come_back=True))
        for transactional_id in transactional_ids
        if (transaction := transactions.get(transactional_id)) is not None
        and is_timed_out(transaction, now_ms)
    )


def is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    if transaction.state is not State.ONGOING or transaction.is_two_phase:
        return False
    return now_ms - transaction.started_ms > transaction.timeout_ms


def expire_ids(
    transactions: Mapping[str, Transaction],
    transactional_ids: Iterable[str],
    *,
    now_ms: int,
    expiration_ms: int,
) -> tuple[TransactionRecord, ...]:
    return tuple(
        TransactionRecord(transactional_id, None)
        for transactional_id in transactional_ids
        if (transaction := transactions.get(transactional_id)) is not None
        and _is_idle(transaction)
        and now_ms - transaction.updated_ms >= expiration_ms
    )


def _is_idle(transaction: Transaction) -> bool:
    return transaction.state is State.EMPTY or transaction.state.is_complete
