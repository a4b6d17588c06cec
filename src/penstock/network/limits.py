"""The limits of connections: counts, bytes and times. Values only.

Kafka's settings with Kafka's defaults; the receive budget and the time limits of frames are ours.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from penstock.config.effective_config import EffectiveConfig
from penstock.config.setting import INT_MAX

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimits:
    max_request_bytes: int = 100 * MIB
    max_idle_ms: int = 600_000  # below 0: unlimited
    max_connections: int = INT_MAX
    max_connections_per_ip: int = INT_MAX
    connections_of_ip: Mapping[str, int] = field(default_factory=dict)  # overrides by address
    max_new_connections_per_second: int = INT_MAX
    send_buffer_bytes: int = 102_400  # of the socket; -1: the system's choice
    receive_buffer_bytes: int = 102_400
    listen_backlog: int = 50
    receive_budget_bytes: int = 256 * MIB  # for the incomplete requests of all connections
    first_frame_ms: int = 10_000  # from accepting to the first complete request
    login_ms: int = 30_000  # from accepting to the end of a SASL login
    started_frame_ms: int = 30_000  # from a request's first byte to its last
    half_closed_ms: int = 5_000  # how long a half-closed client may wait for responses
    accept_retry_ms: int = 250  # after file descriptors were exhausted
    max_unanswered: int = 64  # in-flight requests per connection
    max_unsent_replies: int = 64  # per connection; beyond it no request is started
    max_unsent_bytes: int = 256 * 1024  # in memory; file slices do not count
    read_ahead_bytes: int = 64 * 1024  # received while requests may not start
    requests_a_turn: int = 32  # per connection, before others get a turn
    send_turn_bytes: int = 256 * 1024

    @classmethod
    def from_broker(cls, config: EffectiveConfig) -> Self:
        queued_bytes = config.get_int("queued.max.request.bytes")
        return cls(
            max_request_bytes=config.get_int("socket.request.max.bytes"),
            max_idle_ms=config.get_int("connections.max.idle.ms"),
            max_connections=config.get_int("max.connections"),
            max_connections_per_ip=config.get_int("max.connections.per.ip"),
            connections_of_ip=_parse_overrides(config.get_str("max.connections.per.ip.overrides")),
            max_new_connections_per_second=config.get_int("max.connection.creation.rate"),
            send_buffer_bytes=config.get_int("socket.send.buffer.bytes"),
            receive_buffer_bytes=config.get_int("socket.receive.buffer.bytes"),
            listen_backlog=config.get_int("socket.listen.backlog.size"),
            receive_budget_bytes=queued_bytes if queued_bytes > 0 else 256 * MIB,
        )


def _parse_overrides(text: str) -> dict[str, int]:
    """Limits by address from `host:count` pairs; a host name stands for all its addresses."""
    limits: dict[str, int] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        host, _, count = pair.rpartition(":")
        for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            limits[str(address[0])] = int(count)
    return limits
