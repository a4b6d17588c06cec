"""Stalls of the event loop are logged with their stack: long ones, while clients are served."""

from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import WINDOW_MS
from penstock.server.stall_log import STALLS_A_MINUTE, StallLog
from penstock.server.watchdog import Stall


class StallHarness:
    def __init__(self) -> None:
        self.now_ms = 0
        self.lines: list[tuple[str, object]] = []
        logger = EventLogger(
            lambda level, event, message, fields: self.lines.append(
                (message, fields["unlogged_before"])
            )
        )
        self.log = StallLog(logger, lambda: self.now_ms)

    def stall(self, duration_ms: float) -> None:
        self.log.add(Stall(at_ms=0, duration_ms=duration_ms, stack="in slow_function"))


def test_nothing_is_logged_before_the_broker_serves() -> None:
    harness = StallHarness()
    harness.stall(5000)
    assert harness.lines == []


def test_a_stall_above_the_threshold_is_logged_with_its_stack() -> None:
    harness = StallHarness()
    harness.log.threshold_ms = 200
    harness.stall(199)
    harness.stall(250)
    ((message, _),) = harness.lines
    assert "250 ms" in message
    assert "in slow_function" in message


def test_a_loop_that_stalls_all_the_time_is_logged_a_few_times_a_minute() -> None:
    harness = StallHarness()
    harness.log.threshold_ms = 200
    for _ in range(STALLS_A_MINUTE + 7):
        harness.stall(300)
    assert len(harness.lines) == STALLS_A_MINUTE
    harness.now_ms = WINDOW_MS
    harness.stall(300)
    assert harness.lines[-1][1] == 7
