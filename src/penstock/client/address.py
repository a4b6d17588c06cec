"""Parses broker addresses: `host:port`, IPv6 hosts in [brackets], several separated by commas."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from penstock.client.errors import InvalidAddress

_ADDRESS = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})"
)


class Address(NamedTuple):
    host: str  # without brackets
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or not 0 < int(match["port"]) <= 65535:
        raise InvalidAddress(
            f"{text[:80]!r} is not an address: write HOST:PORT, "
            "for example 127.0.0.1:9092 or [::1]:9092"
        )
    return Address(match["ipv6"] or match["host"], int(match["port"]))


def parse_bootstrap(bootstrap: str | Iterable[str]) -> tuple[Address, ...]:
    """The addresses in the order in which they are tried, without duplicates."""
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = dict.fromkeys(parse_address(text) for text in texts if text.strip())
    if not addresses:
        raise InvalidAddress("no bootstrap address was given: write HOST:PORT[,HOST:PORT...]")
    return tuple(addresses)
