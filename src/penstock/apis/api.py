"""One API of the broker: its key, the versions that are implemented, and its handler.

The list of them is `registry`. A handler calls the authorizer before it acts or reveals anything,
and responds to every request exactly once.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.apis.request_counters import ApiRequestCounters
from penstock.apis.throttling import RequestThrottle
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.entry_counts import Excess
from penstock.protocol.frames import encode_response_parts, frame_parts, join_bytes
from penstock.protocol.headers import encode_response_header
from penstock.protocol.private_keys import FIRST_FLEXIBLE_OF_ALL, PrivateKey
from penstock.protocol.request_budget import (
    SMALL_FRAME_BUDGET,
    SMALL_FRAME_BYTES,
    RequestBudget,
)
from penstock.protocol.response_errors import find_errors
from penstock.security.principal import Caller

if TYPE_CHECKING:
    from penstock.apis.config import ApiConfig
    from penstock.apis.services import Services
    from penstock.network.in_flight_request import InFlightRequest


Key = ApiKey | PrivateKey


class Request:
    """One request as its handler sees it."""

    __slots__ = (
        "budget",
        "caller",
        "client_id",
        "correlation_id",
        "in_flight",
        "key",
        "message",
        "version",
    )

    def __init__(
        self,
        key: Any,  # ApiKey, or PrivateKey in handlers of private requests
        version: int,
        correlation_id: int,
        client_id: str | None,
        in_flight: "InFlightRequest",
        message: Any,
        budget: RequestBudget = SMALL_FRAME_BUDGET,
    ) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.in_flight = in_flight
        self.caller: Caller = in_flight.caller
        # kio's dataclass of this key and version; for a direct API the body as it came, a view of
        # the receive buffer that is valid (and writable) until the handler returns.
        self.message = message
        self.budget = budget  # for decoding it

    def reply(self, message: Any) -> None:
        """Send kio's response dataclass of this key and version, or a body in bytes or parts."""
        if type(message) is bytes:
            self.in_flight.reply(self.frame_body([message]))
        elif type(message) is list:
            self.in_flight.reply(self.frame_body(message))
        else:
            for code in find_errors(message):
                self.count_error(code)
            self.in_flight.reply(encode_response_parts(message, correlation_id=self.correlation_id))

    def count_as_follower(self) -> None:
        """Another broker fetches as a follower: its times are not those of clients."""
        observer = self.in_flight.observer
        if isinstance(observer, ApiRequestCounters):
            self.in_flight.observer = observer.of_followers(self.version)
        elif isinstance(observer, RequestThrottle):
            observer.count_as_follower()

    def count_error(self, code: int) -> None:
        """Count an error in the response, or of one of its partitions."""
        in_flight = self.in_flight
        if in_flight.observer is not None:
            in_flight.observer.count_error(code, in_flight)

    def frame_body(self, parts: list[Any]) -> list[Any]:
        """The parts of a response's body as a whole frame."""
        header = encode_response_header(
            self.key, self.version, self.correlation_id, FIRST_FLEXIBLE_OF_ALL
        )
        return join_bytes(frame_parts([header, *parts]))


# Takes kio's request; returns kio's response of the same version, or its bytes or parts, or an
# awaitable of one of them.
Answer = Callable[[Request, "Services"], Any | Awaitable[Any]]
# Takes the raw body and responds through `request.in_flight` itself, now or later: the hot path.
Direct = Callable[[Request, "Services"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryBounds:
    """Limits of a request's arrays, checked before it is decoded."""

    limits: Callable[["ApiConfig"], Mapping[str, int]]  # by field
    refuse: Callable[[int, Excess], Any]  # the response of a version to a request above them


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Exactly one of `answer` and `direct`."""

    key: Key
    versions: range
    answer: Answer | None = None
    direct: Direct | None = None
    # Reads the body for `answer`, where that is not left to kio's classes.
    read: Callable[[memoryview, int, RequestBudget], Any] | None = None
    bounds: EntryBounds | None = None
    # Answers versions that are not served; without it such a request closes its connection, as in
    # Kafka.
    unsupported: Direct | None = None
    # Limits of one request (docs/limits.md). Where an API needs more than the broker's settings:
    max_frame_bytes: int = 0  # than penstock.request.max.bytes
    max_elements: int = 0  # than penstock.request.max.elements
    # Where it needs less, and an element takes longer than others. Frames too small to be counted
    # may have a little more.
    elements_share: float = 1.0  # of penstock.request.max.elements
    uncounted_bytes: int = SMALL_FRAME_BYTES  # no smaller frame reaches the default limits

    def frame_limit_bytes(self, config: "ApiConfig") -> int:
        return max(self.max_frame_bytes, config.max_request_bytes)

    def new_budget(self, config: "ApiConfig") -> RequestBudget:
        """For decoding one request."""
        share = int(config.max_request_elements * self.elements_share)
        return RequestBudget(max(self.max_elements, share))
