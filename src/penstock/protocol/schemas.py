"""Message classes by API key and version, made on first use from Kafka's message definitions.

No bytes here: the encoder and the decoder generate their code from `describe_fields`. See
docs/decisions/0012-wire-messages.md.
"""

from functools import cache

from penstock.protocol.api_keys import describe_api, find_api_key
from penstock.protocol.malformed import UnknownSchema
from penstock.protocol.message_class import REQUIRED, STRUCT, FieldShape, WireMessage

__all__ = [
    "REQUIRED",
    "STRUCT",
    "FieldShape",
    "WireMessage",
    "describe_fields",
    "get_request_schema",
    "get_response_schema",
]


@cache
def get_request_schema(api_key: int, version: int) -> type[WireMessage]:
    return _get_schema(api_key, version, "Request")


@cache
def get_response_schema(api_key: int, version: int) -> type[WireMessage]:
    return _get_schema(api_key, version, "Response")


def _get_schema(api_key: int, version: int, suffix: str) -> type[WireMessage]:
    from penstock.protocol.schema_table import find_message_schema  # not needed at start-up

    key = find_api_key(api_key)
    schema = None if key is None else find_message_schema(key.title + suffix)
    if key is None or schema is None or version not in schema.versions:
        raise UnknownSchema(f"there is no schema for {describe_api(api_key, version)}")
    return schema.make_class(key, version)


def describe_fields(entity: type[WireMessage]) -> tuple[FieldShape, ...]:
    return entity.__fields__
