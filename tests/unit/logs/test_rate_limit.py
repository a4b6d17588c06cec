"""Events that clients cause: the first few per event and peer are logged, then a sum."""

import tracemalloc
from collections.abc import Callable

from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import (
    MAX_PEERS,
    WINDOW_MS,
    EventRateLimit,
    RateLimitedLogger,
    Suppressed,
)


def admitted(limit: EventRateLimit, peer: str, count: int, *, event: str = "refused") -> int:
    return sum(limit.admits(event, peer, 0) for _ in range(count))


def test_every_peer_and_every_event_has_its_own_limit() -> None:
    limit = EventRateLimit(per_peer=3)
    assert admitted(limit, "10.0.0.1", 5) == 3
    assert admitted(limit, "10.0.0.2", 5) == 3
    assert admitted(limit, "10.0.0.1", 5, event="too_slow") == 3


def test_many_peers_together_are_limited_too() -> None:
    limit = EventRateLimit(per_peer=3, per_event=10)
    assert sum(admitted(limit, f"10.0.0.{number}", 1) for number in range(100)) == 10


def test_names_of_any_length_take_little_memory() -> None:
    limit = EventRateLimit(per_peer=1)
    tracemalloc.start()
    try:
        for number in range(MAX_PEERS):
            limit.admits("group_rebalance", f"{number:010}{'x' * 30_000}", 0)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 1_000_000


def test_the_end_of_a_window_tells_once_what_was_suppressed() -> None:
    limit = EventRateLimit(per_peer=1)
    admitted(limit, "10.0.0.1", 4)
    admitted(limit, "10.0.0.2", 2)
    assert limit.take_suppressed(WINDOW_MS - 1) == []
    assert limit.take_suppressed(WINDOW_MS) == [Suppressed("refused", 4, 2, "10.0.0.1")]
    assert limit.take_suppressed(WINDOW_MS) == []
    assert limit.admits("refused", "10.0.0.1", WINDOW_MS)


def test_memory_does_not_grow_with_the_number_of_peers() -> None:
    limit = EventRateLimit()
    for number in range(2 * MAX_PEERS):
        limit.admits("refused", str(number), 0)
    (suppressed,) = limit.take_suppressed(WINDOW_MS)
    assert suppressed.peers <= MAX_PEERS + 1


class LimitedHarness:
    def __init__(self) -> None:
        self.now_ms = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.lines: list[tuple[str, str]] = []
        logger = EventLogger(
            lambda level, event, message, fields: self.lines.append((event, message))
        )
        self.logger = RateLimitedLogger(
            logger,
            now_ms=lambda: self.now_ms,
            add_timer=lambda delay_ms, call: self.timers.append((delay_ms, call)),
            limit=EventRateLimit(per_peer=1),
        )


def test_the_sum_is_logged_by_a_timer_even_if_nothing_else_happens() -> None:
    harness = LimitedHarness()
    for _ in range(3):
        harness.logger.warning("refused", "10.0.0.1", "refused")
    assert [event for event, _ in harness.lines] == ["refused"]
    ((delay_ms, call),) = harness.timers
    harness.now_ms = delay_ms
    call()
    assert [event for event, _ in harness.lines] == ["refused", "events_suppressed"]
    assert "2 more events refused" in harness.lines[-1][1]


def test_an_event_below_the_level_is_not_counted() -> None:
    logger = RateLimitedLogger(
        EventLogger(lambda *event: None, lambda level: False),
        now_ms=lambda: 0,
        add_timer=lambda delay_ms, call: None,
        limit=(limit := EventRateLimit(per_peer=1)),
    )
    for _ in range(3):
        logger.info("refused", "10.0.0.1")
    assert limit.take_suppressed(WINDOW_MS) == []
