"""Queries run tasks, renew their leases and die, and a broker that may stand still watches them: no
live query expires, and every dead one does, in time."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.spark.sink.exactly_once.lease import (
    LeaseWatch,
    WatchedTransaction,
    renewal_interval_ms,
)

BOUND_MS = 60_000
INTERVAL_MS = renewal_interval_ms(BOUND_MS)
STEP_MS = 1_000
MOST_WATCHED_MS = 2_000
MOST_DELAY_MS = 2 * INTERVAL_MS  # of one renewal: a slow process, a broker that restarts
QUERIES = ("a", "b", "c")


@dataclass
class Query:
    name: str
    transactions: set[WatchedTransaction] = field(default_factory=set)
    is_alive: bool = True
    renews_in_ms: int = INTERVAL_MS
    silent_ms: int = 0  # watched since its last sign of life
    numbers: int = 0

    def open(self) -> None:
        self.numbers += 1
        name = f"penstock-spark:{self.name}:p:{self.numbers}:{BOUND_MS}"
        self.transactions.add(WatchedTransaction(name, self.numbers, 0, 0))
        self.silent_ms = 0

    def pass_time(self, elapsed_ms: int, delay_ms: int) -> bool:
        """Whether it renews its lease within this time; the next renewal may be late."""
        self.renews_in_ms -= elapsed_ms
        if not self.is_alive or self.renews_in_ms > 0:
            return False
        self.renews_in_ms = INTERVAL_MS + delay_ms
        return True


ACTIONS = st.tuples(
    st.sampled_from(["watch"] * 30 + ["open", "commit", "kill", "stall"]),
    st.sampled_from(QUERIES),
    st.integers(0, MOST_DELAY_MS),
)


@given(st.lists(ACTIONS, min_size=50, max_size=400))
@settings(max_examples=scaled(test=150, verify=500, release=10_000), deadline=None)
def test_dead_queries_expire_in_time_and_live_ones_never(
    actions: list[tuple[str, str, int]],
) -> None:
    watch, queries = LeaseWatch(), {name: Query(name) for name in QUERIES}
    for kind, name, number in actions:
        query = queries[name]
        if kind == "open" and query.is_alive:
            query.open()
        elif kind == "commit" and query.is_alive:
            query.transactions.clear()
        elif kind == "kill":
            query.is_alive = False
        elif kind in ("watch", "stall"):
            elapsed_ms = STEP_MS if kind == "watch" else STEP_MS * number
            observe(watch, queries, elapsed_ms, delay_ms=number)


def observe(
    watch: LeaseWatch, queries: dict[str, Query], elapsed_ms: int, *, delay_ms: int
) -> None:
    watched_ms = min(elapsed_ms, MOST_WATCHED_MS)
    renewed = {query.name for query in queries.values() if query.pass_time(elapsed_ms, delay_ms)}
    undecided = [one for query in queries.values() for one in query.transactions]
    expired = watch.observe(undecided, renewed, watched_ms=watched_ms)
    for name in expired:
        dead = queries[name]
        assert not dead.is_alive, f"query {name} is alive"
        # Its transactions are ended, and it is started again, with other ones.
        queries[name] = Query(name, numbers=dead.numbers)
    for query in queries.values():
        query.silent_ms = 0 if query.name in renewed else query.silent_ms + watched_ms
        is_late = query.silent_ms > BOUND_MS * 3 / 4
        assert not (is_late and query.transactions and not query.is_alive), f"{query.name} is held"
