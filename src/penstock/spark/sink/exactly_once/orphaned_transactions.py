"""Ends by hand the transactions that dead queries and killed batch writes left undecided: committed
if their driver had decided so, else aborted. A query does the same for others when it starts.
"""

from penstock.spark.connect.connections import settings_of, shared_client
from penstock.spark.sink.exactly_once.commit_coordinator import CommitCoordinator, end_abandoned

_NO_QUERY = ""  # no query has this name
_TIMEOUT_MS = 120_000


def end_orphaned_transactions(bootstrap: str, *, older_than_ms: int) -> list[str]:
    """End the transactions of every query that has had one undecided for so long, and return those
    queries. A query that is in fact alive is rejected at its next commit and must be restarted."""
    client = shared_client(settings_of(bootstrap))
    return client.run(
        lambda cluster: end_abandoned(
            CommitCoordinator(cluster, bootstrap, _NO_QUERY, _TIMEOUT_MS),
            older_than_ms=older_than_ms,
        ),
        timeout_ms=_TIMEOUT_MS,
    )
