"""How long flushes take, of single logs and of the rounds that flush many together, and how much a
round covers: a slow disk shows as long rounds, and those as large ones."""

from typing import NamedTuple

from penstock.model.histogram import (
    NO_DURATIONS,
    DurationHistogram,
    DurationsSnapshot,
    SizeHistogram,
    SizesSnapshot,
)

LOGS = tuple(1 << power for power in range(9))  # 1 to 256, the most that a round has
BYTES = tuple(1 << power for power in range(8, 31, 2))  # 256 B to 1 GiB


class FlushStatistics(NamedTuple):
    logs: DurationsSnapshot  # flushes of single logs
    rounds: DurationsSnapshot
    round_logs: SizesSnapshot  # flushed together
    round_bytes: SizesSnapshot  # appended since the logs' last rounds


NO_FLUSHES = FlushStatistics(
    NO_DURATIONS,
    NO_DURATIONS,
    SizeHistogram(LOGS).snapshot(),
    SizeHistogram(BYTES).snapshot(),
)


class FlushTimes:
    """Owned by the engine's owner thread."""

    def __init__(self) -> None:
        self._logs = DurationHistogram()
        self._rounds = DurationHistogram()
        self._round_logs = SizeHistogram(LOGS)
        self._round_bytes = SizeHistogram(BYTES)

    def observe_round(self, elapsed_s: float, logs_s: list[float], appended_bytes: int) -> None:
        self._rounds.observe(elapsed_s)
        self._round_logs.observe(len(logs_s))
        self._round_bytes.observe(appended_bytes)
        for log_s in logs_s:
            self._logs.observe(log_s)

    def statistics(self) -> FlushStatistics:
        return FlushStatistics(
            self._logs.snapshot(),
            self._rounds.snapshot(),
            self._round_logs.snapshot(),
            self._round_bytes.snapshot(),
        )
