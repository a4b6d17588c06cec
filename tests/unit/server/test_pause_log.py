"""Pauses of the whole process are logged: those above the threshold, a few a minute."""

from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import WINDOW_MS
from penstock.server.pause_log import PAUSES_A_MINUTE, PauseLog
from penstock.server.watchdog import Pause


class PauseHarness:
    def __init__(self, threshold_ms: int | None = 5_000) -> None:
        self.now_ms = 0
        self.events: list[tuple[str, str, dict[str, object]]] = []
        logger = EventLogger(
            lambda level, event, message, fields: self.events.append((event, message, dict(fields)))
        )
        self.log = PauseLog(logger, lambda: self.now_ms)
        self.log.threshold_ms = threshold_ms

    def pause(self, duration_ms: float) -> None:
        self.log.add(Pause(at_ms=0, duration_ms=duration_ms))


def test_a_pause_above_the_threshold_is_logged_with_its_length() -> None:
    harness = PauseHarness()
    harness.pause(4_999)
    harness.pause(7_300)
    ((event, message, fields),) = harness.events
    assert event == "process_paused"
    assert "7.3 s" in message
    assert fields["duration_ms"] == 7_300


def test_nothing_is_logged_before_the_threshold_is_known() -> None:
    harness = PauseHarness(threshold_ms=None)
    harness.pause(60_000)
    assert harness.events == []


def test_a_machine_that_freezes_all_the_time_is_logged_a_few_times_a_minute() -> None:
    harness = PauseHarness()
    for _ in range(PAUSES_A_MINUTE + 3):
        harness.pause(6_000)
    assert len(harness.events) == PAUSES_A_MINUTE
    harness.now_ms = WINDOW_MS
    harness.pause(6_000)
    assert harness.events[-1][2]["unlogged_before"] == 3
