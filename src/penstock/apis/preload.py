"""Loads what later requests would wait for: handlers and the schemas of every served version.

Only loads: when, and on which thread, is the broker's choice. The first use of a schema takes 2 to
10 ms, all of them 1.5 s.
"""

from collections.abc import Iterator

from penstock.apis.registry import APIS
from penstock.apis.response_shapes import response_shape
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.decoder import decoder_of
from penstock.protocol.encoder import encoder_of
from penstock.protocol.messages import get_request_schema, get_response_schema

# What a producer and a consumer ask on their way to their first record.
_ASKED_FIRST = (
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
# Read and written by position: no schema is needed for them.
_WITHOUT_REQUEST_SCHEMA = frozenset((ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS))
_WITHOUT_RESPONSE_SCHEMA = _WITHOUT_REQUEST_SCHEMA | {ApiKey.FETCH}


def load_ahead() -> Iterator[None]:
    """One small part with each step. Steps may run on a thread, beside the event loop."""
    for key in dict.fromkeys((*_ASKED_FIRST, *APIS)):
        api = APIS[key]
        yield
        for version in reversed(api.versions):  # newest first, as most clients ask
            if key not in _WITHOUT_REQUEST_SCHEMA:
                decoder_of(get_request_schema(key, version))
                yield
            if key not in _WITHOUT_RESPONSE_SCHEMA:
                encoder_of(get_response_schema(key, version))
                response_shape(key, version)
                yield
