"""The rules of a client's transaction: the original ones, or KIP-890's, by its request versions.

Numbers are those of the feature `transaction.version`, as the log keeps them; 1 differs from 0 only
in the log's format.
"""

CLASSIC = 0
BUMPING = 2  # the end of every transaction bumps the epoch (KIP-890)

_FIRST_BUMPING_END = 5
_FIRST_BUMPING_ADD = 4


def version_of_end(api_version: int) -> int:
    """The transaction version of an EndTxn request version."""
    return BUMPING if api_version >= _FIRST_BUMPING_END else CLASSIC


def version_of_add(api_version: int) -> int:
    """The transaction version of an AddPartitionsToTxn request version; brokers send the later ones
    for newer clients."""
    return BUMPING if api_version >= _FIRST_BUMPING_ADD else CLASSIC


def bumps_epoch(version: int) -> bool:
    return version >= BUMPING
