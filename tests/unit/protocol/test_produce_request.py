"""Produce requests decoded in place: equal to kio's decoding, and strict about malformed ones."""

import random
import struct
from typing import Any

import pytest
from kio.serial import entity_reader
from tests.profile import scaled
from tests.unit.protocol.message_samples import kio_class, sample

from penstock.protocol.malformed import MalformedRequest, RequestOverLimit
from penstock.protocol.messages import encode, get_request_schema
from penstock.protocol.produce_request import (
    OLD_VERSIONS,
    VERSIONS,
    ProduceRequest,
    read_old_produce_request,
    read_produce_request,
)
from penstock.protocol.request_budget import STRUCT_ELEMENTS, RequestBudget
from penstock.protocol.unsigned_varint import encode_unsigned_varint

CLASSIC, FLEXIBLE = 3, 9


def read(body: bytes, version: int) -> ProduceRequest:
    return read_produce_request(memoryview(body), version)


def flat(request: Any) -> tuple[Any, ...]:
    """Convert kio's request to our shape."""
    topics = [
        (t.name, [(p.index, p.records) for p in t.partition_data]) for t in request.topic_data
    ]
    timeout_ms = round(request.timeout.total_seconds() * 1000)
    return request.transactional_id, request.acks, timeout_ms, topics


def with_distinct_partitions(request: Any) -> Any:
    topics = tuple(
        topic.__replace__(
            name=f"{number}{topic.name}",
            partition_data=tuple(
                entry.__replace__(index=index) for index, entry in enumerate(topic.partition_data)
            ),
        )
        for number, topic in enumerate(request.topic_data)
    )
    return request.__replace__(topic_data=topics)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_decoded_as_by_kio(version: int) -> None:
    schema = get_request_schema(0, version)
    read_by_kio: Any = entity_reader(kio_class(schema))
    source = random.Random(version)
    for _ in range(scaled(test=50, verify=1000, release=10_000)):
        body = encode(with_distinct_partitions(sample(schema, source, width=4)))
        assert tuple(read(body, version)) == flat(read_by_kio(body, 0)[0])


def request_body(version: int, *topics: tuple[str, list[tuple[int, bytes | None]]]) -> bytes:
    schema: Any = get_request_schema(0, version)
    message = sample(schema, random.Random(1), width=1)
    topic, entry = _classes(version)
    return encode(
        message.__replace__(
            topic_data=tuple(
                topic(
                    name=name,
                    partition_data=tuple(entry(index=i, records=r) for i, r in entries),
                )
                for name, entries in topics
            ),
        )
    )


def _classes(version: int) -> tuple[Any, Any]:
    topic: Any = get_request_schema(0, version).__fields__[-1].entity
    return topic, topic.__fields__[-1].entity


@pytest.mark.parametrize("version", [CLASSIC, FLEXIBLE])
def test_records_are_writable_views_of_the_buffer(version: int) -> None:
    buffer = bytearray(b"head" + request_body(version, ("t", [(0, b"one"), (1, b"two" * 100)])))
    body = memoryview(buffer)[4:]
    ((_, ((_, first), (_, second))),) = read_produce_request(body, version).topics
    assert first is not None
    assert second is not None
    assert first.obj is second.obj is buffer
    first[:] = b"ONE"
    second[:3] = b"TWO"
    assert b"ONE" in buffer
    assert b"TWOtwo" in buffer


@pytest.mark.parametrize("version", [CLASSIC, FLEXIBLE])
def test_null_and_empty_records_differ(version: int) -> None:
    body = request_body(version, ("t", [(0, None), (1, b""), (2, None)]))
    ((_, entries),) = read(body, version).topics
    assert entries == [(0, None), (1, b""), (2, None)]


@pytest.mark.parametrize("version", [CLASSIC, FLEXIBLE])
def test_a_duplicate_partition_is_malformed(version: int) -> None:
    body = request_body(version, ("t", [(0, b"a"), (7, b"b"), (7, b"c")]))
    with pytest.raises(MalformedRequest, match="t-7 occurs twice"):
        read(body, version)


@pytest.mark.parametrize("version", [CLASSIC, FLEXIBLE])
def test_a_partition_repeated_in_another_entry_of_its_topic_is_malformed(version: int) -> None:
    body = request_body(version, ("t", [(0, b"a")]), ("u", [(0, b"b")]), ("t", [(0, b"c")]))
    with pytest.raises(MalformedRequest, match="t-0 occurs twice"):
        read(body, version)


@pytest.mark.parametrize("version", [CLASSIC, FLEXIBLE])
def test_a_topic_in_two_entries_with_other_partitions_is_decoded(version: int) -> None:
    body = request_body(version, ("t", [(0, b"a")]), ("t", [(1, b"b")]))
    topics: Any = read(body, version).topics
    assert topics == [("t", [(0, b"a")]), ("t", [(1, b"b")])]


@pytest.mark.parametrize("version", [CLASSIC, FLEXIBLE])
def test_a_truncated_request_is_malformed(version: int) -> None:
    body = request_body(version, ("t", [(0, b"abc"), (1, None)]), ("u", [(0, b"x" * 200)]))
    for end in range(len(body)):
        with pytest.raises(MalformedRequest):
            read(body[:end], version)


