"""The network's counters. Owned by the event loop; others read snapshots."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.security.tls_statistics import TlsStatistics

NO_CERTIFICATES: Mapping[str, TlsStatistics] = MappingProxyType({})


class ListenerStatistics(NamedTuple):
    connections: int
    accepted: int


COUNTED: Final = (
    "accept_failures",
    "accepted",
    "authentication_failures",
    "authentications",
    "closed_expired",
    "closed_idle",
    "closed_malformed",
    "closed_over_limit",
    "closed_slow",
    "received_bytes",
    "refused",
    "requests",
    "sent_bytes",
    "truncated_files",
    "unexpected_errors",
)  # of `NetworkStatistics`


class Counters:
    """Written by connections and acceptor."""

    __slots__ = COUNTED  # a compiled class has none to read

    def __init__(self) -> None:
        self.accept_failures = 0
        self.accepted = 0
        self.authentication_failures = 0
        self.authentications = 0
        self.closed_expired = 0
        self.closed_idle = 0
        self.closed_malformed = 0
        self.closed_over_limit = 0
        self.closed_slow = 0
        self.received_bytes = 0
        self.refused = 0
        self.requests = 0
        self.sent_bytes = 0
        self.truncated_files = 0
        self.unexpected_errors = 0


class NetworkStatistics(NamedTuple):
    connections: int
    accepted: int
    refused: int  # at max.connections.per.ip
    accept_failures: int  # no file descriptor or memory
    closed_idle: int
    closed_malformed: int
    closed_over_limit: int  # a request above the bytes, elements or tagged fields of its API
    closed_slow: int  # a request that took too long to arrive
    truncated_files: int  # a file ended before the slice that was promised
    unexpected_errors: int  # in handlers; each was reported and closed one connection
    requests: int
    received_bytes: int
    sent_bytes: int
    receive_buffer_bytes: int  # held by incomplete requests, spare buffers, requests in flight
    waiting_for_memory: int  # connections
    listeners: Mapping[str, ListenerStatistics]  # by name
    authentication_failures: int = 0  # TLS handshakes and SASL
    authentications: int = 0  # by SASL
    closed_expired: int = 0  # a session that its client did not renew
    certificates: Mapping[str, TlsStatistics] = NO_CERTIFICATES  # by listener with TLS
