"""ApiVersions (key 18): the APIs that this broker serves. Versions 0-4, and a response to all
others.

A client that asks in an unsupported version gets version 0 with UNSUPPORTED_VERSION and the list,
so that it can ask again (KIP-511). This API alone needs no permission, because it describes the
software, not the cluster. Finalized features are those that clients may rely on with every broker
(KIP-584).
"""

import re
import struct
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.first_requests import ApiVersionsRequest, read_api_versions_request
from penstock.protocol.unsigned_varint import encode_unsigned_varint

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.API_VERSIONS
_FIRST_WITH_THROTTLE = 1
_FIRST_FLEXIBLE = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_HEAD = struct.Struct(">ii")  # size and correlation id: the header is version 0 in all versions
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ENTRY = struct.Struct(">hhh")
_RANGE = struct.Struct(">hh")
_FIRST_WITH_ANY_FEATURE = 4  # older clients fail on a feature that starts at level 0 (KAFKA-17492)
_FEATURES_EPOCH = struct.pack(">q", 1)  # constant while a broker runs
_SUPPORTED_TAG, _EPOCH_TAG, _FINALIZED_TAG = 0, 1, 2

Features = Mapping[str, range]  # supported levels; the last one is finalized
_NO_FEATURES: Features = {}


def make_api(served: Mapping[ApiKey, range], features: Features) -> Api:
    """The API of a broker that serves these, ApiVersions included."""

    @cache
    def body(version: int, error: ErrorCode) -> bytes:
        if error is ErrorCode.INVALID_REQUEST:
            return encode_body(version, error, {})
        return encode_body(version, error, served, features)

    def answer(request: Request, services: "Services") -> None:
        software = read_api_versions_request(request.message, request.version, request.budget)
        _reply(request, body(request.version, _check_software(software)))

    def answer_unsupported(request: Request, services: "Services") -> None:
        _reply(request, body(0, ErrorCode.UNSUPPORTED_VERSION))

    return Api(
        key=KEY,
        versions=served[KEY],
        direct=answer,
        unsupported=answer_unsupported,
    )


def encode_body(
    version: int,
    error: ErrorCode,
    served: Mapping[ApiKey, range],
    features: Features = _NO_FEATURES,
) -> bytes:
    """Encodes by position, because a broker's first response should need no schema."""
    is_flexible = version >= _FIRST_FLEXIBLE
    count = encode_unsigned_varint(len(served) + 1) if is_flexible else _INT32.pack(len(served))
    no_tags = b"\0" if is_flexible else b""
    no_throttle = _INT32.pack(0) if version >= _FIRST_WITH_THROTTLE else b""
    entries = (
        _ENTRY.pack(key, versions[0], versions[-1]) + no_tags
        for key, versions in sorted(served.items())
    )
    tags = _encode_features(version, features) if is_flexible else b""
    return b"".join((_INT16.pack(error), count, *entries, no_throttle, tags))


def _encode_features(version: int, features: Features) -> bytes:
    """The tagged fields at the end: supported, epoch, finalized."""
    supported = {
        name: (levels[0], levels[-1])
        for name, levels in features.items()
        if levels[0] > 0 or version >= _FIRST_WITH_ANY_FEATURE
    }
    finalized = {name: (levels[-1], levels[-1]) for name, levels in features.items()}
    tags = {}
    if supported:
        tags[_SUPPORTED_TAG] = _encode_levels(supported)
    if finalized:
        tags[_EPOCH_TAG] = _FEATURES_EPOCH
        tags[_FINALIZED_TAG] = _encode_levels(finalized)
    entries = (
        encode_unsigned_varint(tag) + encode_unsigned_varint(len(value)) + value
        for tag, value in tags.items()
    )
    return encode_unsigned_varint(len(tags)) + b"".join(entries)


def _encode_levels(levels: Mapping[str, tuple[int, int]]) -> bytes:
    entries = (
        encode_unsigned_varint(len(name.encode()) + 1) + name.encode() + _RANGE.pack(*pair) + b"\0"
        for name, pair in levels.items()
    )
    return encode_unsigned_varint(len(levels) + 1) + b"".join(entries)


def _check_software(software: ApiVersionsRequest) -> ErrorCode:
    for name in software:
        if name is not None and _SOFTWARE.fullmatch(name) is None:
            return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _reply(request: Request, body: bytes) -> None:
    head = _HEAD.pack(len(body) + 4, request.correlation_id)
    request.in_flight.reply([head + body])
