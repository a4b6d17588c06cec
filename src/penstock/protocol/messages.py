"""Requests and responses by API key and version: bytes to messages and back.

No sockets here; which versions are served is decided by `apis.registry`.
"""

from typing import Any

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import Buffer
from penstock.protocol.client_quirks import mend
from penstock.protocol.decoder import decode
from penstock.protocol.encoder import encode, encode_parts
from penstock.protocol.malformed import (
    MalformedMessage,
    MalformedRequest,
    MalformedResponse,
    RequestOverLimit,
)
from penstock.protocol.request_budget import RequestBudget
from penstock.protocol.schemas import get_request_schema, get_response_schema

__all__ = [
    "decode_request",
    "decode_response",
    "encode",
    "encode_parts",
    "get_request_schema",
    "get_response_schema",
    "preload",
]


_MENDED = int(ApiKey.METADATA)  # a call for every other request costs more than this comparison


def decode_request(
    api_key: int, version: int, body: Buffer, budget: RequestBudget | None = None
) -> Any:
    """Decode a request body; `records` are views of `body`.

    Raises MalformedRequest for malformed bytes, RequestOverLimit for more than the budget (without
    one, the default), UnknownSchema for an unknown version.
    """
    schema = get_request_schema(api_key, version)
    try:
        if api_key == _MENDED:
            body = mend(api_key, version, body)
        return decode(schema, body, budget or RequestBudget())
    except RequestOverLimit:
        raise
    except MalformedMessage as error:
        raise MalformedRequest(str(error)) from None


def decode_response(api_key: int, version: int, body: Buffer) -> Any:
    """Like `decode_request`, for responses; raises MalformedResponse."""
    schema = get_response_schema(api_key, version)
    try:
        return decode(schema, body)
    except MalformedMessage as error:
        raise MalformedResponse(str(error)) from None


def preload(versions: dict[ApiKey, range]) -> None:
    """Generate these message classes now, so that no client waits for them."""
    for api_key, served in versions.items():
        for version in served:
            get_request_schema(api_key, version)
            get_response_schema(api_key, version)
