"""Counts requests by API, version and error, and measures how long they take.

Written for every request, so it has only lists and plain histograms: about 1 µs a request (see
docs/decisions/0028-metrics.md). Others read snapshots.
"""

from bisect import bisect_left
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.apis.slow_requests import NONE_IS_SLOW, SlowRequests
from penstock.model.errors import get_error
from penstock.model.histogram import (
    BOUNDS_S,
    NO_DURATIONS,
    DurationHistogram,
    DurationsSnapshot,
)

if TYPE_CHECKING:
    from penstock.apis.api import Api
    from penstock.network.in_flight_request import InFlightRequest

_FETCH: Final = "Fetch"


class ApiRequestStatistics(NamedTuple):
    """The requests of one API since the start."""

    name: str  # Kafka's: Produce, Fetch, ...
    versions: dict[int, int]  # version -> requests; no zeros
    errors: dict[str, int]  # error name -> responses or partitions with it; without NONE
    total: DurationsSnapshot  # from the dispatcher to the response
    local: DurationsSnapshot  # in the handler
    remote: DurationsSnapshot  # delayed: waiting for data, replicas or another broker
    send: DurationsSnapshot  # from the response to its last byte in the socket
    failed: int = 0  # responses with at least one error

    @property
    def requests(self) -> int:
        return sum(self.versions.values())


class ApiRequestCounters:
    """Implements RequestObserver. Most requests are answered by their handler at once: then the
    local time is the total, which is observed once."""

    __slots__ = (
        "_at_once",
        "_delayed",
        "_errors",
        "_failed",
        "_failing",
        "_followers",
        "_local",
        "_name",
        "_remote",
        "_sent",
        "_slow",
        "_slow_s",
        "started",
    )

    def __init__(self, name: str, last_version: int, slow: SlowRequests = NONE_IS_SLOW) -> None:
        self._name = name
        self._slow = slow
        self._slow_s = slow.threshold_s
        self._followers: ApiRequestCounters | None = None
        self.started = [0] * (last_version + 1)  # by version; the dispatcher counts
        self._errors: dict[int, int] = {}
        self._failed = 0
        self._failing: set[float] = set()  # starts of requests with an error and no response yet
        self._at_once = DurationHistogram()
        # Of delayed requests:
        self._local = DurationHistogram()
        self._remote = DurationHistogram()
        self._delayed = DurationHistogram()
        self._sent = DurationHistogram()

    def on_answered(self, request: "InFlightRequest") -> None:
        request.answered_s = now_s = perf_counter()
        total_s = now_s - request.started_s
        local_s = request.local_s
        if self._failing:
            self._note_failed(request.started_s)
        if (local_s or total_s) > self._slow_s:
            self._slow.log(self._name, request, local_s or total_s)
        if not local_s:
            at_once = self._at_once  # observed without a call, like the next
            at_once.counts[bisect_left(BOUNDS_S, total_s)] += 1
            at_once.sum_s += total_s
            return
        self._delayed.observe(total_s)
        self._local.observe(local_s)
        self._remote.observe(total_s - local_s)

    def on_sent(self, elapsed_s: float) -> None:
        sent = self._sent
        sent.counts[bisect_left(BOUNDS_S, elapsed_s)] += 1
        sent.sum_s += elapsed_s

    def count_error(self, code: int, request: "InFlightRequest") -> None:
        self._errors[code] = self._errors.get(code, 0) + 1
        if not request.is_answered:
            self._failing.add(request.started_s)

    def _note_failed(self, started_s: float) -> None:
        if started_s in self._failing:
            self._failing.discard(started_s)
            self._failed += 1

    def of_followers(self, version: int) -> "ApiRequestCounters":
        """The counters of requests that other brokers send as followers. This one has counted the
        request already, but does not measure it."""
        if self._followers is None:
            self._followers = ApiRequestCounters(
                f"{self._name}Follower", len(self.started) - 1, self._slow
            )
        self._followers.started[version] += 1
        return self._followers

    def snapshots(self) -> list[ApiRequestStatistics]:
        """Kafka's three for Fetch: all, of consumers, of followers. One for every other API."""
        own = self.snapshot()
        if self._name != _FETCH:
            return [own]
        empty = ApiRequestCounters("FetchFollower", 0)
        followers = (self._followers or empty).snapshot()
        return [_plus(own, followers), _consumers(own, followers), followers]

    def snapshot(self) -> ApiRequestStatistics:
        at_once = self._at_once.snapshot()
        return ApiRequestStatistics(
            name=self._name,
            versions={version: count for version, count in enumerate(self.started) if count},
            errors={get_error(code).name: count for code, count in self._errors.items()},
            total=at_once.plus(self._delayed.snapshot()),
            local=at_once.plus(self._local.snapshot()),
            remote=_zeros(at_once.total).plus(self._remote.snapshot()),
            send=self._sent.snapshot(),
            failed=self._failed,
        )


class RequestCounters:
    """By API key. Owned by the dispatcher."""

    def __init__(self, slow: SlowRequests = NONE_IS_SLOW) -> None:
        self._slow = slow
        self.by_key: dict[int, ApiRequestCounters] = {}  # of all that were looked up

    def of(self, api: "Api") -> ApiRequestCounters:
        counters = self.by_key.get(int(api.key))
        if counters is None:
            counters = ApiRequestCounters(api.key.title, api.versions[-1], self._slow)
            self.by_key[int(api.key)] = counters
        return counters

    def statistics(self) -> tuple[ApiRequestStatistics, ...]:
        return tuple(
            snapshot
            for counters in self.by_key.values()
            if any(counters.started)
            for snapshot in counters.snapshots()
        )


def _plus(own: ApiRequestStatistics, followers: ApiRequestStatistics) -> ApiRequestStatistics:
    """All requests: `own` has counted those of followers, but not their errors and times."""
    errors = Counter(own.errors) + Counter(followers.errors)
    return own._replace(
        errors=dict(errors),
        total=own.total.plus(followers.total),
        local=own.local.plus(followers.local),
        remote=own.remote.plus(followers.remote),
        send=own.send.plus(followers.send),
        failed=own.failed + followers.failed,
    )


def _consumers(own: ApiRequestStatistics, followers: ApiRequestStatistics) -> ApiRequestStatistics:
    versions = Counter(own.versions) - Counter(followers.versions)
    return own._replace(name="FetchConsumer", versions=dict(versions))


def _zeros(count: int) -> DurationsSnapshot:
    """So many requests that took no time."""
    return NO_DURATIONS._replace(counts=(count, *[0] * len(BOUNDS_S)))
