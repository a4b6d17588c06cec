"""Counts stop requests: the first one asks for a clean shutdown, a later one for an immediate exit.

Does not handle signals, which the process's entry point does. Requests that arrive together count
as one, because `timeout`, shells and supervisors signal a process and then its process group.
"""

TOGETHER_S = 1.0


class BrokerEnding(Exception):
    """A part of the broker has failed, so that it ends; it starts no more work."""


class StopRequests:
    """The stop requests of one process; owned by its signal handler."""

    def __init__(self) -> None:
        self._first_s: float | None = None

    def is_urgent(self, now_s: float) -> bool:
        """Count a request. True if it is a second one, not a duplicate of the first."""
        if self._first_s is None:
            self._first_s = now_s
        return now_s - self._first_s > TOGETHER_S
