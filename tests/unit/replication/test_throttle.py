"""The throttle's rules, without a broker: which replicas, and how many bytes over time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.setting import LONG_MAX
from penstock.replication.throttle import (
    BURST_MS,
    FULL,
    NEVER_MS,
    NO_REPLICAS,
    Budget,
    ReplicationThrottle,
    after_spending,
    budget_at,
    parse_replicas,
    ready_at_ms,
)


def test_replicas_are_listed_one_by_one_or_by_a_star() -> None:
    some = parse_replicas(["0:1", "2:3"])
    assert [some.has(*item) for item in ((0, 1), (2, 3), (0, 3), (1, 1))] == [
        True,
        True,
        False,
        False,
    ]
    assert parse_replicas(["*"]).has(7, 9)
    assert not parse_replicas([]).has(0, 1)
    assert not NO_REPLICAS.has(0, 1)


def test_a_budget_grows_with_time_up_to_a_burst() -> None:
    spent = Budget(-500, 1000)
    assert budget_at(spent, rate=100, now_ms=3000) == Budget(-300, 3000)
    assert budget_at(spent, rate=100, now_ms=60_000) == Budget(100 * BURST_MS / 1000, 60_000)
    assert budget_at(FULL, rate=100, now_ms=5).left_bytes == 100


def test_an_exceeded_budget_recovers_with_time() -> None:
    budget = after_spending(budget_at(FULL, rate=1000, now_ms=0), 5000)
    ready_ms = ready_at_ms(budget, rate=1000)
    assert ready_ms == 4001
    assert budget_at(budget, rate=1000, now_ms=ready_ms - 1).left_bytes <= 0
    assert budget_at(budget, rate=1000, now_ms=ready_ms).left_bytes > 0


def test_a_rate_of_zero_never_recovers() -> None:
    budget = budget_at(FULL, rate=0, now_ms=50)
    assert ready_at_ms(budget, rate=0) == NEVER_MS


@pytest.mark.parametrize("rate", [LONG_MAX, 1 << 40])
def test_an_unlimited_rate_never_throttles(rate: int) -> None:
    throttle = ReplicationThrottle(lambda: rate, lambda: 0)
    for _ in range(100):
        throttle.spend(1 << 20)
        assert not throttle.is_spent


def test_a_higher_rate_applies_at_once() -> None:
    rate, now_ms = 1, 0
    throttle = ReplicationThrottle(lambda: rate, lambda: now_ms)
    throttle.spend(1 << 20)
    assert throttle.ready_at_ms > 1_000_000
    rate = 1 << 20
    assert throttle.ready_at_ms <= 1001
    now_ms = 1001
    assert not throttle.is_spent


@given(
    rate=st.integers(1, 100_000),
    answers=st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 500)), max_size=60),
)
def test_no_more_passes_than_the_rate_allows_over_any_period(
    rate: int, answers: list[tuple[int, int]]
) -> None:
    """At most the rate times the period, a burst and one response."""
    now_ms = 0
    throttle = ReplicationThrottle(lambda: rate, lambda: now_ms)
    passed = 0
    largest = max((size for size, _ in answers), default=0)
    for size, pause_ms in answers:
        now_ms += pause_ms
        if not throttle.is_spent:
            throttle.spend(size)
            passed += size
        allowed = rate * (now_ms + BURST_MS) / 1000 + largest
        assert passed <= math.ceil(allowed)
