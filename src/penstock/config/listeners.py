"""Parses listener values: `NAME://host:port` lists and `NAME:PROTOCOL` maps.

Nothing is resolved or bound here. An empty host means every address of the machine.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from penstock.config.check import ValueCheck

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})"
)
_HOST_PORT = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})"
)
_HTTP_URL = re.compile(r"https?://[^\s/]+(/\S*)?")
_HOST_LIMIT = re.compile(r"[^:,\s]+:[0-9]+")


class Listener(NamedTuple):
    name: str  # upper case, as Kafka compares them
    host: str  # without brackets; empty: all addresses
    port: int

    def __str__(self) -> str:
        """As in the setting `listeners`."""
        return f"{self.name}://{HostPort(self.host, self.port)}"


class HostPort(NamedTuple):
    host: str  # without brackets; never empty
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def find_host_port(text: str) -> HostPort | None:
    """The address in `text`, or None if it is not one. A host must be named: an address that
    nobody asked for is not listened on."""
    match = _HOST_PORT.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        return None
    return HostPort(match["ipv6"] or match["host"], int(match["port"]))


def find_listener(text: str) -> Listener | None:
    """The listener in `text`, or None if it is not one."""
    match = _LISTENER.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        return None
    return Listener(match["name"].upper(), match["ipv6"] or match["host"] or "", int(match["port"]))


def get_listeners(values: Iterable[str]) -> tuple[Listener, ...]:
    """Listeners of a value that has passed LISTENERS; ValueError otherwise."""
    return tuple(_get_listener(text) for text in values)


def get_protocol_map(text: str) -> dict[str, str]:
    """Listener name to security protocol, from a value that has passed PROTOCOL_MAP."""
    pairs = (part.strip().split(":") for part in text.split(","))
    return {name.strip().upper(): protocol.strip().upper() for name, protocol in pairs}


def _get_listener(text: str) -> Listener:
    listener = find_listener(text)
    if listener is None:
        raise ValueError(f"{text!r} is not a listener; {LISTENERS.allowed}")
    return listener


def _are_listeners(values: tuple[str, ...]) -> bool:
    listeners = [find_listener(text) for text in values]
    names = {listener.name for listener in listeners if listener is not None}
    return bool(listeners) and None not in listeners and len(names) == len(listeners)


def _is_protocol_map(text: str) -> bool:
    pairs = [[side.strip() for side in part.split(":")] for part in text.split(",")]
    return all(
        len(pair) == 2 and pair[0] and pair[1].upper() in SECURITY_PROTOCOLS for pair in pairs
    )


def _are_host_limits(text: str) -> bool:
    return not text or all(_HOST_LIMIT.fullmatch(part.strip()) for part in text.split(","))


LISTENERS = ValueCheck(
    allowed="each NAME://host:port with its own name, a port from 0 to 65535, "
    "and an IPv6 host in [brackets]",
    accepts=_are_listeners,
)
HOST_PORT = ValueCheck(
    allowed="HOST:PORT with a port from 0 to 65535 and an IPv6 host in [brackets], or empty",
    accepts=lambda text: not text or find_host_port(text) is not None,
)
HTTP_URL = ValueCheck(
    allowed="a URL of http or https with a host, or empty",
    accepts=lambda text: not text or _HTTP_URL.fullmatch(text) is not None,
)
PROTOCOL_MAP = ValueCheck(
    allowed=f"NAME:PROTOCOL pairs with a protocol of {', '.join(SECURITY_PROTOCOLS)}",
    accepts=_is_protocol_map,
)
HOST_LIMITS = ValueCheck(allowed="host:count pairs, or empty", accepts=_are_host_limits)
