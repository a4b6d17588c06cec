"""Under which address a client is told to reach a broker: that of the listener it came through.

Invariant: two clients of one listener are told the same, unless nothing was configured for it.
Then each is told the address that worked for it, which is right behind any name or interface.
"""

from typing import TYPE_CHECKING

from penstock.apis.api import Request
from penstock.model.cluster import BrokerNode

if TYPE_CHECKING:
    from penstock.apis.services import Services

_MAPPED = "::ffff:"  # an IPv4 client of a socket for both kinds shows up behind this


def own_endpoint(request: Request, services: "Services") -> tuple[str, int]:
    """Host and port of this broker for the client that asks."""
    configured = services.advertised.get(request.caller.listener)
    if configured is not None:
        return configured.host, configured.port
    host = request.in_flight.local_host.removeprefix(_MAPPED)
    return host, request.in_flight.local_port


def broker_address(
    node: BrokerNode, request: Request, services: "Services"
) -> tuple[str, int] | None:
    """Host and port of any broker, or None where it has no listener of the client's name."""
    if node.id == services.broker_id:
        return own_endpoint(request, services)
    endpoint = node.find_endpoint(request.caller.listener)
    return None if endpoint is None else (endpoint.host, endpoint.port)
