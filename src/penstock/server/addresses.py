"""The addresses that a broker listens on and those that it advertises.

A listener without an advertised address gives each client the address that the client connected to,
which is right on loopback, on every interface and through tunnels that keep the address.
"""

import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.config.effective_config import EffectiveConfig
from penstock.config.listeners import Listener, get_listeners, get_protocol_map
from penstock.model.cluster import Endpoint

_EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 (compared, not bound)


class Addresses(NamedTuple):
    """Endpoints of bound listeners, with their actual ports."""

    bound: tuple[Endpoint, ...]
    advertised: Mapping[str, Endpoint]  # by listener; only configured ones

    @property
    def registered(self) -> tuple[Endpoint, ...]:
        """The endpoints in the broker registration."""
        return tuple(
            self.advertised.get(endpoint.listener)
            or endpoint._replace(host=_reachable(endpoint.host))
            for endpoint in self.bound
        )

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(_join(_local(endpoint.host), endpoint.port) for endpoint in self.bound)

    def describe(self) -> str:
        return "\n".join(self._describe(endpoint) for endpoint in self.bound)

    def _describe(self, endpoint: Endpoint) -> str:
        bound = f"{endpoint.listener} listens on {_join(endpoint.host or '*', endpoint.port)}"
        advertised = self.advertised.get(endpoint.listener)
        if advertised is not None:
            address = _join(advertised.host, advertised.port)
            return f"{bound}; it advertises {address} (advertised.listeners)"
        return (
            f"{bound}; it advertises the address that each client connected to (behind a port "
            f"mapping: --set advertised.listeners={endpoint.listener}://HOST:PORT)"
        )


def listeners_of(config: EffectiveConfig) -> Sequence[Listener]:
    return get_listeners(config.get_list("listeners"))


def inter_broker_listener(config: EffectiveConfig) -> str:
    """The name of the inter-broker listener."""
    named = config["inter.broker.listener.name"] or config["security.inter.broker.protocol"]
    return str(named).upper()


def bound_addresses(config: EffectiveConfig, bound: Sequence[Listener]) -> Addresses:
    """`bound` has the real hosts and ports. An advertised port 0 means the bound one."""
    protocols = get_protocol_map(config.get_str("listener.security.protocol.map"))
    endpoints = tuple(
        Endpoint(listener.name, protocols[listener.name], listener.host, listener.port)
        for listener in bound
    )
    if config.get_effective("advertised.listeners").set_as != "advertised.listeners":
        return Addresses(bound=endpoints, advertised={})
    ports = {endpoint.listener: endpoint.port for endpoint in endpoints}
    advertised = {
        listener.name: Endpoint(
            listener.name,
            protocols[listener.name],
            _reachable(listener.host),
            listener.port or ports[listener.name],
        )
        for listener in get_listeners(config.get_list("advertised.listeners"))
    }
    return Addresses(bound=endpoints, advertised=advertised)


def _reachable(host: str) -> str:
    return socket.gethostname() if host in _EVERY_ADDRESS else host


def _local(host: str) -> str:
    """How this machine itself reaches a bound address."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
