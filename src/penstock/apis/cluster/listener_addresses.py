"""The addresses of brokers as a client sees them: those of the listener that it connected to.

Invariant: all clients of a listener get the same addresses, unless none is advertised for it. Then
each client gets the address that it connected to, which works behind any name or interface.
"""

from typing import TYPE_CHECKING

from penstock.apis.api import Request
from penstock.model.cluster import BrokerNode

if TYPE_CHECKING:
    from penstock.apis.services import Services

_MAPPED = "::ffff:"  # prefix of an IPv4 client on a dual-stack socket


def own_endpoint(request: Request, services: "Services") -> tuple[str, int]:
    """Host and port of this broker for the client."""
    configured = services.advertised.get(request.caller.listener)
    if configured is not None:
        return configured.host, configured.port
    host = request.in_flight.local_host.removeprefix(_MAPPED)
    return host, request.in_flight.local_port


def broker_address(
    node: BrokerNode, request: Request, services: "Services"
) -> tuple[str, int] | None:
    """Host and port of any broker; None if it does not have the client's listener."""
    if node.id == services.broker_id:
        return own_endpoint(request, services)
    endpoint = node.find_endpoint(request.caller.listener)
    return None if endpoint is None else (endpoint.host, endpoint.port)
