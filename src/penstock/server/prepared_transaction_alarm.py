"""Tells of transactions that wait long for the decision of a two-phase commit.

They never time out, and readers of committed records wait before them: somebody should know.
Ends nothing. Owned by the event loop. Invariant: each is told of once by who coordinates it.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.config.effective_config import EffectiveConfig
from penstock.coordinators.runtime.dependencies import CoordinatorTimers, Report
from penstock.coordinators.transaction.records import State
from penstock.coordinators.transaction.requests import (
    DescribedTransaction,
    ListedTransactions,
    ListTransactions,
    TransactionListing,
)

LOOK_EVERY_MS = 60_000


class Looks(Protocol):
    """The coordinator."""

    def list(self, asked: ListTransactions, /) -> ListedTransactions: ...

    def describe(self, transactional_id: str, /) -> DescribedTransaction: ...


class _Key(NamedTuple):
    transactional_id: str
    started_ms: int


class PreparedAlarm:
    """`start` it once; it goes on for as long as the timers do."""

    def __init__(
        self,
        coordinator: Looks,
        *,
        settings: Callable[[], EffectiveConfig],
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        report: Report,
    ) -> None:
        self._coordinator = coordinator
        self._settings = settings
        self._timers = timers
        self._wall_ms = wall_ms
        self._report = report
        self._told: set[_Key] = set()

    def start(self) -> None:
        self._timers.add_after(LOOK_EVERY_MS, self._look_and_rest)

    def _look_and_rest(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        age_ms = self._settings()["transaction.prepared.alarm.ms"]
        assert isinstance(age_ms, int)
        asked = ListTransactions(states=frozenset((State.ONGOING.value,)), min_duration_ms=age_ms)
        listed = self._coordinator.list(asked).transactions if age_ms >= 0 else ()
        found = {_key(each): each for each in self._describe(listed) if each.is_two_phase}
        for key in found.keys() - self._told:
            self._report(self._words(found[key]))
        self._told = set(found)

    def _describe(self, listed: tuple[TransactionListing, ...]) -> list[DescribedTransaction]:
        return [self._coordinator.describe(each.transactional_id) for each in listed]

    def _words(self, transaction: DescribedTransaction) -> str:
        minutes = (self._wall_ms() - transaction.started_ms) // 60_000
        return (
            f"the transaction of {transaction.transactional_id!r} (producer "
            f"{transaction.producer_id}, epoch {transaction.producer_epoch}) has waited "
            f"{minutes} min to be committed or aborted; readers of committed records wait before "
            f"it in {len(transaction.partitions)} partitions: decide it, or abort it with "
            f"`penstock transaction abort`"
        )


def _key(transaction: DescribedTransaction) -> _Key:
    return _Key(transaction.transactional_id, transaction.started_ms)
