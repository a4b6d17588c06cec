"""Encodes commands and images for the journal and the snapshot. No checksums here.

Big-endian; texts and data after a u32 length. docs/decisions/0011 has the layout.
"""

import struct
from collections.abc import Iterator, Sequence

from penstock.metadata_store.embedded.znode_tree import (
    Command,
    EndAllSessions,
    EndSession,
    Image,
    OpenSession,
    Znode,
    ZnodeChange,
)
from penstock.metadata_store.interface import (
    CheckVersion,
    Create,
    Delete,
    Operation,
    SessionId,
    SetData,
)

_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_CHANGE = struct.Struct(">BQI")  # kind, session, number of operations
_OPERATION = struct.Struct(">BBi")  # kind, flags, version
_NODE = struct.Struct(">QQQqqiQIQ")
_IMAGE = struct.Struct(">QIQ")  # zxid, number of sessions, of nodes

_OPEN, _END, _END_ALL, _CHANGE_KIND = range(4)
_CREATE, _SET, _DELETE, _CHECK = range(4)
_EPHEMERAL, _SEQUENTIAL = 1, 2


def encode_command(command: Command) -> bytes:
    match command:
        case OpenSession():
            return bytes([_OPEN])
        case EndSession(session_id):
            return bytes([_END]) + _U64.pack(session_id)
        case EndAllSessions():
            return bytes([_END_ALL])
        case ZnodeChange(session_id, operations):
            parts = [_CHANGE.pack(_CHANGE_KIND, session_id, len(operations))]
            for operation in operations:
                parts += _operation_parts(operation)
            return b"".join(parts)


def decode_commands(content: bytes) -> Iterator[Command]:
    """All commands, to the end of the content."""
    reader = _Reader(content)
    while not reader.is_at_end:
        yield _read_command(reader)


def encode_image(image: Image) -> bytes:
    parts = [_IMAGE.pack(image.zxid, len(image.sessions), len(image.nodes))]
    parts += [_U64.pack(session_id) for session_id in sorted(image.sessions)]
    for path, node in image.nodes.items():
        parts += _text_parts(path.encode())
        parts += _text_parts(node.data)
        parts.append(_NODE.pack(*node[1:]))
    return b"".join(parts)


def decode_image(content: bytes) -> Image:
    reader = _Reader(content)
    zxid, session_count, node_count = reader.take(_IMAGE)
    sessions = frozenset(SessionId(reader.take(_U64)[0]) for _ in range(session_count))
    nodes: dict[str, Znode] = {}
    for _ in range(node_count):
        path = reader.take_bytes().decode()
        nodes[path] = Znode._make((reader.take_bytes(), *reader.take(_NODE)))
    return Image(zxid, nodes, sessions)


def _operation_parts(operation: Operation) -> Sequence[bytes]:
    path = operation.path.encode()
    match operation:
        case Create(data=data, ephemeral=ephemeral, sequential=sequential):
            flags = _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential
            return [_OPERATION.pack(_CREATE, flags, 0), *_text_parts(path), *_text_parts(data)]
        case SetData(data=data, version=version):
            return [_OPERATION.pack(_SET, 0, version), *_text_parts(path), *_text_parts(data)]
        case Delete(version=version):
            return [_OPERATION.pack(_DELETE, 0, version), *_text_parts(path)]
        case CheckVersion(version=version):
            return [_OPERATION.pack(_CHECK, 0, version), *_text_parts(path)]


def _text_parts(text: bytes) -> Sequence[bytes]:
    return (_U32.pack(len(text)), text)


def _read_command(reader: "_Reader") -> Command:
    kind = reader.peek()
    if kind == _CHANGE_KIND:
        _, session_id, count = reader.take(_CHANGE)
        return ZnodeChange(
            SessionId(session_id), tuple(_read_operation(reader) for _ in range(count))
        )
    reader.skip(1)
    if kind == _OPEN:
        return OpenSession()
    if kind == _END:
        return EndSession(SessionId(reader.take(_U64)[0]))
    if kind == _END_ALL:
        return EndAllSessions()
    raise ValueError(f"command of unknown kind {kind}; was it written by a newer version?")


def _read_operation(reader: "_Reader") -> Operation:
    kind, flags, version = reader.take(_OPERATION)
    path = reader.take_bytes().decode()
    if kind == _CREATE:
        return Create(
            path=path,
            data=reader.take_bytes(),
            ephemeral=bool(flags & _EPHEMERAL),
            sequential=bool(flags & _SEQUENTIAL),
        )
    if kind == _SET:
        return SetData(path=path, data=reader.take_bytes(), version=version)
    if kind == _DELETE:
        return Delete(path=path, version=version)
    if kind == _CHECK:
        return CheckVersion(path=path, version=version)
    raise ValueError(f"operation of unknown kind {kind}; was it written by a newer version?")


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._content)

    def peek(self) -> int:
        return self._content[self._position]

    def skip(self, length: int) -> None:
        self._position += length

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._content, self._position)
        self._position += layout.size
        return values

    def take_bytes(self) -> bytes:
        (length,) = self.take(_U32)
        start, self._position = self._position, self._position + length
        if self._position > len(self._content):
            raise ValueError(f"text of {length} bytes at {start} ends beyond its record")
        return self._content[start : self._position]
