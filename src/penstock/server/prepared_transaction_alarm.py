"""Logs transactions that wait long for the decision of a two-phase commit.

Such transactions never time out, and read_committed consumers cannot read past them. This only
reports; it ends nothing. Owned by the event loop. Invariant: a coordinator reports each once.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.coordinators.runtime.dependencies import CoordinatorTimers
from penstock.coordinators.transaction.records import State
from penstock.coordinators.transaction.requests import (
    DescribedTransaction,
    ListedTransactions,
    ListTransactions,
)
from penstock.logs.event_logger import EventLogger

CHECK_EVERY_MS = 60_000


class ListsTransactions(Protocol):
    """The transaction coordinator."""

    def list(self, request: ListTransactions, /) -> ListedTransactions: ...

    def describe(self, transactional_id: str, /) -> DescribedTransaction: ...


class _TransactionKey(NamedTuple):
    transactional_id: str
    started_ms: int


class PreparedTransactionAlarm:
    """`start` it once; it checks as long as the timers run."""

    def __init__(
        self,
        coordinator: ListsTransactions,
        *,
        alarm_after_ms: Callable[[], int],  # below 0: never
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        logger: EventLogger,
    ) -> None:
        self._coordinator = coordinator
        self._alarm_after_ms = alarm_after_ms
        self._timers = timers
        self._wall_ms = wall_ms
        self._logger = logger
        self._reported: set[_TransactionKey] = set()

    def start(self) -> None:
        self._timers.add_after(CHECK_EVERY_MS, self._check_and_restart)

    def _check_and_restart(self) -> None:
        self.check()
        self.start()

    def check(self) -> None:
        prepared = {_key(transaction): transaction for transaction in self._list_prepared()}
        for key in prepared.keys() - self._reported:
            self._logger.warning("transaction_prepared_for_long", self._describe(prepared[key]))
        self._reported = set(prepared)

    def _list_prepared(self) -> list[DescribedTransaction]:
        age_ms = self._alarm_after_ms()
        if age_ms < 0:
            return []
        ongoing = frozenset((State.ONGOING.value,))
        listed = self._coordinator.list(ListTransactions(states=ongoing, min_duration_ms=age_ms))
        described = [
            self._coordinator.describe(listing.transactional_id) for listing in listed.transactions
        ]
        return [transaction for transaction in described if transaction.is_two_phase]

    def _describe(self, transaction: DescribedTransaction) -> str:
        minutes = (self._wall_ms() - transaction.started_ms) // 60_000
        return (
            f"the transaction of {transaction.transactional_id!r} (producer "
            f"{transaction.producer_id}, epoch {transaction.producer_epoch}) has been waiting "
            f"{minutes} min to be committed or aborted; read_committed consumers cannot read past "
            f"it in {len(transaction.partitions)} partitions: decide it, or abort it with "
            f"`penstock transaction abort`"
        )


def _key(transaction: DescribedTransaction) -> _TransactionKey:
    return _TransactionKey(transaction.transactional_id, transaction.started_ms)
