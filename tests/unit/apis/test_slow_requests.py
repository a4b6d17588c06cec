"""A request is logged if its handler held the loop for too long, and not if it only waited."""

from time import perf_counter
from typing import cast

from penstock.apis.request_counters import ApiRequestCounters
from penstock.apis.slow_requests import SlowRequests
from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.network.in_flight_request import InFlightRequest
from penstock.security.principal import ANONYMOUS, Caller


class FakeRequest:
    def __init__(self, caller: Caller, *, ago_s: float, local_s: float = 0.0) -> None:
        self.caller = caller
        self.started_s = perf_counter() - ago_s
        self.local_s = local_s
        self.answered_s = 0.0


class SlowHarness:
    def __init__(self, caller: Caller) -> None:
        self.lines: list[tuple[str, object]] = []
        self._caller = caller
        logger = EventLogger(
            lambda level, event, message, fields: self.lines.append((event, fields["api"]))
        )
        limited = RateLimitedLogger(logger, now_ms=lambda: 0, add_timer=lambda delay_ms, call: None)
        self.counters = ApiRequestCounters("Produce", 9, SlowRequests(limited, 0.5))

    def answer(self, *, ago_s: float, local_s: float = 0.0) -> None:
        request = FakeRequest(self._caller, ago_s=ago_s, local_s=local_s)
        self.counters.on_answered(cast("InFlightRequest", request))


CALLER = Caller(listener="PLAINTEXT", host="10.0.0.1", principal=ANONYMOUS)


def test_a_request_that_is_answered_at_once_counts_in_full() -> None:
    harness = SlowHarness(CALLER)
    harness.answer(ago_s=0.0)
    assert harness.lines == []
    harness.answer(ago_s=0.6)
    assert harness.lines == [("slow_request", "Produce")]


def test_a_delayed_request_counts_without_its_delay() -> None:
    harness = SlowHarness(CALLER)
    harness.answer(ago_s=30.0, local_s=0.001)
    assert harness.lines == []
    harness.answer(ago_s=30.0, local_s=0.6)
    assert harness.lines == [("slow_request", "Produce")]
