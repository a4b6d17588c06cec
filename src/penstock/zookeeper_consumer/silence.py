"""For how long a member has waited for ZooKeeper in vain. Pure.

Not for how long ZooKeeper was silent: a process that was stopped, and a machine that was suspended,
wake up with a session that ended long ago, and have yet to ask for another.
"""

_LONGEST_WAIT_S = 1.0  # what a wait counts at most: a longer one was a pause of this process


class ZooKeeperSilence:
    """Owned by the thread that reads."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._waited_s = 0.0

    def end(self) -> None:
        """ZooKeeper has answered."""
        self._waited_s = 0.0

    def is_over_limit(self, waited_s: float) -> bool:
        """Whether it is too long with this wait, in which ZooKeeper did not answer either."""
        self._waited_s += min(waited_s, _LONGEST_WAIT_S)
        return self._waited_s > self._limit_s
