"""Dispatches a frame to its handler: header, registry, version, decode, call, encode.

Decides nothing about an API. Invariant: every request is answered once or closes its connection; a
bad request affects no other connection.
"""

from collections.abc import Awaitable, Coroutine, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from penstock.apis.api import Api, Request
from penstock.apis.refused_versions import RefusedVersions
from penstock.model.stop_requests import BrokerEnding
from penstock.protocol.api_keys import ApiKey, describe_api, find_api_key
from penstock.protocol.entry_counts import Excess, find_excess
from penstock.protocol.headers import RequestHeader, read_request_header
from penstock.protocol.messages import decode_request, get_request_schema
from penstock.protocol.private_keys import FIRST_FLEXIBLE_OF_ALL, find_private_key

if TYPE_CHECKING:
    from penstock.apis.services import Services
    from penstock.network.in_flight_request import InFlightRequest


class Dispatcher:
    """Owned by the event loop's thread, like everything that it calls."""

    def __init__(
        self, apis: Mapping[ApiKey, Api], services: "Services", *, serves_clients: bool = True
    ) -> None:
        self._apis = apis
        self._serves_clients = serves_clients  # else only brokers' private requests
        self._loaded: dict[int, Api] = {}  # the requested ones of `apis`, by key
        self._services = services
        self._refused = RefusedVersions()

    def open(self) -> None:
        """Serve clients from here on: this broker has the cluster's metadata."""
        self._serves_clients = True

    def on_request(self, in_flight: "InFlightRequest") -> None:
        """Raises MalformedMessage for invalid bytes: the caller closes the connection."""
        header = read_request_header(in_flight.frame, FIRST_FLEXIBLE_OF_ALL)
        api = self._loaded.get(header.api_key) or self._find(header.api_key, in_flight)
        if api is None:
            self._refuse(header, in_flight)
            return
        if header.api_version not in api.versions:
            self._refuse_version(api, header, in_flight)
            return
        if len(in_flight.frame) > api.max_frame_bytes:
            in_flight.close(
                f"a {api.key.title} request of {len(in_flight.frame)} bytes is above the limit of "
                f"{api.max_frame_bytes}; request less at a time"
            )
            return
        if api.direct is not None:
            api.direct(_request(api, header, in_flight, header.body), self._services)
        else:
            self._answer(api, header, in_flight)

    def _find(self, api_key: int, in_flight: "InFlightRequest") -> Api | None:
        key = find_api_key(api_key)
        if key is None:
            return self._find_private(api_key, in_flight)
        if key not in self._apis or not (self._serves_clients or key is ApiKey.API_VERSIONS):
            return None
        return self._loaded.setdefault(api_key, self._apis[key])

    def _find_private(self, api_key: int, in_flight: "InFlightRequest") -> Api | None:
        """Private APIs are found only on the inter-broker listener."""
        key = find_private_key(api_key)
        brokers = self._services.inter_broker
        if key is None or brokers is None or in_flight.caller.listener != brokers.listener:
            return None
        return brokers.load_api(key)

    def _refuse(self, header: RequestHeader, in_flight: "InFlightRequest") -> None:
        name = describe_api(header.api_key, header.api_version)
        if self._serves_clients:
            reason = f"{name} is not served here; ApiVersions lists what is"
            in_flight.close(reason, is_logged=self._is_first(header, in_flight))
        else:
            in_flight.close(f"{name} is not served yet: this broker has no metadata of its cluster")

    def _answer(self, api: Api, header: RequestHeader, in_flight: "InFlightRequest") -> None:
        assert api.answer is not None, f"{api.key.title} has no handler"
        excess = self._find_excess(api, header)
        if excess is not None:
            assert api.bounds is not None
            refused = api.bounds.refuse(header.api_version, excess)
            _request(api, header, in_flight, None).reply(refused)
            return
        if api.read is not None:
            message = api.read(header.body, header.api_version)
        else:
            message = decode_request(header.api_key, header.api_version, header.body)
        request = _request(api, header, in_flight, message)
        answer = api.answer(request, self._services)
        if isawaitable(answer):
            self._run(request, answer)
        else:
            request.reply(answer)

    def _run(self, request: Request, answer: Awaitable[Any]) -> None:
        try:
            self._services.run(self._finish(request, answer))
        except BrokerEnding as ending:
            if isinstance(answer, Coroutine):
                answer.close()
            request.in_flight.close(str(ending))

    def _find_excess(self, api: Api, header: RequestHeader) -> Excess | None:
        if api.bounds is None:
            return None
        schema = get_request_schema(header.api_key, header.api_version)
        return find_excess(schema, header.body, api.bounds.limits(self._services.config()))

    async def _finish(self, request: Request, answer: Awaitable[Any]) -> None:
        """An unexpected error closes this connection, as it does without an await."""
        try:
            request.reply(await answer)
        except Exception:
            request.in_flight.fail(describe_api(request.key, request.version))

    def _refuse_version(
        self, api: Api, header: RequestHeader, in_flight: "InFlightRequest"
    ) -> None:
        if api.unsupported is not None:
            api.unsupported(_request(api, header, in_flight, header.body), self._services)
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


def _request(
    api: Api, header: RequestHeader, in_flight: "InFlightRequest", message: Any
) -> Request:
    return Request(
        key=api.key,
        version=header.api_version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        in_flight=in_flight,
        message=message,
    )
