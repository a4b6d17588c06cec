"""Every error that coordination raises on purpose, with ZooKeeper's meaning.

Not errors of the disk: the embedded store turns those into ConnectionLost, since nobody knows then
what happened to the operations that were under way.
"""


class MetadataStoreError(Exception):
    """The tree could not do what it was asked; the message says why and what next."""


class InvalidPath(MetadataStoreError, ValueError):
    """No node can have this path."""


class DataTooLarge(MetadataStoreError):
    """The request exceeds what the tree takes at once."""


class NoNode(MetadataStoreError):
    """The node, or the parent it would need, is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} or its parent does not exist; create it first")
        self.path = path


class NodeExists(MetadataStoreError):
    """A node of this path is there already."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} exists already; read it, or delete it first")
        self.path = path


class BadVersion(MetadataStoreError):
    """The node has changed since the version that the caller knows."""

    def __init__(self, path: str, *, expected: int, actual: int | None = None) -> None:
        has = "does not have version" if actual is None else f"has version {actual}, not"
        super().__init__(f"{path} {has} {expected}: somebody changed it; read it again")
        self.path = path


class NotEmpty(MetadataStoreError):
    """A node with children cannot be deleted."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has children; delete them first")
        self.path = path


class NoChildrenForEphemerals(MetadataStoreError):
    """A node that ends with its session can have no children."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} would be the child of an ephemeral node; choose another parent")
        self.path = path


class RolledBack(MetadataStoreError):
    """Part of a transaction of which another part failed."""

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
            error if place == failed_index else RolledBack() for place in range(count)
        )


class SessionExpired(MetadataStoreError):
    """The session is over and its ephemeral nodes are gone; only a new one helps."""

    def __init__(self, session_id: int) -> None:
        super().__init__(
            f"session {session_id:#x} has ended, and its ephemeral nodes with it; open a new one"
        )
        self.session_id = session_id


class ConnectionLoss(MetadataStoreError):
    """No answer came: a write may have been done or not. Read before repeating it."""


class ZooKeeperRefused(MetadataStoreError):
    """ZooKeeper said no for a reason that the embedded tree does not know: rights, quotas."""


class ZooKeeperMissing(MetadataStoreError):
    """A part that a cluster needs is not installed, or a server of its own did not start."""


class StoreDamaged(MetadataStoreError):
    """The embedded store's files contradict themselves, other than by a crash."""


class StoreLocked(MetadataStoreError):
    """Another process has the embedded store open."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            f"{folder} is in use by another process; stop that broker or give this one its own "
            f"directory"
        )
