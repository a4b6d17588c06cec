"""Decoding gives what kio's decoder gives, and malformed messages are refused."""

import random
import struct
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from kio.serial import entity_reader
from tests.profile import scaled
from tests.unit.protocol.message_samples import all_schemas, our_class, ours, sample, samples, title

from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.decoder import decode
from penstock.protocol.encoder import encode
from penstock.protocol.malformed import (
    MalformedMessage,
    MalformedRequest,
    MalformedResponse,
    UnknownSchema,
)
from penstock.protocol.message_class import WireMessage
from penstock.protocol.messages import (
    decode_request,
    decode_response,
    get_request_schema,
    get_response_schema,
    preload,
)

FetchRequest = get_request_schema(1, 12)
FetchResponse = get_response_schema(1, 12)
HeartbeatResponse = get_response_schema(12, 0)
MetadataRequestV1 = get_request_schema(3, 1)
MetadataRequestV9 = get_request_schema(3, 9)
OffsetCommitRequest = get_request_schema(8, 2)
ProduceResponse = get_response_schema(0, 3)


def test_every_message_is_decoded_as_by_kio() -> None:
    source = random.Random(2)
    for schema in all_schemas():
        read_by_kio: Any = entity_reader(schema)
        for message in samples(schema, source, scaled(test=4, verify=30, release=200)):
            encoded = encode(ours(message))
            assert decode(our_class(schema), encoded) == ours(message), title(schema)
            assert read_by_kio(encoded, 0) == (message, len(encoded)), title(schema)


def test_a_decoded_message_is_an_immutable_instance_of_its_class() -> None:
    message = decode(MetadataRequestV1, b"\0\0\0\1\0\1a")
    with pytest.raises(AttributeError):
        message.topics = ()
    assert type(message) is MetadataRequestV1
    assert hash(message) == hash(decode(MetadataRequestV1, b"\0\0\0\1\0\1a"))


