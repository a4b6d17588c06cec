"""Quantiles and rates of the last minutes, from snapshots that count since the start.

Keeps earlier snapshots and subtracts them, so that an observation costs nothing for it.
"""

from collections import deque
from collections.abc import Sequence

from penstock.apis.request_counters import ApiRequestStatistics
from penstock.network.statistics import ListenerStatistics

WINDOW_S = 300.0
SPACING_S = 15.0  # between kept snapshots

_Kept = tuple[float, dict[str, ApiRequestStatistics], dict[str, ListenerStatistics]]


class RecentRequests:
    """What happened between an earlier look and the latest one; 5 minutes if looks are frequent."""

    def __init__(self, started_s: float) -> None:
        self._kept: deque[_Kept] = deque([(started_s, {}, {})])
        self._latest: _Kept = self._kept[0]

    def look(
        self,
        now_s: float,
        requests: Sequence[ApiRequestStatistics],
        listeners: dict[str, ListenerStatistics],
    ) -> None:
        self._latest = (now_s, {request.name: request for request in requests}, listeners)
        kept = self._kept
        while len(kept) > 1 and now_s - kept[1][0] >= WINDOW_S:
            kept.popleft()
        if now_s - kept[-1][0] >= SPACING_S:
            kept.append(self._latest)

    def of_request(self, name: str) -> ApiRequestStatistics:
        """Times of the window; `versions` and `errors` still count since the start."""
        latest = self._latest[1][name]
        earlier = self._kept[0][1].get(name)
        if earlier is None:
            return latest
        return latest._replace(
            total=latest.total.minus(earlier.total),
            local=latest.local.minus(earlier.local),
            remote=latest.remote.minus(earlier.remote),
            send=latest.send.minus(earlier.send),
        )

    def connection_rates(self, listener: str) -> tuple[float, float]:
        """Connections accepted and closed a second."""
        nothing = ListenerStatistics(0, 0)
        latest = self._latest[2][listener]
        earlier = self._kept[0][2].get(listener, nothing)
        elapsed_s = max(self._latest[0] - self._kept[0][0], 1e-3)
        accepted = latest.accepted - earlier.accepted
        closed = accepted - (latest.connections - earlier.connections)
        return accepted / elapsed_s, closed / elapsed_s
