"""Decides which queries are dead: those with an undecided transaction and no sign of life. Pure.

Signs of life are a new transaction and a renewal of the query's lease, which every running task and
every commit writes (`lease_log`). Silence is the time that was watched without either: how long a
transaction has been open says nothing, and time in which nobody could look does not count.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from penstock.spark.sink.exactly_once.transactional_ids import find_abandoned_after_ms, find_query

LEAST_ABANDONED_AFTER_MS = 5_000
_RENEWALS = 6  # within abandoned_after_ms


class WatchedTransaction(NamedTuple):
    """One undecided two-phase transaction, as its coordinator has it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    started_ms: int


class _Lease(NamedTuple):
    transactions: frozenset[WatchedTransaction]
    abandoned_after_ms: int
    silent_ms: int

    @property
    def is_expired(self) -> bool:
        return self.silent_ms >= _expires_after_ms(self.abandoned_after_ms)


def renewal_interval_ms(abandoned_after_ms: int) -> int:
    return abandoned_after_ms // _RENEWALS


def _expires_after_ms(abandoned_after_ms: int) -> int:
    """Four renewals are missing; the rest is left for ending what the query has left."""
    return 4 * renewal_interval_ms(abandoned_after_ms)


class LeaseWatch:
    """The queries whose transactions one broker coordinates. Owned by the broker's reaper."""

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}

    def observe(
        self,
        undecided: Iterable[WatchedTransaction],
        renewed: Collection[str] = (),
        *,
        watched_ms: int,
    ) -> list[str]:
        """The queries whose lease has expired. `watched_ms`: since the last call; `renewed`: the
        queries that renewed their lease meanwhile. Transactions that are not the sink's, or of a
        sink without leases, are not looked at."""
        leases = (
            self._watch(query, transactions, query in renewed, watched_ms)
            for query, transactions in _by_query(undecided).items()
        )
        self._leases = dict(leases)
        return sorted(query for query, lease in self._leases.items() if lease.is_expired)

    @property
    def needs_renewals(self) -> bool:
        """Whether a query has been silent for so long that its renewals must be read."""
        return any(
            2 * lease.silent_ms >= renewal_interval_ms(lease.abandoned_after_ms)
            for lease in self._leases.values()
        )

    def postpone(self, query: str) -> None:
        """Its transactions could not be ended: it counts as expired again after an interval."""
        lease = self._leases.get(query)
        if lease is not None:
            interval_ms = renewal_interval_ms(lease.abandoned_after_ms)
            self._leases[query] = lease._replace(silent_ms=max(0, lease.silent_ms - interval_ms))

    def _watch(
        self,
        query: str,
        transactions: frozenset[WatchedTransaction],
        is_renewed: bool,
        watched_ms: int,
    ) -> tuple[str, _Lease]:
        before = self._leases.get(query)
        is_silent = before is not None and transactions <= before.transactions and not is_renewed
        return query, _Lease(
            transactions,
            max(_abandoned_after_ms(transaction) for transaction in transactions),
            before.silent_ms + watched_ms if before is not None and is_silent else 0,
        )


def _by_query(
    transactions: Iterable[WatchedTransaction],
) -> dict[str, frozenset[WatchedTransaction]]:
    queries: dict[str, set[WatchedTransaction]] = {}
    for transaction in transactions:
        query = find_query(transaction.transactional_id)
        if query is not None and find_abandoned_after_ms(transaction.transactional_id) is not None:
            queries.setdefault(query, set()).add(transaction)
    return {query: frozenset(members) for query, members in queries.items()}


def _abandoned_after_ms(transaction: WatchedTransaction) -> int:
    abandoned_after_ms = find_abandoned_after_ms(transaction.transactional_id)
    assert abandoned_after_ms is not None, "only transactions with leases are watched"
    return max(abandoned_after_ms, LEAST_ABANDONED_AFTER_MS)