@pytest.mark.parametrize("version", [CLASSIC, FLEXIBLE])
def test_a_trailing_byte_is_malformed(version: int) -> None:
    with pytest.raises(MalformedRequest, match="ends at byte"):
        read(request_body(version, ("t", [(0, b"a")])) + b"\0", version)


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_old_versions_are_version_3_without_the_transactional_id(version: int) -> None:
    acks_timeout = b"\0\1" + b"\0\0\3\xe8"
    topics = b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2"
    partitions = b"\0\0\0\7" + b"\0\0\0\3abc" + b"\0\0\0\x08" + b"\xff\xff\xff\xff"
    body = acks_timeout + topics + partitions
    request: Any = read_old_produce_request(memoryview(body), version)
    assert request == (None, 1, 1000, [("t", [(7, b"abc"), (8, None)])])
    assert request == read(b"\xff\xff" + body, 3)
    for end in range(len(body)):
        with pytest.raises(MalformedRequest, match=f"Produce v{version} "):
            read_old_produce_request(memoryview(body[:end]), version)
    with pytest.raises(MalformedRequest, match="ends at byte"):
        read_old_produce_request(memoryview(body + b"\0"), version)


def test_unknown_tagged_fields_are_skipped_at_every_depth() -> None:
    tags = b"\2\x05\2xx\x07\0"
    head = b"\0" + struct.pack(">hi", -1, 1000)
    partition = struct.pack(">i", 4) + b"\4abc" + tags
    body = head + b"\2" + b"\2t" + b"\2" + partition + tags + tags
    request: Any = read(body, FLEXIBLE)
    assert request == (None, -1, 1000, [("t", [(4, b"abc")])])


CLASSIC_HEAD = struct.pack(">hhi", -1, 1, 1000)
FLEXIBLE_HEAD = b"\0" + struct.pack(">hi", 1, 1000)
HUGE = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    ("version", "body"),
    [
        pytest.param(CLASSIC, struct.pack(">hhi", -2, 1, 1) + b"\0\0\0\0", id="negative id"),
        pytest.param(CLASSIC, CLASSIC_HEAD + b"\xff\xff\xff\xff", id="null topics"),
        pytest.param(CLASSIC, CLASSIC_HEAD + b"\x7f\xff\xff\xff", id="many topics"),
        pytest.param(CLASSIC, CLASSIC_HEAD + b"\0\0\0\1\xff\xff\0\0\0\0", id="null name"),
        pytest.param(CLASSIC, CLASSIC_HEAD + b"\0\0\0\1\0\1\xff\0\0\0\0", id="name no UTF-8"),
        pytest.param(CLASSIC, CLASSIC_HEAD + b"\0\0\0\1\0\1t\xff\xff\xff\xff", id="null parts"),
        pytest.param(CLASSIC, CLASSIC_HEAD + b"\0\0\0\1\0\1t\x7f\xff\xff\xff", id="many parts"),
        pytest.param(
            CLASSIC,
            CLASSIC_HEAD + b"\0\0\0\1\0\1t\0\0\0\1" + struct.pack(">ii", 0, -2),
            id="negative records",
        ),
        pytest.param(
            CLASSIC,
            CLASSIC_HEAD + b"\0\0\0\1\0\1t\0\0\0\1" + struct.pack(">ii", 0, 2**31 - 1),
            id="long records",
        ),
        pytest.param(FLEXIBLE, FLEXIBLE_HEAD + b"\0\0", id="null topics, flexible"),
        pytest.param(FLEXIBLE, FLEXIBLE_HEAD + HUGE, id="many topics, flexible"),
        pytest.param(FLEXIBLE, FLEXIBLE_HEAD + b"\2\0\1\0\0", id="null name, flexible"),
        pytest.param(FLEXIBLE, FLEXIBLE_HEAD + b"\2\2t\0\0\0", id="null parts, flexible"),
        pytest.param(FLEXIBLE, FLEXIBLE_HEAD + b"\2\2t" + HUGE, id="many parts, flexible"),
        pytest.param(
            FLEXIBLE, FLEXIBLE_HEAD + b"\2\2t\2\0\0\0\0" + HUGE + b"\0" * 9, id="long, flexible"
        ),
        pytest.param(FLEXIBLE, b"\xff" * 12, id="endless varint"),
    ],
)
def test_impossible_lengths_and_counts_are_malformed(version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequest, match=rf"Produce v{version}"):
        read(body, version)


@pytest.mark.parametrize("version", [CLASSIC, FLEXIBLE])
def test_partitions_are_bounded_in_number(version: int) -> None:
    """Records may be large, but every entry costs time and memory, even without records."""

    def naming(topics: int, partitions: int) -> bytes:
        entries: list[tuple[int, bytes | None]] = [(number, None) for number in range(partitions)]
        return request_body(version, *((str(number), entries) for number in range(topics)))

    def read_within(entries: int, body: bytes) -> ProduceRequest:
        budget = RequestBudget(entries * STRUCT_ELEMENTS)
        return read_produce_request(memoryview(body), version, budget)

    assert len(read_within(100, naming(1, 99)).topics[0][1]) == 99
    assert len(read_within(100, naming(50, 1)).topics) == 50
    for topics, partitions in ((1, 100), (101, 0), (51, 1), (2, 50)):
        with pytest.raises(RequestOverLimit, match="more than 200 elements"):
            read_within(100, naming(topics, partitions))


def test_tagged_fields_are_bounded_in_number() -> None:
    body = request_body(FLEXIBLE, ("t", [(0, None)]))[:-1]  # without the count of its own tags

    def tagged(count: int) -> bytes:
        fields = b"".join(encode_unsigned_varint(number) + b"\0" for number in range(count))
        return body + encode_unsigned_varint(count) + fields

    budget = RequestBudget(max_tagged_fields=200)
    assert read_produce_request(memoryview(tagged(200)), FLEXIBLE, budget).topics
    with pytest.raises(RequestOverLimit, match="more than 200 tagged fields"):
        read_produce_request(
            memoryview(tagged(201)), FLEXIBLE, RequestBudget(max_tagged_fields=200)
        )
