"""Requests and responses by API key and version: bytes to messages and back.

No sockets here; which versions are served is decided by `apis.registry`.
"""

from typing import Any

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import Buffer
from penstock.protocol.client_quirks import mend
from penstock.protocol.decoder import decode
from penstock.protocol.encoder import encode, encode_parts
from penstock.protocol.malformed import MalformedMessage, MalformedRequest, MalformedResponse
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


def decode_request(api_key: int, version: int, body: Buffer) -> Any:
    """Decode a request body; `records` are views of `body`.

    Raises MalformedRequest for malformed bytes, UnknownSchema for an unknown version.
    """
    schema = get_request_schema(api_key, version)
    try:
        return decode(schema, mend(api_key, version, body))
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
