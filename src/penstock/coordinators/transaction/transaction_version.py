"""Which rules a client's transaction goes by: those of old, or KIP-890's. Told by its requests.

Numbers are those of the feature `transaction.version`, as the log keeps them; 1 differs from 0 in
the log's format alone.
"""

CLASSIC = 0
BUMPING = 2  # every end of a transaction bumps the epoch (KIP-890)

_FIRST_BUMPING_END = 5
_FIRST_BUMPING_ADD = 4


def version_of_end(api_version: int) -> int:
    """By the version of EndTxn."""
    return BUMPING if api_version >= _FIRST_BUMPING_END else CLASSIC


def version_of_add(api_version: int) -> int:
    """By the version of AddPartitionsToTxn: later ones are sent by brokers, for newer clients."""
    return BUMPING if api_version >= _FIRST_BUMPING_ADD else CLASSIC


def bumps_epoch(version: int) -> bool:
    return version >= BUMPING
