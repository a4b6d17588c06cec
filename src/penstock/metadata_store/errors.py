"""All errors that a metadata store raises on purpose, with ZooKeeper's meaning, and DamagedZnode.

Not disk errors: the embedded store turns those into ConnectionLoss, because the outcome of the
operations in progress is unknown then.
"""


class MetadataStoreError(Exception):
    """The store could not carry out the request; the message says why and what next."""


class DamagedZnode(Exception):
    """A znode's data does not match its format; nothing is guessed from it. Raised by readers: the
    store itself knows no format."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} cannot be read: {why}; repair the znode's data, then restart")
        self.path = path
        self.why = why


class InvalidPath(MetadataStoreError, ValueError):
    """No znode can have this path."""


class DataTooLarge(MetadataStoreError):
    """The request exceeds the store's limit."""


class NoNode(MetadataStoreError):
    """The znode, or the parent that it needs, does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} or its parent does not exist; create it first")
        self.path = path


class NodeExists(MetadataStoreError):
    """A znode of this path exists already."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} exists already; read it, or delete it first")
        self.path = path


class BadVersion(MetadataStoreError):
    """The znode does not have the expected version."""

    def __init__(self, path: str, *, expected: int, actual: int | None = None) -> None:
        has = "does not have version" if actual is None else f"has version {actual}, not"
        super().__init__(f"{path} {has} {expected}: it has changed; read it again")
        self.path = path


class NotEmpty(MetadataStoreError):
    """A znode with children cannot be deleted."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has children; delete them first")
        self.path = path


class NoChildrenForEphemerals(MetadataStoreError):
    """An ephemeral znode cannot have children."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} would be the child of an ephemeral znode; choose another parent")
        self.path = path


class RolledBack(MetadataStoreError):
    """An operation of a transaction in which another one failed."""

    def __init__(self) -> None:
        super().__init__("another operation of the transaction failed, so none was done")


class MultiFailed(MetadataStoreError):
    """One operation of a `multi` failed and none was done; `errors` has one for each of them."""

    def __init__(self, failed_index: int, error: MetadataStoreError, count: int) -> None:
        super().__init__(
            f"operation {failed_index} of {count} failed and none was done: "
            f"{type(error).__name__}: {error}"
        )
        self.failed_index = failed_index
        self.error = error
        self.errors = tuple(
            error if index == failed_index else RolledBack() for index in range(count)
        )


class SessionExpired(MetadataStoreError):
    """The session and its ephemeral znodes are gone; open a new one."""

    def __init__(self, session_id: int) -> None:
        super().__init__(
            f"session {session_id:#x} has ended, and its ephemeral znodes with it; open a new one"
        )
        self.session_id = session_id


class ConnectionLoss(MetadataStoreError):
    """No answer arrived: a write may have been applied or not. Read before repeating it."""


class ZooKeeperRefused(MetadataStoreError):
    """ZooKeeper refused for a reason that the embedded store does not have: ACLs, quotas."""


class ZooKeeperNotSecure(MetadataStoreError):
    """The connection to ZooKeeper cannot be as secure as it is configured: its files, or the
    server's certificate."""


class ZooKeeperLoginFailed(MetadataStoreError):
    """ZooKeeper refuses the login, or cannot prove that it knows the password."""


class ZooKeeperMissing(MetadataStoreError):
    """ZooKeeper is not installed, or its server did not start."""


class StoreDamaged(MetadataStoreError):
    """The embedded store's files contradict themselves, other than by a crash."""


class StoreLocked(MetadataStoreError):
    """Another process has the embedded store open."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            f"{folder} is in use by another process; stop that broker or give this one its own "
            f"directory"
        )