def test_every_truncated_message_is_malformed() -> None:
    source = random.Random(3)
    for schema in map(our_class, all_schemas()):
        encoded = encode(sample(schema, source, width=1))
        for end in range(0, len(encoded), max(1, len(encoded) // 40)):
            with pytest.raises(MalformedMessage):
                decode(schema, encoded[:end])


def test_every_message_with_a_trailing_byte_is_malformed() -> None:
    source = random.Random(4)
    for schema in map(our_class, all_schemas()):
        with pytest.raises(MalformedMessage, match="ends at byte"):
            decode(schema, encode(sample(schema, source, width=1)) + b"\0")


FETCH_HEAD = struct.pack(">iiiibii", -1, 1, 1, 1, 0, 0, 0) + b"\1\1\1"


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        pytest.param(MetadataRequestV1, b"\x7f\xff\xff\xff", id="classic count"),
        pytest.param(MetadataRequestV1, b"\xff\xff\xff\xfe", id="negative count"),
        pytest.param(MetadataRequestV1, b"\0\0\0\1\xff\xff", id="null text"),
        pytest.param(MetadataRequestV1, b"\0\0\0\1\xff\xfb", id="negative text"),
        pytest.param(MetadataRequestV1, b"\0\0\0\1\x7f\xffabc", id="long text"),
        pytest.param(MetadataRequestV1, b"\0\0\0\1\0\2\xff\xfe", id="not UTF-8"),
        pytest.param(MetadataRequestV1, b"\0\0\0\1\0\3\xed\xa0\x80", id="surrogate"),
        pytest.param(MetadataRequestV9, b"\xff\xff\xff\xff\x0f", id="compact count of 2^32"),
        pytest.param(MetadataRequestV9, b"\xff\xff\xff\xff\x7f", id="varint above 32 bits"),
        pytest.param(MetadataRequestV9, b"\xff" * 9 + b"\1", id="varint of 10 bytes"),
        pytest.param(MetadataRequestV9, b"\1\1\0\0\xff\xff\xff\xff\x0f", id="tag count"),
        pytest.param(MetadataRequestV9, b"\1\1\0\0\1\5\x7fab", id="tag's length"),
        pytest.param(FetchRequest, FETCH_HEAD + b"\1\0\1\3ab", id="tag shorter than its value"),
        pytest.param(FetchRequest, FETCH_HEAD + b"\1\0\5\3abxx", id="tag longer than its value"),
        pytest.param(FetchRequest, FETCH_HEAD + b"\2\0\3\3ab\0\3\3cd", id="tag twice"),
        pytest.param(FetchRequest, FETCH_HEAD + b"\2\7\1a\7\1b", id="unknown tag twice"),
        pytest.param(FetchRequest, FETCH_HEAD + b"\xff\xff\xff\xff\x0f", id="known tags' count"),
    ],
)
def test_malformed_messages_are_refused_before_anything_is_built(
    schema: type[WireMessage], body: bytes
) -> None:
    with pytest.raises(MalformedMessage):
        decode(schema, body)  # generates the decoder, so that only decoding is measured
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match=r"v\d+"):
            decode(schema, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 10


@pytest.mark.parametrize("tags", [b"\1\5\2ab", b"\2\5\0\6\1x", b"\1\xff\x7f\0", b"\2\6\1x\5\0"])
def test_unknown_tagged_fields_are_skipped(tags: bytes) -> None:
    plain = decode(MetadataRequestV9, b"\2\2a\0\1\0\0\0")
    assert decode(MetadataRequestV9, b"\2\2a" + tags + b"\1\0\0" + tags) == plain


def test_unknown_tagged_fields_among_known_ones_are_skipped() -> None:
    message = decode(FetchRequest, FETCH_HEAD + b"\3\0\2\2a\7\1x\x08\0")
    assert message.cluster_id == "a"


def test_an_absent_tag_has_its_default() -> None:
    assert decode(FetchRequest, FETCH_HEAD + b"\0").cluster_id is None


def test_lengths_padded_within_five_bytes_are_read() -> None:
    assert decode(MetadataRequestV9, b"\x82\x80\0\x82\0a\0\1\0\0\0") == decode(
        MetadataRequestV9, b"\2\2a\0\1\0\0\0"
    )


@pytest.mark.parametrize(("length", "is_read"), [(32_767, True), (32_768, False)])
def test_a_string_is_at_most_as_long_as_in_classic_versions(length: int, is_read: bool) -> None:
    """Otherwise a decoded string could not be encoded again."""
    schema: Any = get_request_schema(ApiKey.HEARTBEAT, 4)
    values = {"generation_id": 1, "member_id": "", "group_instance_id": None}
    body = encode(schema(group_id="g" * length, **values))
    if is_read:
        assert len(decode(schema, body).group_id) == length
    else:
        with pytest.raises(MalformedMessage, match="group_id has 32768 bytes"):
            decode(schema, body)


def test_records_are_views_of_the_received_buffer() -> None:
    messages = samples(FetchResponse, random.Random(5), 20)
    buffer = bytearray(max((encode(message) for message in messages), key=len))
    views = [
        partition.records
        for topic in decode(FetchResponse, buffer).responses
        for partition in topic.partitions
        if partition.records
    ]
    assert views
    for view in views:
        assert view.obj is buffer
        assert not view.readonly


def test_bytes_are_copies_that_outlive_the_buffer() -> None:
    schema = get_request_schema(14, 0)  # SyncGroup
    buffer = bytearray(encode(sample(schema, random.Random(6), width=3)))
    message = decode(schema, buffer)
    before = encode(message)
    buffer[:] = bytes(len(buffer))
    assert encode(message) == before


def test_a_writable_view_that_starts_within_a_buffer_is_read() -> None:
    buffer = memoryview(bytearray(b"xxx\0\0\0\1\0\1a"))
    assert decode(MetadataRequestV1, buffer[3:]).topics[0].name == "a"


def test_an_unknown_error_code_is_decoded_as_unknown_server_error() -> None:
    assert decode(HeartbeatResponse, b"\x7f\0").error_code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_retention_beyond_pythons_timedelta_is_the_longest() -> None:
    message = sample(OffsetCommitRequest, random.Random(7), width=0)
    encoded = bytearray(encode(message))
    encoded[-12:-4] = struct.pack(">q", 2**63 - 1)  # before the empty array of topics
    assert decode(OffsetCommitRequest, encoded).retention_time.days > 900_000_000


def test_an_append_time_keeps_its_milliseconds() -> None:
    body = struct.pack(">ih1sii hqq i", 1, 1, b"t", 1, 0, 0, 7, 1_234_567_890_123, 0)
    time = decode(ProduceResponse, body).responses[0].partition_responses[0].log_append_time
    assert (time.timestamp(), time.microsecond) == (1_234_567_890.123, 123_000)
    assert encode(decode(ProduceResponse, body)) == body


def test_an_append_time_beyond_pythons_datetime_is_malformed() -> None:
    body = struct.pack(">ih1sii hqq i", 1, 1, b"t", 1, 0, 0, 7, 2**62, 0)
    with pytest.raises(MalformedMessage):
        decode(ProduceResponse, body)


def test_requests_and_responses_have_their_own_errors() -> None:
    with pytest.raises(MalformedRequest, match="MetadataRequest v1"):
        decode_request(3, 1, b"")
    with pytest.raises(MalformedResponse, match="MetadataResponse v1"):
        decode_response(3, 1, b"")


@pytest.mark.parametrize(("key", "version"), [(3, 99), (3, -1), (999, 0), (4, 0), (-1, 0)])
def test_a_missing_schema_is_named(key: int, version: int) -> None:
    with pytest.raises(UnknownSchema, match=rf"v{version}$"):
        decode_request(key, version, b"")


def test_decoding_imports_no_schema_library() -> None:
    program = (
        "import sys; from penstock.protocol.messages import decode_request;"
        "decode_request(3, 1, bytes(4)); print(*sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert not set(ran.stdout.split()) & {"hypothesis", "kio", "dataclasses"}


def test_preloading_generates_decoders() -> None:
    preload({ApiKey.HEARTBEAT: range(5)})
    assert get_response_schema(12, 4).__version__ == 4
