"""Records that were read, and metadata of records that were sent, as plain values."""

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int  # -1: none


class RecordMetadata(NamedTuple):
    topic: str
    partition: int
    offset: int  # -1 with acks=0: unknown
    timestamp_ms: int  # -1: unknown
