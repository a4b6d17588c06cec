"""Which queries count as dead: by their silence, never by the age of a transaction."""

from penstock.spark.sink.exactly_once.lease import (
    LEAST_ABANDONED_AFTER_MS,
    LeaseWatch,
    WatchedTransaction,
    renewal_interval_ms,
)

BOUND_MS = 60_000
INTERVAL_MS = renewal_interval_ms(BOUND_MS)
LONG_AGO_MS = 0


def transaction(query: str, number: int = 1, *, bound_ms: int = BOUND_MS) -> WatchedTransaction:
    return WatchedTransaction(f"penstock-spark:{query}:p:{number}:{bound_ms}", 7, 0, LONG_AGO_MS)


def silent_ms_until_expired(
    watch: LeaseWatch, *transactions: WatchedTransaction, step_ms: int = 1_000
) -> int:
    waited_ms = 0
    while not watch.observe(transactions, watched_ms=step_ms):
        waited_ms += step_ms
        assert waited_ms < 10 * BOUND_MS
    return waited_ms


def test_silent_query_expires_in_time_to_be_ended_within_the_bound() -> None:
    waited_ms = silent_ms_until_expired(LeaseWatch(), transaction("a"))
    assert BOUND_MS / 2 < waited_ms < BOUND_MS * 3 / 4


def test_query_that_renews_never_expires() -> None:
    watch = LeaseWatch()
    for _ in range(1_000):
        assert watch.observe([transaction("a")], {"a"}, watched_ms=INTERVAL_MS) == []


def test_two_missed_renewals_are_forgiven() -> None:
    watch = LeaseWatch()
    watch.observe([transaction("a")], watched_ms=0)
    assert watch.observe([transaction("a")], watched_ms=3 * INTERVAL_MS) == []
    assert watch.observe([transaction("a")], {"a"}, watched_ms=INTERVAL_MS) == []
    assert watch.observe([transaction("a")], watched_ms=3 * INTERVAL_MS) == []


def test_new_transaction_is_a_sign_of_life_and_the_end_of_one_is_not() -> None:
    watch = LeaseWatch()
    watch.observe([transaction("a")], watched_ms=0)
    watch.observe([transaction("a")], watched_ms=3 * INTERVAL_MS)
    both = [transaction("a"), transaction("a", 2)]
    assert watch.observe(both, watched_ms=3 * INTERVAL_MS) == []
    assert watch.observe(both[:1], watched_ms=3 * INTERVAL_MS) == []
    assert watch.observe(both[:1], watched_ms=3 * INTERVAL_MS) == ["a"]


def test_next_transaction_of_the_same_id_is_a_sign_of_life() -> None:
    watch = LeaseWatch()
    first = transaction("a")
    watch.observe([first], watched_ms=0)
    watch.observe([first], watched_ms=3 * INTERVAL_MS)
    following = first._replace(producer_epoch=1)
    assert watch.observe([following], watched_ms=3 * INTERVAL_MS) == []


def test_time_without_watching_does_not_count() -> None:
    watch = LeaseWatch()
    for _ in range(1_000):
        assert watch.observe([transaction("a")], watched_ms=0) == []


def test_queries_expire_one_by_one() -> None:
    watch = LeaseWatch()
    watch.observe([transaction("a"), transaction("b")], watched_ms=0)
    both = [transaction("a"), transaction("b")]
    assert watch.observe(both, {"b"}, watched_ms=4 * INTERVAL_MS) == ["a"]


def test_transactions_of_others_and_of_sinks_without_leases_are_not_watched() -> None:
    foreign = [
        WatchedTransaction(name, 7, 0, LONG_AGO_MS)
        for name in ("billing", "penstock-spark:q:p:1", "penstock-spark-driver:q")
    ]
    watch = LeaseWatch()
    for _ in range(10):
        assert watch.observe(foreign, watched_ms=BOUND_MS) == []
    assert not watch.needs_renewals


def test_renewals_are_read_before_a_query_expires() -> None:
    watch = LeaseWatch()
    watch.observe([transaction("a")], watched_ms=0)
    assert not watch.needs_renewals
    watch.observe([transaction("a")], watched_ms=INTERVAL_MS)
    assert watch.needs_renewals


def test_longest_bound_of_a_query_counts() -> None:
    longer = transaction("a", 2, bound_ms=10 * BOUND_MS)
    waited_ms = silent_ms_until_expired(LeaseWatch(), transaction("a"), longer, step_ms=1_000)
    assert waited_ms > 5 * BOUND_MS


def test_bound_below_the_least_is_raised_to_it() -> None:
    waited_ms = silent_ms_until_expired(LeaseWatch(), transaction("a", bound_ms=0))
    assert waited_ms > LEAST_ABANDONED_AFTER_MS / 2


def test_query_that_could_not_be_ended_expires_again_after_an_interval() -> None:
    watch = LeaseWatch()
    watch.observe([transaction("a")], watched_ms=0)
    assert watch.observe([transaction("a")], watched_ms=4 * INTERVAL_MS) == ["a"]
    watch.postpone("a")
    assert watch.observe([transaction("a")], watched_ms=INTERVAL_MS - 1) == []
    assert watch.observe([transaction("a")], watched_ms=1) == ["a"]
