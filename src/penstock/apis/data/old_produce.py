"""Produce, versions 0-2: every partition is refused, because its message format is unsupported.

These versions carry message formats 0 and 1, which are not written here. They are served with that
error because librdkafka 2.0 silently sends gzip, snappy and lz4 uncompressed to brokers that do not
list version 0 (KAFKA-18659), and because an error tells old clients more than a closed connection.
Version 1 added the throttle time, 2 the append time.
"""

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.apis.access import allows_topic
from penstock.apis.api import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.produce_request import TopicRecords, read_old_produce_request
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

FIRST_WITH_THROTTLE_TIME = 1
FIRST_WITH_APPEND_TIME = 2

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">ihq")  # number, error, base offset
_PARTITION_2 = struct.Struct(">ihqq")  # and time of append
_UNKNOWN = -1
_NO_THROTTLE_TIME = bytes(4)


def refuse_old_formats(request: Request, services: "Services") -> None:
    produced = read_old_produce_request(request.message, request.version, request.budget)
    codes = [_answer_topic(request, services, topic) for topic, _ in produced.topics]
    if produced.acks != 0:
        body = _encode(request.version, produced.topics, codes)
        request.in_flight.reply(request.frame_body([body]))
    elif codes:
        request.in_flight.close(
            f"a message for {produced.topics[0][0]} with acks=0 was refused with {codes[0].name}: "
            f"Produce v{request.version} has an unsupported message format; use a client "
            "of Kafka 0.11 or later"
        )
    else:
        request.in_flight.reply_nothing()


def _answer_topic(request: Request, services: "Services", topic: str) -> ErrorCode:
    if not allows_topic(request, services, AclOperation.WRITE, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def _encode(version: int, topics: Sequence[TopicRecords], codes: Sequence[ErrorCode]) -> bytes:
    pieces = [_INT32.pack(len(topics))]
    for (name, entries), code in zip(topics, codes, strict=True):
        encoded = name.encode()
        pieces += (_INT16.pack(len(encoded)), encoded, _INT32.pack(len(entries)))
        for index, _ in entries:
            if version >= FIRST_WITH_APPEND_TIME:
                pieces.append(_PARTITION_2.pack(index, code, _UNKNOWN, _UNKNOWN))
            else:
                pieces.append(_PARTITION.pack(index, code, _UNKNOWN))
    if version >= FIRST_WITH_THROTTLE_TIME:
        pieces.append(_NO_THROTTLE_TIME)
    return b"".join(pieces)
