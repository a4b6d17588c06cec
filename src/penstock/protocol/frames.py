"""Frames of a connection: a size, a header and a body. No sockets here.

Invariant: a frame's size counts every byte after the size itself, file slices included.
"""

import struct
from typing import Any, Final

from penstock.protocol.encoder import encode_parts
from penstock.protocol.headers import encode_request_header, encode_response_header
from penstock.protocol.malformed import MalformedMessage, UnencodableMessage
from penstock.protocol.message_class import WireMessage

SIZE_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 2**31 - 1  # as many as the size can say
_TLS_HANDSHAKE: Final = 0x1603  # what a client of TLS sends first, read as the size of a frame
_SIZE: Final = struct.Struct(">i")
_API_KEY: Final = struct.Struct(">h")


class FrameSizeRefused(MalformedMessage):
    """The frame size is invalid or above the limit: nothing was received."""


def read_frame_size(
    buffer: bytes | bytearray | memoryview, position: int = 0, *, max_bytes: int = MAX_FRAME_BYTES
) -> int:
    """The frame's size from its first four bytes, checked before the rest is received."""
    size: int = _SIZE.unpack_from(buffer, position)[0]
    if size <= 0:
        raise FrameSizeRefused(
            f"a frame cannot have {size} bytes: this client does not speak Kafka"
        )
    if size > max_bytes:
        check_frame_size(size, max_bytes=max_bytes)
    return size


def check_frame_size(size: int, *, max_bytes: int) -> None:
    if size > max_bytes and size >> 16 == _TLS_HANDSHAKE:
        raise FrameSizeRefused(
            "these bytes begin a TLS handshake: the client uses TLS, and this listener does not"
        )
    if size > max_bytes:
        raise FrameSizeRefused(
            f"a frame of {size} bytes is above the limit of {max_bytes}: raise "
            "socket.request.max.bytes, unless this client does not speak Kafka's protocol"
        )


def peek_api_key(head: memoryview) -> int:
    """The API key of a request from the first two bytes after its size."""
    (api_key,) = _API_KEY.unpack_from(head)
    return int(api_key)


def encode_request_frame(
    message: WireMessage, *, correlation_id: int, client_id: str | None
) -> bytes:
    header = encode_request_header(
        message.__api_key__, message.__version__, correlation_id, client_id
    )
    return b"".join(frame_parts([header, *encode_parts(message)]))


def encode_response_frame(message: WireMessage, *, correlation_id: int) -> bytes:
    return b"".join(encode_response_parts(message, correlation_id=correlation_id))


def encode_response_parts(message: WireMessage, *, correlation_id: int) -> list[Any]:
    """The frame in few parts: bytes, and between them `records` that are not bytes."""
    header = encode_response_header(message.__api_key__, message.__version__, correlation_id)
    return join_bytes(frame_parts([header, *encode_parts(message)]))


def frame_parts(parts: list[Any]) -> list[Any]:
    """The parts with their size in front."""
    size = sum(map(len, parts))
    try:
        return [_SIZE.pack(size), *parts]
    except struct.error:
        raise UnencodableMessage(f"a frame cannot hold {size} bytes") from None


def join_bytes(parts: list[Any]) -> list[Any]:
    """Join adjacent bytes; other parts (file slices, views) stay unchanged."""
    joined: list[Any] = []
    pending: list[bytes] = []
    for part in parts:
        if type(part) is bytes:
            pending.append(part)
            continue
        if pending:
            joined.append(b"".join(pending))
            pending = []
        joined.append(part)
    if pending:
        joined.append(b"".join(pending))
    return joined
