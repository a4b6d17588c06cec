"""Shares out what a process may have open: among the files of logs, connections, and the rest.

Values only; `Handles` and `NetworkLimits` keep to them. Invariant: connections, however many come,
leave enough for the logs: a log that cannot be opened is a disk that has failed.
"""

import resource
from typing import NamedTuple

OWN_USE = 64  # listeners, locks, journals, other brokers, files that are open for a moment
LOG_FILES = 1200  # more would gain nothing: indexes that are not open are mapped or read
FEW_CONNECTIONS = 500


class Shares(NamedTuple):
    log_files: int  # open at once; half as many may be mapped besides
    connections: int


def share_descriptors(limit: int) -> Shares:
    rest = limit - min(OWN_USE, limit // 3)
    log_files = min(LOG_FILES, rest // 3)
    return Shares(log_files=log_files, connections=rest - log_files - log_files // 2)


def find_descriptor_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def find_warning(limit: int) -> str | None:
    """What to tell who runs a broker with so few."""
    connections = share_descriptors(limit).connections
    if connections >= FEW_CONNECTIONS:
        return None
    return (
        f"warning: this process may open {limit} files, so at most {connections} connections are "
        f"let in; raise the limit of open files (ulimit -n)"
    )
