"""Divides the process's file descriptors among log files, connections and everything else.

Values only; `Handles` and `NetworkLimits` enforce them. Invariant: connections leave enough for the
logs, because a log that cannot be opened counts as a failed disk.
"""

import resource
from typing import NamedTuple

OWN_USE = 64  # listeners, locks, journals, other brokers, files that are open briefly
LOG_FILES = 1200  # more gains nothing: other indexes are mapped or read
FEW_CONNECTIONS = 500


class Shares(NamedTuple):
    log_files: int  # open at once; half as many may be mapped in addition
    connections: int


def share_descriptors(limit: int) -> Shares:
    rest = limit - min(OWN_USE, limit // 3)
    log_files = min(LOG_FILES, rest // 3)
    return Shares(log_files=log_files, connections=rest - log_files - log_files // 2)


def find_descriptor_limit() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if limit == resource.RLIM_INFINITY else limit


def find_warning(limit: int) -> str | None:
    """A warning for the log if there are few descriptors."""
    connections = share_descriptors(limit).connections
    if connections >= FEW_CONNECTIONS:
        return None
    return (
        f"warning: this process may open {limit} files, so at most {connections} connections are "
        f"accepted; raise the limit of open files (ulimit -n)"
    )
