"""Runs of the index of due messages, in memory."""


class MemoryRuns:
    """A `RunStore`."""

    def __init__(self) -> None:
        self.by_hour: dict[int, bytes] = {}
        self.error: OSError | None = None  # of every call

    def append(self, hour: int, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.by_hour[hour] = self.by_hour.get(hour, b"") + data

    def take(self, hour: int) -> bytes:
        if self.error is not None:
            raise self.error
        return self.by_hour.pop(hour, b"")
