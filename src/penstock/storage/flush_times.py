"""How long flushes take: of single logs, and of the rounds that flush many together."""

from typing import NamedTuple

from penstock.model.histogram import NO_DURATIONS, DurationHistogram, DurationsSnapshot


class FlushStatistics(NamedTuple):
    logs: DurationsSnapshot  # flushes of single logs
    rounds: DurationsSnapshot


NO_FLUSHES = FlushStatistics(NO_DURATIONS, NO_DURATIONS)


class FlushTimes:
    """Owned by the engine's owner thread."""

    def __init__(self) -> None:
        self._logs = DurationHistogram()
        self._rounds = DurationHistogram()

    def observe_round(self, elapsed_s: float, logs_s: list[float]) -> None:
        self._rounds.observe(elapsed_s)
        for log_s in logs_s:
            self._logs.observe(log_s)

    def statistics(self) -> FlushStatistics:
        return FlushStatistics(self._logs.snapshot(), self._rounds.snapshot())
