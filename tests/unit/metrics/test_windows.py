"""Quantiles and rates of the last minutes."""

from penstock.apis.request_counters import ApiRequestCounters, ApiRequestStatistics
from penstock.metrics.windows import SPACING_S, WINDOW_S, RecentRequests
from penstock.model.histogram import NO_DURATIONS, DurationHistogram
from penstock.network.statistics import ListenerStatistics


def requests(*durations: float) -> list[ApiRequestStatistics]:
    histogram = DurationHistogram()
    for seconds in durations:
        histogram.observe(seconds)
    snapshot = ApiRequestCounters("Produce", 0).snapshot()
    return [snapshot._replace(total=histogram.snapshot())]


def test_slow_requests_of_long_ago_leave_the_window() -> None:
    recent = RecentRequests(0.0)
    recent.look(20.0, requests(5.0), {})
    assert recent.of_request("Produce").total.quantile_s(0.99) > 1
    looks = int(2 * WINDOW_S / SPACING_S)
    for number in range(1, looks + 1):
        recent.look(20.0 + number * SPACING_S, requests(5.0, *[0.001] * number), {})
    last = recent.of_request("Produce").total
    assert last.quantile_s(0.99) <= 0.001
    assert last.total <= WINDOW_S / SPACING_S + 1


def test_an_api_without_requests_in_the_window_is_empty() -> None:
    recent = RecentRequests(0.0)
    for now_s in (0.0, 400.0, 800.0):
        recent.look(now_s, requests(5.0), {})
    assert recent.of_request("Produce").total == NO_DURATIONS


def test_connection_rates_are_per_second() -> None:
    recent = RecentRequests(100.0)
    recent.look(110.0, [], {"PLAINTEXT": ListenerStatistics(connections=5, accepted=20)})
    assert recent.connection_rates("PLAINTEXT") == (2.0, 1.5)
