"""One request of a client while quotas are set: what it has used, and how long the client waits.

Not the quotas themselves. The response has the throttle time and leaves at once; then its
connection is muted for as long (KIP-219). Requests of other brokers are exempt once their access is
checked, never because of what they say of themselves.
"""

import struct
from collections.abc import Mapping
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING

from penstock.apis.request_counters import ApiRequestCounters
from penstock.controller.interface import ApiError
from penstock.model.errors import ErrorCode
from penstock.model.quotas import MAX_CLIENT_ID
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.headers import encode_response_header
from penstock.protocol.private_keys import FIRST_FLEXIBLE_OF_ALL, PrivateKey
from penstock.protocol.schemas import describe_fields, get_response_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.apis.api import Request
    from penstock.network.in_flight_request import InFlightRequest, Part, RequestObserver
    from penstock.security.quotas.client_quotas import ClientQuotas

_FIELD = "throttle_time"
_FIELD_BYTES = 4
_SIZE_BYTES = 4  # of a frame's size, in front of the header
_INT32_MAX = 2**31 - 1
_THROTTLE = struct.Struct(">i")


class RequestThrottle:
    """Implements RequestObserver, in front of the API's counters."""

    __slots__ = (
        "_client_id",
        "_in_flight",
        "_is_written",
        "_key",
        "_now_ms",
        "_quotas",
        "_request_bytes",
        "_throttle_ms",
        "_user",
        "_version",
        "inner",
        "is_exempt",
    )

    def __init__(
        self,
        request: "Request",
        counters: ApiRequestCounters,
        quotas: "ClientQuotas",
        now_ms: "Callable[[], int]",
    ) -> None:
        self._in_flight = request.in_flight
        self._key: ApiKey | PrivateKey = request.key
        self._version = request.version
        self._user = request.caller.principal.name
        self._client_id = (request.client_id or "")[:MAX_CLIENT_ID]
        self.inner: RequestObserver = counters
        self._quotas = quotas
        self._now_ms = now_ms
        self._request_bytes = len(request.in_flight.frame)
        self._throttle_ms = 0
        self._is_written = False  # the response has the throttle time already
        self.is_exempt = False  # a broker of the cluster has sent it

    # -- what handlers use -------------------------------------------------------------------

    def use_producer_bytes(self) -> None:
        """Counts the whole request, as Kafka does."""
        if not self.is_exempt:
            self._note(
                self._quotas.use_producer_bytes(
                    self._user, self._client_id, self._request_bytes, self._now_ms()
                )
            )

    def try_use_consumer_bytes(self, count: int) -> bool:
        """False: the bytes must not be sent now."""
        if self.is_exempt:
            return True
        throttle_ms = self._quotas.use_consumer_bytes(
            self._user, self._client_id, count, self._now_ms()
        )
        self._note(throttle_ms)
        return not throttle_ms

    def find_fetch_limit(self) -> int | None:
        if self.is_exempt:
            return None
        return self._quotas.find_fetch_limit(self._user, self._client_id)

    def try_use_mutations(self, count: int, *, must_succeed: bool) -> bool:
        if self.is_exempt:
            return True
        may_mutate, throttle_ms = self._quotas.try_use_mutations(
            self._user, self._client_id, count, self._now_ms(), must_succeed=must_succeed
        )
        self._note(throttle_ms)
        return may_mutate

    def write_throttle_ms(self) -> int:
        """For a response that the handler encodes with its throttle time."""
        self._is_written = True
        self._use_request_time()
        return min(self._throttle_ms, _INT32_MAX)

    def count_as_follower(self) -> None:
        counters = self.inner
        if isinstance(counters, ApiRequestCounters):
            self.inner = counters.of_followers(self._version)

    # -- the observer ------------------------------------------------------------------------

    def on_answered(self, request: "InFlightRequest") -> None:
        if not self._is_written:
            self._use_request_time()
        if self._throttle_ms:
            if not self._is_written:
                request.parts = _with_throttle(
                    request.parts, self._key, self._version, self._throttle_ms
                )
            request.mute(self._throttle_ms)
        self.inner.on_answered(request)

    def on_sent(self, elapsed_s: float) -> None:
        self.inner.on_sent(elapsed_s)

    def count_error(self, code: int, request: "InFlightRequest") -> None:
        self.inner.count_error(code, request)

    def _use_request_time(self) -> None:
        """The time of a handler until it waits for something: only then others are served."""
        if self.is_exempt:
            return
        in_flight = self._in_flight
        used_s = in_flight.local_s or perf_counter() - in_flight.started_s
        self._note(
            self._quotas.use_request_time(self._user, self._client_id, used_s, self._now_ms())
        )

    def _note(self, throttle_ms: int) -> None:
        """A client waits for the longest of its throttles."""
        self._throttle_ms = max(self._throttle_ms, throttle_ms)


def find_throttle(request: "Request") -> RequestThrottle | None:
    """None: no quota was set when the request came."""
    observer = request.in_flight.observer
    return observer if isinstance(observer, RequestThrottle) else None


def exempt(request: "Request") -> None:
    """The sender is a broker of the cluster: its access was checked."""
    throttle = find_throttle(request)
    if throttle is not None:
        throttle.is_exempt = True


def refuse_mutations(
    request: "Request", partitions: Mapping[str, int], *, first_refusing: int
) -> dict[str, ApiError]:
    """The topics whose partitions are too many for now, by the number of their partitions. Before
    the version `first_refusing` clients do not know the error: they only have to wait."""
    throttle = find_throttle(request)
    if throttle is None:
        return {}
    must_succeed = request.version < first_refusing
    return {
        topic: ApiError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            "the quota controller_mutation_rate is exceeded; try again after the throttle time",
        )
        for topic, count in partitions.items()
        if not throttle.try_use_mutations(count, must_succeed=must_succeed)
    }


def _with_throttle(
    parts: "Sequence[Part]", key: ApiKey | PrivateKey, version: int, throttle_ms: int
) -> "Sequence[Part]":
    """The frame with the throttle time in its place, if this response has one in front."""
    position = _find_position(key, version) if isinstance(key, ApiKey) else None
    if position is None or not parts or not isinstance(parts[0], bytes | bytearray):
        return parts
    head, end = parts[0], position + _FIELD_BYTES
    if len(head) < end:
        return parts
    field = _THROTTLE.pack(min(throttle_ms, _INT32_MAX))
    return [b"".join((head[:position], field, head[end:])), *parts[1:]]


@cache
def _find_position(key: ApiKey, version: int) -> int | None:
    """In the frame. None: the response has no throttle time, or has it behind its arrays."""
    fields = describe_fields(get_response_schema(key, version))
    if not fields or fields[0].name != _FIELD:
        return None
    return _SIZE_BYTES + len(encode_response_header(key, version, 0, FIRST_FLEXIBLE_OF_ALL))
