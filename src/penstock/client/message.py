"""Records as a program sees them: those that were read, and the metadata of those that were
sent."""

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int  # -1: it has none


class RecordMetadata(NamedTuple):
    topic: str
    partition: int
    offset: int  # -1 with acks=0: nobody said
    timestamp_ms: int  # -1: not known
