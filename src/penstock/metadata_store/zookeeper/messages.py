"""Encodes requests for ZooKeeper, decodes its answers, events and error codes.

Sends nothing. The formats are kazoo's, except for the request that re-arms a session's watches
after a lost connection, which kazoo does not have.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.metadata_store.errors import (
    BadVersion,
    ConnectionLoss,
    DataTooLarge,
    MetadataStoreError,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    RolledBack,
    ZooKeeperMissing,
    ZooKeeperRefused,
)
from penstock.metadata_store.interface import (
    ANY_VERSION,
    MAX_REQUEST_BYTES,
    CheckVersion,
    Create,
    Created,
    Delete,
    EventKind,
    Operation,
    Result,
    SessionId,
    SetData,
    Stat,
    Value,
    WatchEvent,
)
from penstock.metadata_store.zookeeper.znode_access import ZnodeAccess, find_access

try:
    from kazoo.exceptions import EXCEPTIONS
    from kazoo.protocol import serialization as wire
    from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
except ImportError as missing:
    raise ZooKeeperMissing(
        f"to talk to ZooKeeper, kazoo is needed ({missing}); pip install 'penstock[cluster]', or "
        f"leave zookeeper.connect unset for a single node"
    ) from missing

# Kinds of requests.
PING, CLOSE, SET_WATCHES, SASL = wire.Ping.type, wire.Close.type, 101, wire.SASL.type
EVENT_XID, PING_XID = -1, -2  # in place of a request's number

OK = 0
NO_NODE = -101
SESSION_EXPIRED = -112
SESSION_MOVED = -118  # another connection has the session; reconnect
_BAD_VERSION = -103
_UNKNOWN_OUTCOME = frozenset((-4, -7, -122))  # connection loss and timeouts
_THROTTLED = -127

_EPHEMERAL, _SEQUENTIAL = 1, 2
_SET_WATCHES_BYTES = 128 * 1024  # of paths in one request
_KINDS = {
    1: EventKind.CREATED,
    2: EventKind.DELETED,
    3: EventKind.CHANGED,
    4: EventKind.CHILD,
}
_SIMPLE_ERRORS: dict[int, Callable[[str], MetadataStoreError]] = {
    NO_NODE: NoNode,
    -108: NoChildrenForEphemerals,
    -110: NodeExists,
    -111: NotEmpty,
}
_REQUEST_HEADER_BYTES = 8
_I32 = struct.Struct("!i")
_I64 = struct.Struct("!q")

Answer = TypeVar("Answer")


class ZooKeeperRequest(NamedTuple, Generic[Answer]):
    kind: int
    body: bytes
    read: Callable[
        [bytes], Answer
    ]  # decodes the body of a successful answer; may raise a refusal too
    refuse: Callable[[int], MetadataStoreError]  # for an error's code


class ZooKeeperReply(NamedTuple):
    xid: int
    zxid: int
    code: int
    body: bytes


class Hello(NamedTuple):
    """The server's side of a handshake."""

    session_id: SessionId
    password: bytes
    timeout_ms: int  # 0 or less: the session has expired


class WatchedPaths(NamedTuple):
    """Watched paths, by the znodes' state when the session last read them."""

    present: Sequence[str]
    absent: Sequence[str]
    children: Sequence[str]


# Handshake and answers.


def encode_hello(
    *, session_id: SessionId, password: bytes, timeout_ms: int, last_zxid: int
) -> bytes:
    return bytes(wire.Connect(0, last_zxid, timeout_ms, session_id, password, False).serialize())


def decode_hello(frame: bytes) -> Hello:
    hello, _ = wire.Connect.deserialize(frame, 0)
    return Hello(SessionId(hello.session_id), bytes(hello.passwd or b""), hello.time_out)


def decode_reply(frame: bytes) -> ZooKeeperReply:
    header, start = wire.ReplyHeader.deserialize(frame, 0)
    return ZooKeeperReply(header.xid, header.zxid, header.err, frame[start:])


# The tokens of a login. The first is empty: the server begins.


def encode_sasl(token: bytes) -> bytes:
    return bytes(wire.SASL(token).serialize())


