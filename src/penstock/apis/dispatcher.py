"""Dispatches a frame to its handler: header, registry, version, decode, call, encode.

Decides nothing about an API. Invariant: every request is answered once or closes its connection; a
bad request affects no other connection.
"""

from collections.abc import Awaitable, Coroutine, Mapping
from inspect import isawaitable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from penstock.apis.api import Api, Request
from penstock.apis.audited_changes import AuditedRequest, find_audited
from penstock.apis.inter_broker_access import is_authorized_broker
from penstock.apis.refused_versions import RefusedVersions
from penstock.apis.request_counters import (
    ApiRequestCounters,
    ApiRequestStatistics,
    RequestCounters,
)
from penstock.apis.slow_requests import SlowRequests
from penstock.apis.throttling import RequestThrottle, find_throttle
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.model.stop_requests import BrokerEnding
from penstock.protocol.api_keys import ApiKey, describe_api, find_api_key
from penstock.protocol.entry_counts import Excess, find_excess
from penstock.protocol.headers import RequestHeader, read_request_header
from penstock.protocol.malformed import (
    MalformedMessage,
    MalformedRequest,
    RequestOverLimit,
    UnknownApiKey,
)
from penstock.protocol.messages import decode_request, get_request_schema
from penstock.protocol.private_keys import (
    CLIENT_KEYS,
    FIRST_FLEXIBLE_OF_ALL,
    find_private_key,
)
from penstock.protocol.request_budget import SMALL_FRAME_BUDGET
from penstock.security.principal import Caller

if TYPE_CHECKING:
    from penstock.apis.services import Services
    from penstock.model.slices import Releasable
    from penstock.network.in_flight_request import InFlightRequest

