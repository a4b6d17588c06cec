"""What coordination is for the rooms above: the same on the embedded store and on ZooKeeper.

Not an implementation. One conformance suite holds every implementation to what is said here.

- Every write has a zxid; zxids grow over all sessions and restarts, and a `multi` has one.
- A session's requests take effect and are answered in the order they were made, also unawaited.
- What a session reads never goes back in time; `sync` first brings it up to all that is answered.
- A watch is armed by the read that it belongs to, in one step: no change fits between them.
  It is called once, on the event loop, before its session can read the change, and after the
  answer of the read that armed it. Several changes before it is armed again are one event: read
  (and watch) again, and never count events.
- A session's ephemeral nodes go when it ends, all in one step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple, NewType, Protocol

from penstock.metadata_store.errors import DataTooLarge
from penstock.metadata_store.paths import check_path, check_path_to_create, check_path_to_delete

SessionId = NewType("SessionId", int)

NO_SESSION = SessionId(0)  # owns every node that is not ephemeral
ANY_VERSION = -1
# ZooKeeper drops a client that sends more (jute.maxbuffer), so nothing may be taken here either.
MAX_REQUEST_BYTES = 0xFFFFF
OPERATION_OVERHEAD_BYTES = 128  # what goes with paths and data in a request, rounded up


class Stat(NamedTuple):
    """A node's numbers, as ZooKeeper names them."""

    czxid: int  # of the write that created the node: tells one life of a path from the next
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
    path: str  # with its number, if it is sequential
    stat: Stat


# Operations, alone or in a `multi`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Answers the path, in a `multi`. Sequential: ten digits follow, larger than any before."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    """Answers the new Stat."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckVersion:
    """The node exists, in this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | CheckVersion
Result = str | Stat | None  # of Create, SetData, and the others


# Watches.


class EventKind(StrEnum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"  # the data
    CHILD = "child"  # a child was created or deleted
    SESSION_ENDED = "session_ended"  # the watch is gone with its session; the path is empty


class WatchEvent(NamedTuple):
    kind: EventKind
    path: str


# Called once, on the event loop; must neither wait nor raise. The same callable armed twice for
# the same path is one watch.
Watch = Callable[[WatchEvent], None]


# Sessions.


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"  # requests raise ConnectionLost; the session may still come back
    ENDED = "ended"  # closed or expired: for good


class Session(Protocol):
    """One client's standing. Every method may raise SessionExpired or ConnectionLost."""

    @property
    def id(self) -> SessionId: ...
    @property
    def state(self) -> SessionState: ...

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        """Have every later change of state told, on the event loop."""

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        """NodeExists, NoNode (of the parent), NoChildrenForEphemerals."""

    async def get(self, path: str, watch: Watch | None = None) -> Value:
        """NoNode, and then nothing is watched. The watch is for changed and deleted."""

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Watches also what is not there: for created, changed and deleted."""

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        """Names, sorted. NoNode. The watch is for child, and for deleted of the node itself."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """NoNode, BadVersion."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """NoNode, BadVersion, NotEmpty."""

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """All, each seeing those before it, or none: TransactionFailed."""

    async def sync(self) -> None:
        """Reads after this see every write that was answered, to anyone, before it was called."""

    async def close(self) -> None:
        """End the session; doing so twice is fine."""


class MetadataStore(Protocol):
    """The tree, seen from outside of any session."""

    async def open_session(self) -> Session: ...
    async def close(self) -> None: ...
    async def wait_end(self) -> None:
        """Until it is closed; raises what had stopped it before."""


# Checks that every implementation makes before it sends anything.


def check_operations(operations: Sequence[Operation]) -> None:
    """InvalidPath or DataTooLarge, whatever the state of the tree."""
    length = 0
    for operation in operations:
        _check_operation_path(operation)
        length += OPERATION_OVERHEAD_BYTES + len(operation.path.encode())
        if isinstance(operation, Create | SetData):
            length += len(operation.data)
    if length > MAX_REQUEST_BYTES:
        raise DataTooLarge(
            f"a request of {length} bytes, the first for {operations[0].path[:100]}, exceeds the "
            f"{MAX_REQUEST_BYTES} that the tree takes; split it or keep the data elsewhere"
        )


def _check_operation_path(operation: Operation) -> None:
    if isinstance(operation, Create):
        check_path_to_create(operation.path, sequential=operation.sequential)
    elif isinstance(operation, Delete):
        check_path_to_delete(operation.path)
    else:
        check_path(operation.path)
