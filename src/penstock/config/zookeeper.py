"""Parses zookeeper.connect and the session settings.

Nothing is resolved or connected here. A connect string is `host:port,host:port/path`: the path, if
there is one, is the znode below which everything of this cluster lies.
"""

import re
from typing import NamedTuple, Self

from penstock.config.check import ValueCheck
from penstock.config.zookeeper_security import OPEN, ZooKeeperSecurity

DEFAULT_PORT = 2181
DEFAULT_SESSION_TIMEOUT_MS = 18_000
_SERVER = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?"
)
# Path elements are not empty, . or .., as in every znode path.
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+)+")


class ZooKeeperAddress(NamedTuple):
    host: str  # without brackets
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ZooKeeperConfig(NamedTuple):
    servers: tuple[ZooKeeperAddress, ...]  # at least one
    chroot: str = ""  # begins with a slash and ends without; empty: the root
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS  # as requested; the servers bound it
    connection_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS  # for the first connection
    security: ZooKeeperSecurity = OPEN

    @classmethod
    def parse(
        cls,
        connect: str,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        connection_timeout_ms: int | None = None,
        security: ZooKeeperSecurity = OPEN,
    ) -> Self:
        """Raises ValueError for an invalid connect string. The connection timeout defaults to the
        session timeout."""
        parts = _find_parts(connect)
        if parts is None:
            raise ValueError(f"{connect!r} does not name ZooKeeper; {CONNECT_STRING.allowed}")
        servers, chroot = parts
        return cls(
            servers=servers,
            chroot=chroot,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms or session_timeout_ms,
            security=security,
        )


def _find_parts(connect: str) -> tuple[tuple[ZooKeeperAddress, ...], str] | None:
    hosts, slash, path = connect.strip().partition("/")
    chroot = slash + path.rstrip("/") if path else ""
    servers = tuple(_find_server(text.strip()) for text in hosts.split(","))
    whole = tuple(server for server in servers if server is not None)
    if len(whole) < len(servers) or (chroot and not _PATH.fullmatch(chroot)):
        return None
    return whole, chroot


def _find_server(text: str) -> ZooKeeperAddress | None:
    match = _SERVER.fullmatch(text)
    port = DEFAULT_PORT if match is None or match["port"] is None else int(match["port"])
    if match is None or not 0 < port <= 65535:
        return None
    return ZooKeeperAddress(match["ipv6"] or match["host"], port)


CONNECT_STRING = ValueCheck(
    allowed="host:port,host:port/path with a port from 1 to 65535, an IPv6 host in [brackets], and "
    "a path, where there is one, of letters, digits, dots, dashes and underscores",
    accepts=lambda text: not text or _find_parts(text) is not None,
)
