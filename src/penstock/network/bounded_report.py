"""Lines about clients, a bounded number a second: no client can fill the broker's log."""

from collections.abc import Callable

LINES_A_SECOND = 20


class BoundedReport:
    """Owned by the event loop."""

    def __init__(self, report: Callable[[str], None], now_ms: Callable[[], int]) -> None:
        self._report = report
        self._now_ms = now_ms
        self._second = 0
        self._told = 0  # in this second
        self._untold = 0  # in this and those before, since the last that was told

    def __call__(self, line: str) -> None:
        second = self._now_ms() // 1000
        if second != self._second:
            self._second, self._told = second, 0
        if self._told >= LINES_A_SECOND:
            self._untold += 1
            return
        self._told += 1
        if self._untold:
            line = f"{line} (and {self._untold} more lines before it, too many to tell)"
            self._untold = 0
        self._report(line)
