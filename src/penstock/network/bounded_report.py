"""Limits the log lines about clients per second, so that no client can fill the broker's log."""

from collections.abc import Callable

LINES_A_SECOND = 20


class BoundedReport:
    """Owned by the event loop."""

    def __init__(self, report: Callable[[str], None], now_ms: Callable[[], int]) -> None:
        self._report = report
        self._now_ms = now_ms
        self._second = 0
        self._reported = 0  # in this second
        self._suppressed = 0  # since the last reported line

    def __call__(self, line: str) -> None:
        second = self._now_ms() // 1000
        if second != self._second:
            self._second, self._reported = second, 0
        if self._reported >= LINES_A_SECOND:
            self._suppressed += 1
            return
        self._reported += 1
        if self._suppressed:
            line = f"{line} (and {self._suppressed} more lines suppressed before it)"
            self._suppressed = 0
        self._report(line)
