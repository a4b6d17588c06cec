"""Logs requests whose handler held the event loop for longer than logging.slow.request.ms.

Called only for such requests: the comparison is in `request_counters`. Waiting for data, replicas,
members of a group or the controller is not counted.
"""

from typing import TYPE_CHECKING

from penstock.logs.rate_limit import RateLimitedLogger

if TYPE_CHECKING:
    from penstock.network.in_flight_request import InFlightRequest


class SlowRequests:
    """Owned by the event loop."""

    def __init__(self, logger: RateLimitedLogger | None, threshold_s: float) -> None:
        self._logger = logger
        self.threshold_s = threshold_s

    def log(self, name: str, request: "InFlightRequest", local_s: float) -> None:
        if self._logger is None:
            return
        caller = request.caller
        self._logger.warning(
            "slow_request",
            caller.host,
            f"a {name} request of {caller.host} took {local_s * 1000:.0f} ms in its handler",
            api=name,
            client=caller.host,
            listener=caller.listener,
            duration_ms=round(local_s * 1000),
        )


NONE_IS_SLOW = SlowRequests(None, float("inf"))
