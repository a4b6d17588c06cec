"""ApiVersions (key 18): what this broker serves. Versions 0-4, and an answer to all others.

A client that asks in a version nobody serves gets version 0 with UNSUPPORTED_VERSION and the list,
so that it can ask again (KIP-511). The one API that needs no permission: it tells of the software,
not of the cluster. No features are finalized, so transactions stay at their first protocol.
"""

import re
import struct
from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from penstock.handlers.api import Api, Request
from penstock.handlers.shapes import response_shape
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import decode_request, encode, wire_error

if TYPE_CHECKING:
    from penstock.handlers.services import Services

KEY = ApiKey.API_VERSIONS
VERSIONS = range(5)
_FIRST_WITH_SOFTWARE = 3  # name and version of the client
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_HEAD = struct.Struct(">ii")  # size and correlation id: the header is version 0 in all versions


def make_api(others: Iterable[Api]) -> Api:
    """Of a broker that serves the others and this one."""
    served = {api.key: api.versions for api in others} | {KEY: VERSIONS}

    @cache
    def body(version: int, error: ErrorCode) -> bytes:
        shape = response_shape(KEY, version)
        listed = () if error is ErrorCode.INVALID_REQUEST else sorted(served.items())
        keys = tuple(
            shape["api_keys"](api_key=key.value, min_version=range_[0], max_version=range_[-1])
            for key, range_ in listed
        )
        message = shape(error_code=wire_error(error), api_keys=keys, throttle_time=timedelta())
        return encode(message)

    def answer(request: Request, services: "Services") -> None:
        message = decode_request(KEY, request.version, request.message)
        _reply(request, body(request.version, _check_software(request.version, message)))

    def answer_unsupported(request: Request, services: "Services") -> None:
        _reply(request, body(0, ErrorCode.UNSUPPORTED_VERSION))

    return Api(
        key=KEY,
        versions=VERSIONS,
        direct=answer,
        unsupported=answer_unsupported,
        max_frame_bytes=1 << 20,
    )


def _check_software(version: int, message: object) -> ErrorCode:
    if version < _FIRST_WITH_SOFTWARE:
        return ErrorCode.NONE
    for name in ("client_software_name", "client_software_version"):
        if _SOFTWARE.fullmatch(getattr(message, name)) is None:
            return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _reply(request: Request, body: bytes) -> None:
    head = _HEAD.pack(len(body) + 4, request.correlation_id)
    request.exchange.reply([head + body])
