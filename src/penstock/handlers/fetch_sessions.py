"""Fetch sessions (KIP-227): a client names its partitions once, then only what changes.

Keeps what each session asked for and was last told. Reads no log. Bounded: a full table makes room
by dropping the session that was used longest ago, whose client then starts a new one.
"""


class FetchSessions:
    """Every session of one broker. Owned by the event loop's thread."""

    def __init__(self, *, max_sessions: int) -> None:
        self.max_sessions = max_sessions
