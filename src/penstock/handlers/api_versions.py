"""ApiVersions (key 18): what this broker serves. Versions 0-4, and an answer to all others.

A client that asks in a version nobody serves gets version 0 with UNSUPPORTED_VERSION and the list,
so that it can ask again (KIP-511). The one API that needs no permission: it tells of the software,
not of the cluster. No features are finalized, so transactions stay at their first protocol.
"""

import re
import struct
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from penstock.handlers.api import Api, Request
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.first_requests import ApiVersionsRequest, read_api_versions_request
from penstock.protocol.unsigned_varint import encode_unsigned_varint

if TYPE_CHECKING:
    from penstock.handlers.services import Services

KEY = ApiKey.API_VERSIONS
_FIRST_WITH_THROTTLE = 1
_FIRST_FLEXIBLE = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_HEAD = struct.Struct(">ii")  # size and correlation id: the header is version 0 in all versions
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ENTRY = struct.Struct(">hhh")


def make_api(served: Mapping[ApiKey, range]) -> Api:
    """Of a broker that serves these, this API among them."""

    @cache
    def body(version: int, error: ErrorCode) -> bytes:
        return encode_body(version, error, {} if error is ErrorCode.INVALID_REQUEST else served)

    def answer(request: Request, services: "Services") -> None:
        asked = read_api_versions_request(request.message, request.version)
        _reply(request, body(request.version, _check_software(asked)))

    def answer_unsupported(request: Request, services: "Services") -> None:
        _reply(request, body(0, ErrorCode.UNSUPPORTED_VERSION))

    return Api(
        key=KEY,
        versions=served[KEY],
        direct=answer,
        unsupported=answer_unsupported,
        max_frame_bytes=1 << 20,
    )


def encode_body(version: int, error: ErrorCode, served: Mapping[ApiKey, range]) -> bytes:
    """By position: the first answer of a broker needs no schema."""
    is_flexible = version >= _FIRST_FLEXIBLE
    count = encode_unsigned_varint(len(served) + 1) if is_flexible else _INT32.pack(len(served))
    no_tags = b"\0" if is_flexible else b""
    no_throttle = _INT32.pack(0) if version >= _FIRST_WITH_THROTTLE else b""
    entries = (
        _ENTRY.pack(key, versions[0], versions[-1]) + no_tags
        for key, versions in sorted(served.items())
    )
    return b"".join((_INT16.pack(error), count, *entries, no_throttle, no_tags))


def _check_software(asked: ApiVersionsRequest) -> ErrorCode:
    for name in asked:
        if name is not None and _SOFTWARE.fullmatch(name) is None:
            return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _reply(request: Request, body: bytes) -> None:
    head = _HEAD.pack(len(body) + 4, request.correlation_id)
    request.exchange.reply([head + body])
