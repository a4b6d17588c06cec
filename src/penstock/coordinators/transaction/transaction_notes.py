"""Log events about transactions: producers that are fenced, transactions that time out. Pure."""

from penstock.coordinators.runtime.result import CoordinatorNote
from penstock.coordinators.transaction.records import Transaction


def note_fence(transactional_id: str, transaction: Transaction, reason: str) -> CoordinatorNote:
    return CoordinatorNote(
        "producer_fenced",
        transactional_id,
        f"a producer of transactional id {transactional_id!r} is fenced: {reason}",
        {**_describe(transactional_id, transaction), "reason": reason},
    )


def note_timeout(transactional_id: str, transaction: Transaction, now_ms: int) -> CoordinatorNote:
    open_ms = now_ms - transaction.started_ms
    return CoordinatorNote(
        "transaction_timed_out",
        transactional_id,
        f"the transaction of {transactional_id!r} is aborted: open for {open_ms} ms, its timeout "
        f"is {transaction.timeout_ms} ms",
        {
            **_describe(transactional_id, transaction),
            "open_ms": open_ms,
            "timeout_ms": transaction.timeout_ms,
        },
    )


def _describe(transactional_id: str, transaction: Transaction) -> dict[str, object]:
    return {
        "transactional_id": transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
    }
