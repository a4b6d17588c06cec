"""What is counted of a listener's TLS. Values only."""

from typing import NamedTuple


class TlsStatistics(NamedTuple):
    expires_s: float  # Unix time, of the listener's certificate
    reloads: int
    failed_reloads: int
