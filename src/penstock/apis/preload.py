"""Loads handlers and schemas of every served version, so that later requests need not wait.

The broker chooses when and on which thread. The first use of a schema takes 2 to 10 ms, all of
them 1.5 s.
"""

from collections.abc import Iterator

from penstock.apis.registry import APIS
from penstock.apis.response_shapes import response_shape
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.decoder import decoder_of
from penstock.protocol.encoder import encoder_of
from penstock.protocol.messages import get_request_schema, get_response_schema

# The requests of a producer and a consumer up to their first record.
_REQUESTED_FIRST = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.FETCH,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
)
# Encoded and decoded by position, so they need no schema.
_WITHOUT_REQUEST_SCHEMA = frozenset((ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS))
_WITHOUT_RESPONSE_SCHEMA = _WITHOUT_REQUEST_SCHEMA | {ApiKey.FETCH}


def load_ahead() -> Iterator[None]:
    """One small part per step. Steps may run on a thread beside the event loop."""
    for key in dict.fromkeys((*_REQUESTED_FIRST, *APIS)):
        api = APIS[key]
        yield
        for version in reversed(api.versions):  # newest first: most clients use it
            if key not in _WITHOUT_REQUEST_SCHEMA:
                decoder_of(get_request_schema(key, version))
                yield
            if key not in _WITHOUT_RESPONSE_SCHEMA:
                encoder_of(get_response_schema(key, version))
                response_shape(key, version)
                yield
