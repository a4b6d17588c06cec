"""Runs of the index of due messages, in memory."""


class MemoryRuns:
    """A `RunStore`."""

    def __init__(self) -> None:
        self.by_hour: dict[int, bytes] = {}

    def append(self, hour: int, data: bytes) -> None:
        self.by_hour[hour] = self.by_hour.get(hour, b"") + data

    def take(self, hour: int) -> bytes:
        return self.by_hour.pop(hour, b"")
