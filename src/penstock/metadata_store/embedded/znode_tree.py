"""The znodes as a pure state machine: a command and the time in, results and events out.

Neither durable nor aware of watches. The same commands give the same znodes, so that a journal of
commands is enough to rebuild them. Every command has a zxid, failed ones too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.metadata_store.errors import (
    BadVersion,
    MetadataStoreError,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
)
from penstock.metadata_store.interface import (
    ANY_VERSION,
    NO_SESSION,
    CheckVersion,
    Create,
    Created,
    Delete,
    EventKind,
    Operation,
    SessionId,
    SetData,
    Stat,
    WatchEvent,
)
from penstock.metadata_store.paths import name_of, parent_of


class Znode(NamedTuple):
    """Immutable, so that an image of all znodes is a copy of one dict."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    created_children: int  # ever created; the next sequential number, never decreases
    num_children: int
    ephemeral_owner: SessionId

    @property
    def stat(self) -> Stat:
        return Stat(
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            2 * self.created_children - self.num_children,  # creations and deletions
            self.ephemeral_owner,
            len(self.data),
            self.num_children,
        )


# Commands.


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """The new session's id is the command's zxid."""


class EndSession(NamedTuple):
    session_id: SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAllSessions:
    """The sessions of an earlier process."""


class ZnodeChange(NamedTuple):
    """All of the operations or none."""

    session_id: SessionId
    operations: tuple[Operation, ...]


Command = OpenSession | EndSession | EndAllSessions | ZnodeChange


OperationResult = Created | Stat | None  # of an operation


class Failure(NamedTuple):
    failed_index: int
    error: MetadataStoreError


class Applied(NamedTuple):
    zxid: int
    result: tuple[OperationResult, ...] | Failure
    events: tuple[WatchEvent, ...]  # in the order of the changes


class Image(NamedTuple):
    """All znodes at one zxid; immutable."""

    zxid: int
    nodes: Mapping[str, Znode]
    sessions: frozenset[SessionId]


_ROOT = Znode(b"", 0, 0, 0, 0, 0, 0, 0, 0, NO_SESSION)
EMPTY = Image(0, {"/": _ROOT}, frozenset())


class ZnodeTree:
    """Owned by one store; only `apply` changes it."""

    def __init__(self, image: Image = EMPTY) -> None:
        self.zxid = image.zxid  # of the last command
        self._nodes = dict(image.nodes)
        self._names: dict[str, set[str]] = {}  # of children, by parents that have some
        self._ephemerals: dict[SessionId, set[str]] = {s: set() for s in image.sessions}
        for path, node in self._nodes.items():
            self._index(path, node)

    def apply(self, command: Command, now_ms: int) -> Applied:
        self.zxid += 1
        match command:
            case ZnodeChange(session_id, operations):
                return self._change(session_id, operations, now_ms)
            case OpenSession():
                self._ephemerals[SessionId(self.zxid)] = set()
                return Applied(self.zxid, (), ())
            case EndSession(session_id):
                return self._end([session_id] if session_id in self._ephemerals else [])
            case EndAllSessions():
                return self._end(list(self._ephemerals))

    # Reads.

    def find(self, path: str) -> Znode | None:
        return self._nodes.get(path)

    def get(self, path: str) -> Znode:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def children(self, path: str) -> tuple[str, ...]:
        self.get(path)
        return tuple(sorted(self._names.get(path, ())))

    @property
    def sessions(self) -> frozenset[SessionId]:
        return frozenset(self._ephemerals)

    @property
    def node_count(self) -> int:
        return len(self._nodes)

    def image(self) -> Image:
        return Image(self.zxid, self._nodes.copy(), self.sessions)

    # Changes.

    def _change(
        self, session_id: SessionId, operations: tuple[Operation, ...], now_ms: int
    ) -> Applied:
        if session_id not in self._ephemerals:
            return Applied(self.zxid, Failure(0, SessionExpired(session_id)), ())
        draft = _Draft(self._nodes, self.zxid, now_ms, session_id)
        results: list[OperationResult] = []
        for index, operation in enumerate(operations):
            try:
                results.append(draft.do(operation))
            except MetadataStoreError as error:
                return Applied(self.zxid, Failure(index, error), ())
        self._accept(draft)
        return Applied(self.zxid, tuple(results), tuple(draft.events))

    def _end(self, session_ids: list[SessionId]) -> Applied:
        draft = _Draft(self._nodes, self.zxid, 0, NO_SESSION)
        # Sorted, because a rebuilt set may iterate in another order, and events must not.
        for path in sorted(path for s in session_ids for path in self._ephemerals[s]):
            draft.do(Delete(path=path))
        self._accept(draft)
        for session_id in session_ids:
            del self._ephemerals[session_id]
        return Applied(self.zxid, (), tuple(draft.events))

    def _accept(self, draft: "_Draft") -> None:
        for path, node in draft.changed.items():
            before = self._nodes.get(path)
            is_same_znode = before is not None and node is not None and before.czxid == node.czxid
            if before is not None and not is_same_znode:
                self._unindex(path, before)
                del self._nodes[path]
            if node is not None:
                self._nodes[path] = node
                if not is_same_znode:
                    self._index(path, node)

    def _index(self, path: str, node: Znode) -> None:
        if path != "/":
            self._names.setdefault(parent_of(path), set()).add(name_of(path))
        if node.ephemeral_owner != NO_SESSION:
            self._ephemerals[node.ephemeral_owner].add(path)

    def _unindex(self, path: str, node: Znode) -> None:
        names = self._names[parent_of(path)]
        names.remove(name_of(path))
        if not names:
            del self._names[parent_of(path)]
        if node.ephemeral_owner != NO_SESSION:
            self._ephemerals[node.ephemeral_owner].remove(path)


