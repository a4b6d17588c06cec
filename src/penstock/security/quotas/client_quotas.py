"""A broker's client quotas: the bounds in effect, and what each client has used of them.

Not where quotas are stored, and not how a connection is made to wait. Invariant: while no quota is
set, `is_active` is false and nothing is recorded. Times are monotonic milliseconds.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from penstock.model.quotas import QuotaEntity, QuotaKey, Quotas
from penstock.security.quotas.levels import QuotaBound, find_client_bound, find_ip_bound
from penstock.security.quotas.rates import PacedRate, RateWindow, TokenBucket, WindowedRate

MAX_TRACKED = 50_000  # clients or addresses of one quota; beyond it the idle ones are forgotten
_MAX_RESOLVED = 50_000
_FULL_WINDOW = 100.0  # percent of a thread

_Used = TypeVar("_Used", WindowedRate, TokenBucket, PacedRate)
_Name = TypeVar("_Name")


class QuotaWindows(NamedTuple):
    client: RateWindow = RateWindow()
    controller: RateWindow = RateWindow()


class ThrottleStatistics(NamedTuple):
    throttled: int = 0  # responses with a throttle time, delayed or refused connections
    throttle_s: float = 0.0  # all of their times


class _Throttles:
    """Counters of one quota."""

    __slots__ = ("throttle_ms", "throttled")

    def __init__(self) -> None:
        self.throttled = self.throttle_ms = 0

    def note(self, throttle_ms: int) -> int:
        if throttle_ms:
            self.throttled += 1
            self.throttle_ms += throttle_ms
        return throttle_ms


class ClientQuotas:
    """Owned by the event loop's thread."""

    def __init__(self, windows: QuotaWindows | None = None) -> None:
        self._windows = windows or QuotaWindows()
        self.is_active = False  # whether any quota of users or client ids is set
        self.limits_connections = False  # whether any quota of addresses is set
        self._bounds: dict[QuotaKey, dict[QuotaEntity, float]] = {}  # no empty ones
        self._resolved: dict[tuple[QuotaKey, str, str], QuotaBound | None] = {}
        self._rates: dict[tuple[QuotaKey, QuotaEntity], WindowedRate] = {}
        self._buckets: dict[QuotaEntity, TokenBucket] = {}
        self._paced: dict[str, PacedRate] = {}
        self._throttles = {key: _Throttles() for key in QuotaKey}

    def replace(self, quotas: Mapping[QuotaEntity, Quotas]) -> None:
        """Take these as all quotas. What clients have used so far still counts."""
        bounds: dict[QuotaKey, dict[QuotaEntity, float]] = {}
        for entity, values in quotas.items():
            for key, value in values.items():
                bounds.setdefault(key, {})[entity] = value
        self._bounds = bounds
        self._resolved.clear()
        self.limits_connections = QuotaKey.CONNECTION_CREATION_RATE in bounds
        self.is_active = bool(bounds.keys() - {QuotaKey.CONNECTION_CREATION_RATE})

    def find_bound(self, key: QuotaKey, user: str, client_id: str) -> QuotaBound | None:
        bounds = self._bounds.get(key)
        if bounds is None:
            return None
        question = key, user, client_id
        if question in self._resolved:
            return self._resolved[question]
        if len(self._resolved) >= _MAX_RESOLVED:
            self._resolved.clear()
        limit = self._resolved[question] = find_client_bound(bounds, user, client_id)
        return limit

    # -- what was used, and the time to wait -------------------------------------------------

    def use_producer_bytes(self, user: str, client_id: str, count: int, now_ms: int) -> int:
        """Counts bytes that were received; how long the client has to wait."""
        key = QuotaKey.PRODUCER_BYTE_RATE
        limit = self.find_bound(key, user, client_id)
        if limit is None:
            return 0
        rate = self._rate_of(key, limit.sharers, now_ms)
        rate.record(count, now_ms)
        return self._throttles[key].note(rate.throttle_ms(limit.bound, now_ms))

    def use_consumer_bytes(self, user: str, client_id: str, count: int, now_ms: int) -> int:
        """Counts bytes that are about to be sent. Above 0: they must not be sent, and are not
        counted. A batch that no window would have room for passes once the window is empty."""
        key = QuotaKey.CONSUMER_BYTE_RATE
        limit = self.find_bound(key, user, client_id)
        if limit is None or not count:
            return 0
        rate = self._rate_of(key, limit.sharers, now_ms)
        is_unused = rate.measure(now_ms) == 0
        rate.record(count, now_ms)
        throttle_ms = 0 if is_unused else rate.throttle_ms(limit.bound, now_ms)
        if throttle_ms:
            rate.record(-count, now_ms)
        return self._throttles[key].note(throttle_ms)

    def find_fetch_limit(self, user: str, client_id: str) -> int | None:
        """The most bytes that one fetch may ask for, so that it fits into a window."""
        limit = self.find_bound(QuotaKey.CONSUMER_BYTE_RATE, user, client_id)
        if limit is None:
            return None
        window = self._windows.client
        seconds = max(window.samples - 1, 1) * window.sample_ms / 1000
        return max(int(limit.bound * seconds), 1)

    def use_request_time(self, user: str, client_id: str, used_s: float, now_ms: int) -> int:
        """Counts time of the thread that serves requests. One throttle is a sample at most."""
        key = QuotaKey.REQUEST_PERCENTAGE
        limit = self.find_bound(key, user, client_id)
        if limit is None:
            return 0
        rate = self._rate_of(key, limit.sharers, now_ms)
        rate.record(used_s * _FULL_WINDOW, now_ms)
        throttle_ms = rate.throttle_ms(limit.bound, now_ms)
        return self._throttles[key].note(min(throttle_ms, self._windows.client.sample_ms))

    def try_use_mutations(
        self, user: str, client_id: str, count: int, now_ms: int, *, must_succeed: bool
    ) -> tuple[bool, int]:
        """Counts partitions to create or delete. False: they must not be; with the time to wait.
        `must_succeed`: a client that does not know the error is only made to wait."""
        key = QuotaKey.CONTROLLER_MUTATION_RATE
        limit = self.find_bound(key, user, client_id)
        if limit is None:
            return True, 0
        bucket = self._bucket_of(limit, now_ms)
        if must_succeed:
            bucket.take(count, limit.bound, now_ms)
            return True, self._throttles[key].note(bucket.throttle_ms(limit.bound, now_ms))
        if bucket.try_take(count, limit.bound, now_ms):
            return True, 0
        return False, self._throttles[key].note(bucket.throttle_ms(limit.bound, now_ms))

    def use_connection(self, ip: str, now_ms: int) -> int:
        """Counts a connection; how long it has to wait until it is served."""
        key = QuotaKey.CONNECTION_CREATION_RATE
        bound = find_ip_bound(self._bounds.get(key, {}), ip)
        if bound is None:
            return 0
        paced = self._paced.get(ip)
        if paced is None:
            self._make_room(self._paced, now_ms, self._windows.client)
            paced = self._paced[ip] = PacedRate()
        return self._throttles[key].note(paced.delay_ms(bound, self._windows.client, now_ms))

    @property
    def longest_connection_delay_ms(self) -> int:
        """Connections that would wait longer are closed: they hold descriptors."""
        return self._windows.client.total_ms

    def statistics(self) -> Mapping[QuotaKey, ThrottleStatistics]:
        return {
            key: ThrottleStatistics(counters.throttled, counters.throttle_ms / 1000)
            for key, counters in self._throttles.items()
        }

    # -- what is tracked ---------------------------------------------------------------------

    def _rate_of(self, key: QuotaKey, sharers: QuotaEntity, now_ms: int) -> WindowedRate:
        rate = self._rates.get((key, sharers))
        if rate is None:
            self._make_room(self._rates, now_ms, self._windows.client)
            rate = self._rates[key, sharers] = WindowedRate(self._windows.client)
        return rate

    def _bucket_of(self, limit: QuotaBound, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(limit.sharers)
        if bucket is None:
            window = self._windows.controller
            self._make_room(self._buckets, now_ms, window)
            bucket = self._buckets[limit.sharers] = TokenBucket(window, limit.bound, now_ms)
        return bucket

    def _make_room(self, used: "dict[_Name, _Used]", now_ms: int, window: RateWindow) -> None:
        """Forgets what is as if it had never been used. If that is not enough, the oldest: a client
        that invents names must not cost memory without end."""
        if len(used) < MAX_TRACKED:
            return
        idle_ms = now_ms - window.total_ms
        for key in [key for key, rate in used.items() if rate.used_ms <= idle_ms]:
            del used[key]
        for key in list(used)[: max(len(used) - MAX_TRACKED // 2, 0)]:
            del used[key]


NO_QUOTAS = ClientQuotas()  # of a broker without any, such as in tests of single handlers
