"""What dead queries and killed batch writes have left undecided, ended by hand and by the rules:
finished, if they had decided to commit, else aborted. A query does it by itself when it starts.
"""

from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.sink.exactly_once.commit_coordinator import CommitCoordinator, end_abandoned

_NOBODY = ""  # no query has this name
_TIMEOUT_MS = 120_000


def end_orphaned_transactions(bootstrap: str, *, older_than_ms: int) -> list[str]:
    """Of all queries with something undecided for so long: which those were. One that is alive is
    refused when it commits, and has to be started again."""
    client = shared_client(ClientSettings(bootstrap))
    return client.run(
        lambda cluster: end_abandoned(
            CommitCoordinator(cluster, bootstrap, _NOBODY, _TIMEOUT_MS), older_than_ms=older_than_ms
        ),
        timeout_ms=_TIMEOUT_MS,
    )
