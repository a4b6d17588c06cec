"""Repairs malformed requests of widely used clients that Kafka tolerates, before they are decoded.

Each pattern is matched to the byte, so that everything else is decoded as strictly as before.
"""

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import Buffer

_CLUSTER_OPERATIONS = range(8, 11)  # the versions of Metadata with these flags
_RESERVED = bytes(4)


def mend(api_key: int, version: int, body: Buffer) -> Buffer:
    """librdkafka (at least up to 2.16) reserves four bytes for the number of topics, and leaves
    three of them in its flexible Metadata requests when it asks for all topics. Kafka reads the
    flags from them and ignores the rest."""
    if api_key != ApiKey.METADATA or version < ApiKey.METADATA.first_flexible_version:
        return body
    flags = 3 if version in _CLUSTER_OPERATIONS else 2
    length = len(_RESERVED) + flags + 1  # and no tags
    if len(body) == length and body[: len(_RESERVED)] == _RESERVED:
        return memoryview(body)[len(_RESERVED) - 1 :]
    return body
