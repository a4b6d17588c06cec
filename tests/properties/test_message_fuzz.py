"""Damaged messages: any bytes decode to a message or raise MalformedMessage, never another error,
and memory stays in proportion to the bytes."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.profile import scaled
from tests.unit.protocol.message_samples import all_schemas, our_class, sample, title

from penstock.protocol.api_keys import FIRST_FLEXIBLE_VERSIONS
from penstock.protocol.decoder import decode
from penstock.protocol.encoder import encode
from penstock.protocol.headers import encode_request_header, read_request_header
from penstock.protocol.malformed import MalformedMessage, MalformedRequest
from penstock.protocol.messages import get_request_schema
from penstock.protocol.produce_request import VERSIONS, read_produce_request

INPUTS = scaled(test=10_000, verify=400_000, release=8_000_000)
PRODUCE_INPUTS = scaled(test=5_000, verify=100_000, release=2_000_000)

_COUNTS = [b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff", b"\0"]


def flip(data: bytearray, source: random.Random) -> None:
    if data:
        data[source.randrange(len(data))] = source.choice(
            (0, 1, 0x7F, 0x80, 0xFF, source.randrange(256))
        )


def cut(data: bytearray, source: random.Random) -> None:
    del data[source.randint(0, len(data)) :]


def insert(data: bytearray, source: random.Random) -> None:
    position = source.randint(0, len(data))
    data[position:position] = source.choice(_COUNTS)


def overwrite(data: bytearray, source: random.Random) -> None:
    position = source.randint(0, len(data))
    count = source.choice(_COUNTS)
    data[position : position + len(count)] = count


DAMAGES: list[Callable[[bytearray, random.Random], None]] = [flip, flip, cut, insert, overwrite]


def short_message(schema: type, source: random.Random) -> bytes:
    """The shortest of several messages that are not empty, so that damage hits structure, not
    payload."""
    encoded = [encode(sample(schema, source, width=2)) for _ in range(6)]
    return min((data for data in encoded if len(data) > 30), key=len, default=max(encoded, key=len))


def damaged(encoded: bytes, source: random.Random) -> bytes:
    data = bytearray(encoded)
    for _ in range(source.randint(1, 3)):
        source.choice(DAMAGES)(data, source)
    return bytes(data)


def test_damaged_messages_of_every_schema_are_read_or_refused() -> None:
    source = random.Random(11)
    rounds = max(1, INPUTS // len(all_schemas()))
    outcomes = {True: 0, False: 0}
    for schema in map(our_class, all_schemas()):
        encoded = short_message(schema, source)
        for _ in range(rounds):
            outcomes[survives(schema, damaged(encoded, source))] += 1
    assert min(outcomes.values()) > rounds  # both outcomes occurred


def survives(schema: Any, body: bytes) -> bool:
    try:
        message = decode(schema, body)
    except MalformedMessage:
        return False
    # A decoded message is a fixed point: encoded and decoded again, it is the same.
    written = encode(message)
    assert encode(decode(schema, written)) == written, title(schema)
    return True


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_produce_requests_read_in_place_as_the_decoder_reads_them(version: int) -> None:
    source = random.Random(version)
    schema = get_request_schema(0, version)
    understood = 0
    for number in range(PRODUCE_INPUTS // len(VERSIONS)):
        if number % 10 == 0:
            encoded = short_message(schema, source)
        body = damaged(encoded, source)
        request = in_place(body, version)
        assert request == by_decoder(schema, body)
        understood += request is not None
    assert understood > PRODUCE_INPUTS // len(VERSIONS) // 20


def in_place(body: bytes, version: int) -> Any:
    try:
        return tuple(read_produce_request(memoryview(body), version))
    except MalformedRequest:
        return None


def by_decoder(schema: Any, body: bytes) -> Any:
    """None for a malformed request, also for one that names a partition twice."""
    try:
        request = decode(schema, body)
    except MalformedMessage:
        return None
    topics = [
        (t.name, [(p.index, p.records) for p in t.partition_data]) for t in request.topic_data
    ]
    names = [(name, index) for name, entries in topics for index, _ in entries]
    if len(set(names)) != len(names):
        return None
    timeout_ms = round(request.timeout.total_seconds() * 1000)
    return request.transactional_id, request.acks, timeout_ms, topics


def test_damaged_headers_are_read_or_refused() -> None:
    source = random.Random(13)
    keys = list(FIRST_FLEXIBLE_VERSIONS)
    read = 0
    for _ in range(PRODUCE_INPUTS):
        header = encode_request_header(source.choice(keys), source.randint(0, 13), 1, "client")
        try:
            read_request_header(damaged(header + b"body", source))
        except MalformedRequest:
            continue
        read += 1
    assert 0 < read < PRODUCE_INPUTS
