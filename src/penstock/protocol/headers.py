"""Request and response headers, in all their versions.

Invariant: the header's version follows from API key and version alone. Two exceptions are Kafka's:
a request's client id is never compact, and an ApiVersions response always has header v0 (KIP-511).
"""

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.model.values import new_tuple
from penstock.protocol.api_keys import FIRST_FLEXIBLE_VERSIONS, ApiKey, describe_api
from penstock.protocol.batch import Buffer
from penstock.protocol.decoder import skip_tags
from penstock.protocol.malformed import (
    MalformedMessage,
    MalformedRequest,
    MalformedResponse,
    UnencodableMessage,
    UnknownApiKey,
)
from penstock.protocol.request_budget import RequestBudget

_REQUEST: Final = struct.Struct(">hhih")  # key, version, correlation id, length of the client id
_CORRELATION: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"
_MAX_TAGGED_FIELDS: Final = 100  # no client sends any


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    # A view of the frame; writable if the frame is. Quoted, because mypyc cannot load the class.
    body: "memoryview"


def read_request_header(
    frame: Buffer, flexible_from: Mapping[int, int] = FIRST_FLEXIBLE_VERSIONS
) -> RequestHeader:
    """The header of a frame (without its size). Unsupported versions are read as well, because a
    client that sends ApiVersions in an unknown version is answered in version 0.

    `flexible_from` maps a key to its first flexible version; a key that it lacks is malformed.
    """
    view = memoryview(frame)
    try:
        api_key, version, correlation_id, length = _REQUEST.unpack_from(view)
    except struct.error:
        raise MalformedRequest(f"a frame of {len(view)} bytes is too short for a header") from None
    first_flexible = flexible_from.get(api_key)
    if first_flexible is None:
        raise UnknownApiKey(api_key)
    try:
        client_id, position = _read_client_id(view, length)
        if version >= first_flexible:
            if position < len(view) and not view[position]:
                position += 1  # nearly always: no tagged fields
            else:
                position = skip_tags(
                    view, position, len(view), RequestBudget(0, _MAX_TAGGED_FIELDS)
                )
    except MalformedMessage as error:
        raise MalformedRequest(f"header of {describe_api(api_key, version)}: {error}") from None
    return new_tuple(RequestHeader, (api_key, version, correlation_id, client_id, view[position:]))


def _read_client_id(view: memoryview, length: int) -> tuple[str | None, int]:
    start = _REQUEST.size
    if length < 0:
        if length != -1:
            raise MalformedMessage(f"client id has the length {length}")
        return None, start
    end = start + length
    if end > len(view):
        raise MalformedMessage(f"client id claims {length} bytes, {len(view) - start} are there")
    try:
        return str(view[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"client id is not UTF-8: {error}") from None


def encode_request_header(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    flexible_from: Mapping[int, int] = FIRST_FLEXIBLE_VERSIONS,
) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = _NO_TAGS if version >= flexible_from[api_key] else b""
    try:
        return _REQUEST.pack(api_key, version, correlation_id, length) + name + tags
    except struct.error as error:
        raise UnencodableMessage(f"request header cannot be written: {error}") from None


def encode_response_header(
    api_key: int,
    version: int,
    correlation_id: int,
    flexible_from: Mapping[int, int] = FIRST_FLEXIBLE_VERSIONS,
) -> bytes:
    if _has_response_tags(api_key, version, flexible_from):
        return _CORRELATION.pack(correlation_id) + _NO_TAGS
    return _CORRELATION.pack(correlation_id)


def read_response_header(
    frame: Buffer,
    api_key: int,
    version: int,
    flexible_from: Mapping[int, int] = FIRST_FLEXIBLE_VERSIONS,
) -> tuple[int, memoryview]:
    """Correlation id and body of a response to the request of this key and version."""
    view = memoryview(frame)
    try:
        (correlation_id,) = _CORRELATION.unpack_from(view)
        position = _CORRELATION.size
        if _has_response_tags(api_key, version, flexible_from):
            position = skip_tags(view, position, len(view), RequestBudget.unbounded())
    except (struct.error, MalformedMessage) as error:
        title = describe_api(api_key, version)
        raise MalformedResponse(f"header of the response to {title}: {error}") from None
    return correlation_id, view[position:]


def peek_correlation_id(frame: Buffer) -> int:
    """The correlation id of a response, needed before its API is known."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
    except struct.error:
        raise MalformedResponse(f"a response of {len(frame)} bytes has no header") from None
    return int(correlation_id)


def _has_response_tags(api_key: int, version: int, flexible_from: Mapping[int, int]) -> bool:
    return api_key != ApiKey.API_VERSIONS and version >= flexible_from[api_key]