_ELEMENT_BYTES: Final = 128  # of memory for an element of a decoded request, besides its text
_ANY_VERSION: Final = -1
# Served while this broker has no metadata: other brokers log in at once.
_ALWAYS_SERVED: Final = frozenset(
    (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
)
_FREE_BYTES: Final = 4096  # a smaller request is not counted while it is in flight


class Dispatcher:
    """Owned by the event loop's thread, like everything that it calls."""

    def __init__(
        self, apis: Mapping[ApiKey, Api], services: "Services", *, serves_clients: bool = True
    ) -> None:
        self._apis = apis
        self._serves_clients = serves_clients  # else only brokers' private requests
        # The requested ones of `apis`, by key, with their counters.
        self._loaded: dict[int, tuple[Api, ApiRequestCounters]] = {}
        self._services = services
        self._quotas = services.quotas
        self._refused = RefusedVersions()
        self._counters = RequestCounters(_slow_requests(services))

    def open(self) -> None:
        """Serve clients from here on: this broker has the cluster's metadata."""
        self._serves_clients = True

    def check_frame(self, caller: Caller, api_key: int, frame_bytes: int) -> None:
        """Raises RequestOverLimit for a frame that its API does not allow, from the frame's first
        bytes: the rest is never received."""
        api = self._find(api_key, caller)
        config = self._services.config()
        if api is None and frame_bytes > config.max_frame_bytes:
            return  # hardly Kafka's protocol: the connection refuses it as malformed
        limit_bytes = config.max_request_bytes if api is None else api.frame_limit_bytes(config)
        setting, doubt = "penstock.request.max.bytes", ""
        if limit_bytes >= config.max_frame_bytes:
            limit_bytes, setting = config.max_frame_bytes, "socket.request.max.bytes"
            doubt = ", unless this client does not speak Kafka's protocol"
        if frame_bytes > limit_bytes:
            name = f"API {api_key}" if api is None else api.key.title
            raise RequestOverLimit(
                f"a {name} request of {frame_bytes} bytes is above the limit of {limit_bytes} "
                f"({setting}); send less at a time{doubt}. It is logged once for this address",
                api=name,
                is_logged=self._refused.is_first((caller.host, None, api_key, _ANY_VERSION)),
            )

    def on_request(self, in_flight: "InFlightRequest") -> None:
        """Raises MalformedMessage for invalid bytes, RequestOverLimit for too many elements: the
        caller closes the connection."""
        in_flight.started_s = started_s = perf_counter()
        frame = in_flight.frame
        try:
            header = read_request_header(frame, FIRST_FLEXIBLE_OF_ALL)
        except UnknownApiKey as error:
            refused = in_flight.caller.host, None, error.api_key, _ANY_VERSION
            error.is_logged = self._refused.is_first(refused)
            raise
        api_key, version, correlation_id, client_id, body = header
        loaded = self._loaded.get(api_key) or self._load(api_key, in_flight.caller)
        if loaded is None:
            self._refuse(header, in_flight)
            return
        api, counters = loaded
        if version not in api.versions:
            self._refuse_version(api, header, in_flight)
            return
        counters.started[version] += 1
        in_flight.observer = counters
        if len(frame) <= api.uncounted_bytes:
            budget = SMALL_FRAME_BUDGET
        else:
            budget = api.new_budget(self._services.config())
        request = Request(api.key, version, correlation_id, client_id, in_flight, body, budget)
        if self._quotas.is_active:
            self._throttle(request, counters)
        try:
            if api.direct is not None:
                api.direct(request, self._services)
            else:
                self._answer(api, request)
        except RequestOverLimit as excess:
            raise self._describe(excess, header, in_flight) from None
        if not in_flight.is_answered:
            in_flight.local_s = perf_counter() - started_s

    def statistics(self) -> tuple[ApiRequestStatistics, ...]:
        return self._counters.statistics()

    def _load(self, api_key: int, caller: Caller) -> tuple[Api, ApiRequestCounters] | None:
        api = self._find(api_key, caller)
        if api is None:
            return None
        loaded = api, self._counters.of(api)
        if type(api.key) is ApiKey:  # a private one depends on the caller
            self._loaded[api_key] = loaded
        return loaded

    def _find(self, api_key: int, caller: Caller) -> Api | None:
        key = find_api_key(api_key)
        if key is None:
            return self._find_private(api_key, caller)
        if key not in self._apis or not (self._serves_clients or key in _ALWAYS_SERVED):
            return None
        return self._apis[key]

    def _find_private(self, api_key: int, caller: Caller) -> Api | None:
        """Those between brokers are found only on the inter-broker listener."""
        key = find_private_key(api_key)
        if key in CLIENT_KEYS:
            load = self._services.client_apis.get(key) if self._serves_clients else None
            return None if load is None else load()
        brokers = self._services.inter_broker
        if key is None or brokers is None or caller.listener != brokers.listener:
            return None
        return brokers.load_api(key)

    def _refuse(self, header: RequestHeader, in_flight: "InFlightRequest") -> None:
        name = describe_api(header.api_key, header.api_version)
        if self._serves_clients:
            reason = f"{name} is not served here; ApiVersions lists what is"
            in_flight.close(reason, is_logged=self._is_first(header, in_flight))
        else:
            in_flight.close(f"{name} is not served yet: this broker has no metadata of its cluster")

    def _answer(self, api: Api, request: Request) -> None:
        assert api.answer is not None, f"{api.key.title} has no handler"
        body = request.message
        excess = self._find_excess(api, request)
        if excess is not None:
            assert api.bounds is not None
            request.reply(api.bounds.refuse(request.version, excess))
            return
        elements = request.budget.elements
        if api.read is not None:
            request.message = _read(api, request, body)
        else:
            request.message = decode_request(api.key, request.version, body, request.budget)
        if self._services.audit.audits_changes:
            self._audit(request)
        answer = api.answer(request, self._services)
        if isawaitable(answer):
            elements -= request.budget.elements
            self._run(request, answer, len(body) + elements * _ELEMENT_BYTES)
        else:
            request.reply(answer)

    def _throttle(self, request: Request, counters: ApiRequestCounters) -> None:
        login = request.in_flight.login
        if login is not None and login.principal is None:
            return  # strangers would use up a quota that all who log in share until then
        services = self._services
        throttle = RequestThrottle(request, counters, self._quotas, services.timers.now_ms)
        throttle.is_exempt = is_authorized_broker(request.caller, services)
        request.in_flight.observer = throttle

    def _audit(self, request: Request) -> None:
        change = find_audited(request.key)
        if change is None:
            return
        trail, throttle = self._services.audit, find_throttle(request)
        if throttle is not None:
            throttle.inner = AuditedRequest(request, change, throttle.inner, trail)
            return
        observer = request.in_flight.observer
        assert observer is not None, "`on_request` sets it"
        request.in_flight.observer = AuditedRequest(request, change, observer, trail)

    def _run(self, request: Request, answer: Awaitable[Any], decoded_bytes: int) -> None:
        """What is decoded counts as memory of requests until it is answered, even if the connection
        closes before."""
        held: Releasable | None = None
        if decoded_bytes > _FREE_BYTES:
            held = request.in_flight.try_keep(decoded_bytes)
            if held is None:
                _close_coroutine(answer)
                raise RequestOverLimit("other requests in flight use all memory for them")
        try:
            self._services.run(self._finish(request, answer, held))
        except BrokerEnding as ending:
            if held is not None:
                held.release()
            _close_coroutine(answer)
            request.in_flight.close(str(ending))

    def _find_excess(self, api: Api, request: Request) -> Excess | None:
        if api.bounds is None:
            return None
        schema = get_request_schema(request.key, request.version)
        return find_excess(schema, request.message, api.bounds.limits(self._services.config()))

    async def _finish(
        self, request: Request, answer: Awaitable[Any], held: "Releasable | None"
    ) -> None:
        """An unexpected error closes this connection, as it does without an await."""
        try:
            request.reply(await answer)
        except Exception:
            request.in_flight.fail(describe_api(request.key, request.version))
        finally:
            if held is not None:
                held.release()

    def _describe(
        self, excess: RequestOverLimit, header: RequestHeader, in_flight: "InFlightRequest"
    ) -> RequestOverLimit:
        """The error with its client and API, for the log."""
        name = describe_api(header.api_key, header.api_version)
        return RequestOverLimit(
            f"{name} of client {header.client_id}: {excess}; send less at a time. It is logged "
            "once for this client",
            api=name,
            client_id=header.client_id,
            is_logged=self._is_first(header, in_flight),
        )

    def _refuse_version(
        self, api: Api, header: RequestHeader, in_flight: "InFlightRequest"
    ) -> None:
        if api.unsupported is not None:
            _, version, correlation_id, client_id, body = header
            request = Request(api.key, version, correlation_id, client_id, in_flight, body)
            api.unsupported(request, self._services)
            return
        name = describe_api(header.api_key, header.api_version)
        in_flight.close(
            f"{name} is not served here, only versions {api.versions[0]} to {api.versions[-1]}; "
            "ApiVersions lists them. It is logged once for this client",
            is_logged=self._is_first(header, in_flight),
        )

    def _is_first(self, header: RequestHeader, in_flight: "InFlightRequest") -> bool:
        """Some clients ask again with every connection, for hours."""
        client = in_flight.caller.host, header.client_id
        return self._refused.is_first((*client, header.api_key, header.api_version))


def _read(api: Api, request: Request, body: memoryview) -> Any:
    """By the API's own function; a malformed body is named by its API, for the log."""
    assert api.read is not None
    try:
        return api.read(body, request.version, request.budget)
    except MalformedRequest:
        raise
    except MalformedMessage as error:
        title = f"{request.key.title} v{request.version}"
        raise MalformedRequest(f"{title}: {error}") from None


def _slow_requests(services: "Services") -> SlowRequests:
    timers = services.timers
    logger = RateLimitedLogger(
        services.logger,
        now_ms=timers.now_ms,
        add_timer=lambda delay_ms, call: timers.add(timers.now_ms() + delay_ms, call),
    )
    return SlowRequests(logger, services.config().slow_request_ms / 1000)


def _close_coroutine(answer: Awaitable[Any]) -> None:
    """Of an answer that nobody will await."""
    if isinstance(answer, Coroutine):
        answer.close()