class _Draft:
    """The changes of a command, kept apart until all of its operations have succeeded."""

    def __init__(
        self, nodes: Mapping[str, Znode], zxid: int, now_ms: int, session_id: SessionId
    ) -> None:
        self.changed: dict[str, Znode | None] = {}
        self.events: list[WatchEvent] = []
        self._nodes = nodes
        self._zxid = zxid
        self._now_ms = now_ms
        self._session_id = session_id

    def do(self, operation: Operation) -> OperationResult:
        match operation:
            case Create():
                return self._create(operation)
            case SetData(path=path, data=data, version=version):
                return self._set(path, data, version)
            case Delete(path=path, version=version):
                self._delete(path, version)
                return None
            case CheckVersion(path=path, version=version):
                self._get(path, version)
                return None

    def _create(self, operation: Create) -> Created:
        path = operation.path
        parent_path = parent_of(path)
        parent = self._find(parent_path)
        if parent is None:
            raise NoNode(path)
        if operation.sequential:
            path = f"{path}{parent.created_children:010d}"
        if self._find(path) is not None:
            raise NodeExists(path)
        if parent.ephemeral_owner != NO_SESSION:
            raise NoChildrenForEphemerals(path)
        node = self._new_node(operation)
        self.changed[path] = node
        self.changed[parent_path] = parent._replace(
            pzxid=self._zxid,
            created_children=parent.created_children + 1,
            num_children=parent.num_children + 1,
        )
        self.events += (
            WatchEvent(EventKind.CREATED, path),
            WatchEvent(EventKind.CHILD, parent_path),
        )
        return Created(path, node.stat)

    def _new_node(self, operation: Create) -> Znode:
        return Znode(
            data=operation.data,
            czxid=self._zxid,
            mzxid=self._zxid,
            pzxid=self._zxid,
            ctime_ms=self._now_ms,
            mtime_ms=self._now_ms,
            version=0,
            created_children=0,
            num_children=0,
            ephemeral_owner=self._session_id if operation.ephemeral else NO_SESSION,
        )

    def _set(self, path: str, data: bytes, version: int) -> Stat:
        before = self._get(path, version)
        node = before._replace(
            data=data, mzxid=self._zxid, mtime_ms=self._now_ms, version=before.version + 1
        )
        self.changed[path] = node
        self.events.append(WatchEvent(EventKind.CHANGED, path))
        return node.stat

    def _delete(self, path: str, version: int) -> None:
        node = self._get(path, version)
        if node.num_children:
            raise NotEmpty(path)
        parent_path = parent_of(path)
        parent = self._get(parent_path, ANY_VERSION)
        self.changed[path] = None
        self.changed[parent_path] = parent._replace(
            pzxid=self._zxid, num_children=parent.num_children - 1
        )
        self.events += (
            WatchEvent(EventKind.DELETED, path),
            WatchEvent(EventKind.CHILD, parent_path),
        )

    def _get(self, path: str, version: int) -> Znode:
        node = self._find(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path, expected=version, actual=node.version)
        return node

    def _find(self, path: str) -> Znode | None:
        if path in self.changed:
            return self.changed[path]
        return self._nodes.get(path)
