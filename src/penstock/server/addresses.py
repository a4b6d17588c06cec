"""Where a broker listens and what it tells clients to connect to.

A listener without an advertised address answers each client the address that the client reached
it by: right on loopback, on every interface and through tunnels that keep the address.
"""

import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.config.effective_config import EffectiveConfig
from penstock.config.listeners import Listener, get_listeners, get_protocol_map
from penstock.model.cluster import Endpoint

_EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 (compared, not bound)


class Addresses(NamedTuple):
    """Of listeners that are bound: ports are real."""

    bound: tuple[Endpoint, ...]
    advertised: Mapping[str, Endpoint]  # those that were given; by listener

    @property
    def registered(self) -> tuple[Endpoint, ...]:
        """What the other brokers and the tree are told."""
        return tuple(
            self.advertised.get(each.listener) or each._replace(host=_reachable(each.host))
            for each in self.bound
        )

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(_join(_local(each.host), each.port) for each in self.bound)

    def describe(self) -> str:
        return "\n".join(self._describe(each) for each in self.bound)

    def _describe(self, each: Endpoint) -> str:
        where = f"{each.listener} listens on {_join(each.host or '*', each.port)}"
        advertised = self.advertised.get(each.listener)
        if advertised is not None:
            told = _join(advertised.host, advertised.port)
            return f"{where}; clients are told {told} (advertised.listeners)"
        return (
            f"{where}; clients are told the address they connected to (behind a port mapping: "
            f"--set advertised.listeners={each.listener}://HOST:PORT)"
        )


def listeners_of(settings: EffectiveConfig) -> Sequence[Listener]:
    return get_listeners(_as_list(settings["listeners"]))


def inter_broker_listener(settings: EffectiveConfig) -> str:
    """The name of the listener that brokers use among themselves."""
    named = settings["inter.broker.listener.name"] or settings["security.inter.broker.protocol"]
    return str(named).upper()


def bound_addresses(settings: EffectiveConfig, bound: Sequence[Listener]) -> Addresses:
    """`bound` has the real hosts and ports. An advertised port 0 means the bound one."""
    protocols = get_protocol_map(str(settings["listener.security.protocol.map"]))
    endpoints = tuple(
        Endpoint(each.name, protocols[each.name], each.host, each.port) for each in bound
    )
    if settings.get_effective("advertised.listeners").set_as != "advertised.listeners":
        return Addresses(bound=endpoints, advertised={})
    ports = {each.listener: each.port for each in endpoints}
    advertised = {
        each.name: Endpoint(
            each.name, protocols[each.name], _reachable(each.host), each.port or ports[each.name]
        )
        for each in get_listeners(_as_list(settings["advertised.listeners"]))
    }
    return Addresses(bound=endpoints, advertised=advertised)


def _as_list(value: object) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value


def _reachable(host: str) -> str:
    return socket.gethostname() if host in _EVERY_ADDRESS else host


def _local(host: str) -> str:
    """How this machine itself reaches a bound address."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
