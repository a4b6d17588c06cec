"""What a broker grants its connections: counts, bytes and times. Values only.

Kafka's settings with Kafka's defaults; the receive budget and the time limits of frames are ours.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.config.setting import INT_MAX

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimits:
    max_request_bytes: int = 100 * MIB
    max_idle_ms: int = 600_000  # below 0: for ever
    max_connections: int = INT_MAX
    max_connections_per_ip: int = INT_MAX
    connections_of_ip: Mapping[str, int] = field(default_factory=dict)  # instead, for these
    max_new_connections_per_second: int = INT_MAX
    send_buffer_bytes: int = 102_400  # of the socket; -1: the system's choice
    receive_buffer_bytes: int = 102_400
    listen_backlog: int = 50
    receive_budget_bytes: int = 256 * MIB  # for the unfinished requests of all connections
    first_frame_ms: int = 10_000  # from the connection's start to its first whole request
    started_frame_ms: int = 30_000  # from a request's first byte to its last
    half_closed_ms: int = 5_000  # a client that sends no more may wait this long for its replies
    accept_retry_ms: int = 250  # after the system refused a descriptor
    max_unanswered: int = 64  # requests of a connection that were let start before a reply
    max_unsent_replies: int = 64  # of a connection; beyond it no request of it is begun
    max_unsent_bytes: int = 256 * 1024  # in memory; slices of files do not count
    read_ahead_bytes: int = 64 * 1024  # received while requests may not begin
    requests_a_turn: int = 32  # of a connection, then the others have theirs
    send_turn_bytes: int = 256 * 1024

    @classmethod
    def from_broker(cls, resolved: Mapping[str, Any]) -> Self:
        """From a broker's resolved settings: setting name -> typed value, all present."""
        queued_bytes = int(resolved["queued.max.request.bytes"])
        return cls(
            max_request_bytes=resolved["socket.request.max.bytes"],
            max_idle_ms=resolved["connections.max.idle.ms"],
            max_connections=resolved["max.connections"],
            max_connections_per_ip=resolved["max.connections.per.ip"],
            connections_of_ip=_parse_overrides(resolved["max.connections.per.ip.overrides"]),
            max_new_connections_per_second=resolved["max.connection.creation.rate"],
            send_buffer_bytes=resolved["socket.send.buffer.bytes"],
            receive_buffer_bytes=resolved["socket.receive.buffer.bytes"],
            listen_backlog=resolved["socket.listen.backlog.size"],
            receive_budget_bytes=queued_bytes if queued_bytes > 0 else 256 * MIB,
        )


def _parse_overrides(text: str) -> dict[str, int]:
    """Addresses of `host:count` pairs; a name stands for every address it has now."""
    limits: dict[str, int] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        host, _, count = pair.rpartition(":")
        for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            limits[str(found[4][0])] = int(count)
    return limits
