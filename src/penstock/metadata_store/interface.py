"""The interface of a metadata store: the same for the embedded store and for ZooKeeper.

Not an implementation. One conformance suite holds every implementation to these guarantees:

- Every write has a zxid. Zxids increase over all sessions and restarts; a `multi` has one.
- A session's requests take effect and are answered in the order they were made, also unawaited.
- A session's reads never go back in time; `sync` brings them up to all writes answered before.
- A read arms its watch atomically: no change is missed in between. A watch is called once, on the
  event loop, after the answer of the read that armed it and before its session can read the
  change. Several changes before it is armed again are one event: read and watch again, never count
  events.
- When a session ends, its ephemeral znodes are deleted atomically.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple, NewType, Protocol

from penstock.metadata_store.errors import DataTooLarge
from penstock.metadata_store.paths import check_path, check_path_to_create, check_path_to_delete

SessionId = NewType("SessionId", int)

NO_SESSION = SessionId(0)  # the owner of every znode that is not ephemeral
ANY_VERSION = -1
# ZooKeeper disconnects a client that sends more (jute.maxbuffer).
MAX_REQUEST_BYTES = 0xFFFFF
OPERATION_OVERHEAD_BYTES = 128  # of a request besides path and data, rounded up


class Stat(NamedTuple):
    """A znode's stat, with ZooKeeper's names."""

    czxid: int  # of the write that created it: tells it from a later znode of the same path
    mzxid: int  # of the write that last changed its data
    pzxid: int  # of the write that last created or deleted a child
    ctime_ms: int
    mtime_ms: int
    version: int  # changes of the data
    cversion: int  # creations and deletions of children
    ephemeral_owner: SessionId
    data_length: int
    num_children: int


class Value(NamedTuple):
    data: bytes
    stat: Stat


class Created(NamedTuple):
    path: str  # with the sequence number, if sequential
    stat: Stat


# Operations, single or in a `multi`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Its result in a `multi` is the path. Sequential: ten digits are appended, ever larger."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    """Its result is the new Stat."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckVersion:
    """The znode exists with this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | CheckVersion
Result = str | Stat | None  # of Create, of SetData, of the others


# Watches.


class EventKind(StrEnum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"  # the data
    CHILD = "child"  # a child was created or deleted
    SESSION_ENDED = "session_ended"  # the watch is gone too; the path is empty


class WatchEvent(NamedTuple):
    kind: EventKind
    path: str


# Called once, on the event loop; must neither block nor raise. The same callable armed twice for
# one path is one watch.
Watch = Callable[[WatchEvent], None]


# Sessions.


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"  # requests raise ConnectionLoss; the session may still recover
    ENDED = "ended"  # closed or expired, final


class Session(Protocol):
    """A client's session. Every method may raise SessionExpired or ConnectionLoss."""

    @property
    def id(self) -> SessionId: ...
    @property
    def state(self) -> SessionState: ...

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        """Call the listener with every later state, on the event loop."""

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        """NodeExists, NoNode (of the parent), NoChildrenForEphemerals."""

    async def get(self, path: str, watch: Watch | None = None) -> Value:
        """NoNode arms no watch. The watch fires on changed and deleted."""

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The watch fires on created, changed and deleted, also if the znode does not exist."""

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        """Sorted names. NoNode. The watch fires on child, and when the znode itself is deleted."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """NoNode, BadVersion."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """NoNode, BadVersion, NotEmpty."""

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """All operations, each seeing those before it, or none: MultiFailed."""

    async def sync(self) -> None:
        """Later reads see every write that any client got an answer to before this call."""

    async def close(self) -> None:
        """End the session; idempotent."""


class MetadataStore(Protocol):
    """Opens sessions."""

    async def open_session(self) -> Session: ...
    async def close(self) -> None: ...
    async def wait_end(self) -> None:
        """Wait until it is closed; raises the error that stopped it."""


# Checks that every implementation makes before it sends a request.


def check_operations(operations: Sequence[Operation]) -> None:
    """InvalidPath or DataTooLarge, independent of the store's state."""
    length = 0
    for operation in operations:
        _check_operation_path(operation)
        length += OPERATION_OVERHEAD_BYTES + len(operation.path.encode())
        if isinstance(operation, Create | SetData):
            length += len(operation.data)
    if length > MAX_REQUEST_BYTES:
        raise DataTooLarge(
            f"a request of {length} bytes, the first for {operations[0].path[:100]}, exceeds the "
            f"limit of {MAX_REQUEST_BYTES}; split it or keep the data elsewhere"
        )


def _check_operation_path(operation: Operation) -> None:
    if isinstance(operation, Create):
        check_path_to_create(operation.path, sequential=operation.sequential)
    elif isinstance(operation, Delete):
        check_path_to_delete(operation.path)
    else:
        check_path(operation.path)
