"""Remembers which clients were told about which API versions, so that each is logged once.

Closes nothing and decides nothing about versions. Invariant: memory is bounded; when it is full,
the oldest entry is forgotten and may be logged again.
"""

MAX_REMEMBERED = 1000
MAX_CLIENT_ID = 200  # characters that tell clients apart; it may have 32,767

RefusedVersion = tuple[str, str | None, int, int]  # host, client id, API key, version


class RefusedVersions:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._seen: dict[RefusedVersion, None] = {}  # in order of insertion

    def is_first(self, refused: RefusedVersion) -> bool:
        """Whether this is new; it is remembered from here on."""
        host, client_id, api_key, version = refused
        if client_id is not None and len(client_id) > MAX_CLIENT_ID:
            refused = host, client_id[:MAX_CLIENT_ID], api_key, version
        if refused in self._seen:
            return False
        if len(self._seen) >= MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen[refused] = None
        return True
