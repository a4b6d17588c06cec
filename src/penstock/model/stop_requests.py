"""What requests to stop mean: the first asks for an end in order, a later one for an end at once.

Not the handling of signals, which is the process's edge. Requests that come together are one:
`timeout`, shells and supervisors signal a process, and then the group that it is in.
"""

TOGETHER_S = 1.0


class StopRequests:
    """Of one process; owned by whoever handles its signals."""

    def __init__(self) -> None:
        self._first_s: float | None = None

    def is_urgent(self, now_s: float) -> bool:
        """Notes a request. True if it is another one, and not the first told twice."""
        if self._first_s is None:
            self._first_s = now_s
        return now_s - self._first_s > TOGETHER_S