def decode_sasl(body: bytes) -> bytes:
    token, _ = wire.SASL.deserialize(body, 0)
    return bytes(token or b"")


class Messages:
    """Requests of a session whose paths all lie below `chroot`. `sets_acls`: znodes that it creates
    are its own users' to change (`znode_access`)."""

    def __init__(self, chroot: str, *, sets_acls: bool = False) -> None:
        self._chroot = chroot
        self._sets_acls = sets_acls

    def create(self, operation: Create) -> ZooKeeperRequest[Created]:
        def read(body: bytes) -> Created:
            path, stat = wire.Create2.deserialize(body, 0)
            return Created(self._own(path), _stat(stat))

        return _request(wire.Create2(*self._create_fields(operation)), read, operation)

    def get(self, path: str, *, watched: bool) -> ZooKeeperRequest[Value]:
        def read(body: bytes) -> Value:
            data, stat = wire.GetData.deserialize(body, 0)
            return Value(bytes(data or b""), _stat(stat))

        return _request(wire.GetData(self._full(path), watched), read, CheckVersion(path=path))

    def exists(self, path: str, *, watched: bool) -> ZooKeeperRequest[Stat]:
        """NoNode if it does not."""
        message = wire.Exists(self._full(path), watched)
        return _request(message, lambda body: _read_stat(body), CheckVersion(path=path))

    def children(self, path: str, *, watched: bool) -> ZooKeeperRequest[tuple[str, ...]]:
        def read(body: bytes) -> tuple[str, ...]:
            return tuple(sorted(wire.GetChildren.deserialize(body, 0)))

        return _request(wire.GetChildren(self._full(path), watched), read, CheckVersion(path=path))

    def set(self, operation: SetData) -> ZooKeeperRequest[Stat]:
        return _request(self._in_transaction(operation), lambda body: _read_stat(body), operation)

    def delete(self, operation: Delete) -> ZooKeeperRequest[None]:
        return _request(self._in_transaction(operation), lambda body: None, operation)

    def multi(self, operations: Sequence[Operation]) -> ZooKeeperRequest[tuple[Result, ...]]:
        message = wire.Transaction([self._in_transaction(operation) for operation in operations])
        first = operations[0] if operations else CheckVersion(path="/")
        return _request(message, partial(self._read_multi, operations), first)

    def sync(self) -> ZooKeeperRequest[None]:
        return _request(wire.Sync(self._full("/")), lambda body: None, CheckVersion(path="/"))

    def set_acls(self, path: str, *, is_secure: bool) -> ZooKeeperRequest[Stat]:
        """Of a znode that exists, what it would get if it were created now."""
        message = wire.SetACL(self._full(path), _acls(path, is_secure=is_secure), ANY_VERSION)
        return _request(message, lambda body: _read_stat(body), CheckVersion(path=path))

    def set_watches(self, last_zxid: int, paths: WatchedPaths) -> Iterator[ZooKeeperRequest[None]]:
        """Fires watches for what changed since `last_zxid`, and re-arms the others."""
        for part in _parts(paths):
            body = _I64.pack(last_zxid) + b"".join(self._vector(paths) for paths in part)
            yield ZooKeeperRequest(
                SET_WATCHES, body, lambda _: None, partial(_error, CheckVersion(path="/"))
            )

    def decode_event(self, body: bytes) -> WatchEvent | None:
        """None if it is not a change of a znode."""
        event, _ = wire.Watch.deserialize(body, 0)
        kind = _KINDS.get(event.type)
        return None if kind is None else WatchEvent(kind, self._own(event.path))

    def _in_transaction(self, operation: Operation) -> Any:
        path = self._full(operation.path)
        match operation:
            case Create():
                return wire.Create(*self._create_fields(operation))
            case SetData(data=data, version=version):
                return wire.SetData(path, data, version)
            case Delete(version=version):
                return wire.Delete(path, version)
            case CheckVersion(version=version):
                return wire.CheckVersion(path, version)

    def _create_fields(self, operation: Create) -> tuple[str, bytes, object, int]:
        flags = _EPHEMERAL * operation.ephemeral | _SEQUENTIAL * operation.sequential
        # "/" is the root itself, unless a sequence number follows the slash.
        is_bare = operation.sequential and operation.path == "/"
        path = self._chroot + "/" if is_bare else self._full(operation.path)
        return path, operation.data, _acls(operation.path, is_secure=self._sets_acls), flags

    def _read_multi(self, operations: Sequence[Operation], body: bytes) -> tuple[Result, ...]:
        results = wire.Transaction.deserialize(body, 0)
        for index, result in enumerate(results):
            # Operations before the failed one are rolled back, later ones never tried.
            if isinstance(result, Exception) and getattr(result, "code", OK) != OK:
                error = _error(operations[index], getattr(result, "code", OK))
                raise MultiFailed(index, error, len(operations))
        return tuple(
            self._result(operation, result)
            for operation, result in zip(operations, results, strict=True)
        )

    def _result(self, operation: Operation, result: Any) -> Result:
        if isinstance(operation, Create):
            return self._own(result)
        return _stat(result) if isinstance(operation, SetData) else None

    def _full(self, path: str) -> str:
        return self._chroot if path == "/" and self._chroot else self._chroot + path

    def _own(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"

    def _vector(self, paths: Sequence[str]) -> bytes:
        encoded = [self._full(path).encode() for path in paths]
        parts = [_I32.pack(len(encoded))]
        for path in encoded:
            parts += (_I32.pack(len(path)), path)
        return b"".join(parts)


def _acls(path: str, *, is_secure: bool) -> list[Any]:
    match find_access(path) if is_secure else ZnodeAccess.OPEN:
        case ZnodeAccess.OPEN:
            return list(OPEN_ACL_UNSAFE)
        case ZnodeAccess.READABLE:
            return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
        case ZnodeAccess.SENSITIVE:
            return list(CREATOR_ALL_ACL)


def _request(
    message: Any, read: Callable[[bytes], Answer], operation: Operation
) -> ZooKeeperRequest[Answer]:
    body = bytes(message.serialize())
    if len(body) + _REQUEST_HEADER_BYTES > MAX_REQUEST_BYTES:
        raise DataTooLarge(
            f"a request of {len(body)} bytes for {operation.path[:100]} exceeds "
            f"ZooKeeper's limit of {MAX_REQUEST_BYTES}; split it or keep the data elsewhere"
        )
    return ZooKeeperRequest(message.type, body, read, partial(_error, operation))


def _error(operation: Operation, code: int) -> MetadataStoreError:
    path = operation.path
    if code in _SIMPLE_ERRORS:
        return _SIMPLE_ERRORS[code](path)
    if code == OK:
        return RolledBack()
    if code == _BAD_VERSION and not isinstance(operation, Create):
        return BadVersion(path, expected=operation.version)
    if code in _UNKNOWN_OUTCOME:
        return ConnectionLoss(f"ZooKeeper lost the request for {path}; read, then retry")
    if code == _THROTTLED:
        return ConnectionLoss(f"ZooKeeper is overloaded and refused {path}; wait, then repeat it")
    return ZooKeeperRefused(
        f"ZooKeeper refused {path}: {_name_of(code)} ({code}); check its log and the znode's ACL"
    )


def _name_of(code: int) -> str:
    exception = EXCEPTIONS.get(code)
    return "unknown error" if exception is None else str(exception.__name__)


def _read_stat(body: bytes) -> Stat:
    return _stat(wire.SetData.deserialize(body, 0))


def _stat(stat: Any) -> Stat:
    return Stat(
        stat.czxid,
        stat.mzxid,
        stat.pzxid,
        stat.ctime,
        stat.mtime,
        stat.version,
        stat.cversion,
        SessionId(stat.ephemeralOwner),
        stat.dataLength,
        stat.numChildren,
    )


def _parts(paths: WatchedPaths) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Split by the length of the paths; none if nothing is watched."""
    part: tuple[list[str], list[str], list[str]] = ([], [], [])
    length = 0
    for index, several in enumerate(paths):
        for path in several:
            part[index].append(path)
            length += _I32.size + len(path.encode())
            if length > _SET_WATCHES_BYTES:
                yield part
                part, length = ([], [], []), 0
    if length:
        yield part
