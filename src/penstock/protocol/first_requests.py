"""Decodes ApiVersions and Metadata, a connection's first requests, by position.

So a broker's first client does not wait until message classes and decoders are generated.
Invariant: the same values, and the same errors, as from the generic decoder.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeVar
from uuid import UUID

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import Buffer
from penstock.protocol.client_quirks import mend
from penstock.protocol.decoder import MAX_STRING_BYTES, skip_tags
from penstock.protocol.malformed import MalformedMessage, MalformedRequest, RequestOverLimit
from penstock.protocol.request_budget import STRUCT_ELEMENTS, RequestBudget
from penstock.protocol.unsigned_varint import read_unsigned_varint
from penstock.protocol.wire_types import uuid_of

_FIRST_WITH_SOFTWARE = 3  # of ApiVersions, and the first flexible one
_FIRST_WITH_NULL = 1  # of Metadata, like those below
_FIRST_WITH_CREATION = 4
_FIRST_WITH_OPERATIONS = 8
_FIRST_FLEXIBLE = 9
_FIRST_WITH_TOPIC_ID = 10
_CLUSTER_OPERATIONS = range(8, 11)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

Request = TypeVar("Request")


class ApiVersionsRequest(NamedTuple):
    client_software_name: str | None  # None before version 3
    client_software_version: str | None


class RequestedTopic(NamedTuple):
    """A topic by name or by id; a client may send neither or both."""

    name: str | None
    topic_id: UUID | None = None


class MetadataRequest(NamedTuple):
    topics: list[RequestedTopic] | None  # None: all
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


def read_api_versions_request(
    body: Buffer, version: int, budget: RequestBudget | None = None
) -> ApiVersionsRequest:
    return _read(ApiKey.API_VERSIONS, version, _Reader(body, budget), _read_software)


def read_metadata_request(
    body: Buffer, version: int, budget: RequestBudget | None = None
) -> MetadataRequest:
    mended = mend(ApiKey.METADATA, version, body)
    return _read(ApiKey.METADATA, version, _Reader(mended, budget), _read_question)


class _Reader:
    """Reads a body; `_read` translates its exceptions other than MalformedMessage."""

    __slots__ = ("budget", "end", "position", "view")

    def __init__(self, body: Buffer, budget: RequestBudget | None) -> None:
        self.budget = budget or RequestBudget()
        self.view = memoryview(body)
        self.position = 0
        self.end = len(self.view)

    def read(self, fixed: struct.Struct) -> int:
        value: int = fixed.unpack_from(self.view, self.position)[0]
        self.position += fixed.size
        return value

    def read_flag(self) -> bool:
        self.position += 1
        return self.view[self.position - 1] != 0

    def read_length(self, classic: struct.Struct, *, is_flexible: bool) -> int:
        """-1 means null."""
        if not is_flexible:
            return self.read(classic)
        length, self.position = read_unsigned_varint(self.view, self.position)
        return length - 1

    def read_text(self, *, is_flexible: bool) -> str | None:
        length = self.read_length(_INT16, is_flexible=is_flexible)
        if length == -1:
            return None
        if not 0 <= length <= min(MAX_STRING_BYTES, self.end - self.position):
            raise MalformedMessage(f"a string claims {length} bytes, more than allowed or left")
        return str(self.take(length), "utf-8")

    def take(self, length: int) -> memoryview:
        start = self.position
        self.position += length
        if self.position > self.end:
            raise IndexError
        return self.view[start : self.position]

    def skip_tags(self) -> None:
        self.position = skip_tags(self.view, self.position, self.end, self.budget)


def _read(
    key: ApiKey, version: int, reader: _Reader, read: Callable[[_Reader, int], Request]
) -> Request:
    try:
        request = read(reader, version)
    except (struct.error, IndexError):
        raise _malformed(key, version, f"ends early, after {reader.end} bytes") from None
    except UnicodeDecodeError as error:
        raise _malformed(key, version, f"has a string that is not UTF-8: {error}") from None
    except RequestOverLimit:
        raise
    except MalformedMessage as error:
        raise _malformed(key, version, f"is malformed: {error}") from None
    if reader.position != reader.end:
        raise _malformed(key, version, f"ends at byte {reader.position} of {reader.end}")
    return request


def _malformed(key: ApiKey, version: int, reason: str) -> MalformedRequest:
    return MalformedRequest(f"{key.title} v{version} {reason}")


def _read_software(reader: _Reader, version: int) -> ApiVersionsRequest:
    if version < _FIRST_WITH_SOFTWARE:
        return ApiVersionsRequest(None, None)
    name = reader.read_text(is_flexible=True)
    number = reader.read_text(is_flexible=True)
    if name is None or number is None:
        raise MalformedMessage("the client's software is null")
    reader.skip_tags()
    return ApiVersionsRequest(name, number)


def _read_question(reader: _Reader, version: int) -> MetadataRequest:
    topics = _read_topics(reader, version)
    creates = version < _FIRST_WITH_CREATION or reader.read_flag()
    of_cluster = version in _CLUSTER_OPERATIONS and reader.read_flag()
    of_topics = version >= _FIRST_WITH_OPERATIONS and reader.read_flag()
    if version >= _FIRST_FLEXIBLE:
        reader.skip_tags()
    return MetadataRequest(topics, creates, of_cluster, of_topics)


def _read_topics(reader: _Reader, version: int) -> list[RequestedTopic] | None:
    is_flexible = version >= _FIRST_FLEXIBLE
    count = reader.read_length(_INT32, is_flexible=is_flexible)
    if count == -1 and version >= _FIRST_WITH_NULL:
        return None
    if not 0 <= count <= reader.end - reader.position:  # each takes at least one byte
        raise MalformedMessage(f"{count} topics do not fit in {reader.end} bytes")
    reader.budget.charge("topics", count * STRUCT_ELEMENTS)
    return [_read_topic(reader, version, is_flexible=is_flexible) for _ in range(count)]


def _read_topic(reader: _Reader, version: int, *, is_flexible: bool) -> RequestedTopic:
    topic_id = uuid_of(bytes(reader.take(16))) if version >= _FIRST_WITH_TOPIC_ID else None
    name = reader.read_text(is_flexible=is_flexible)
    if name is None and version < _FIRST_WITH_TOPIC_ID:
        raise MalformedMessage("a topic's name is null")
    if is_flexible:
        reader.skip_tags()
    return RequestedTopic(name, topic_id)
