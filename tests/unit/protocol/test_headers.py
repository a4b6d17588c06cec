"""Headers of both directions against kio's, and the frames around them."""

import io
import random
import struct
from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from tests.unit.protocol.message_samples import kio_class, sample

from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import FIRST_FLEXIBLE_VERSIONS
from penstock.protocol.frames import (
    FrameSizeRefused,
    encode_request_frame,
    encode_response_frame,
    encode_response_parts,
    frame_parts,
    read_frame_size,
)
from penstock.protocol.headers import (
    encode_request_header,
    encode_response_header,
    peek_correlation_id,
    read_request_header,
    read_response_header,
)
from penstock.protocol.malformed import MalformedRequest, MalformedResponse, UnencodableMessage
from penstock.protocol.messages import (
    decode_request,
    decode_response,
    get_request_schema,
    get_response_schema,
)

ALL_VERSIONS = [(key, v) for key, name in api_key_map.items() for v in schema_name_map[name]]


def written_by_kio(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@pytest.mark.parametrize("client_id", [None, "", "librdkafka", "grüße"])
def test_request_headers_are_those_of_kio_for_every_version(client_id: str | None) -> None:
    for key, version in ALL_VERSIONS:
        header: Any = kio_class(get_request_schema(key, version)).__header_schema__
        kios = written_by_kio(
            header(
                request_api_key=key,
                request_api_version=version,
                correlation_id=-7,
                client_id=client_id,
            )
        )
        assert encode_request_header(key, version, -7, client_id) == kios
        read: Any = read_request_header(kios + b"body")
        assert read[:4] == (key, version, -7, client_id)
        assert read.body == b"body"


def test_response_headers_are_those_of_kio_for_every_version() -> None:
    for key, version in ALL_VERSIONS:
        header: Any = kio_class(get_response_schema(key, version)).__header_schema__
        kios = written_by_kio(header(correlation_id=99))
        assert encode_response_header(key, version, 99) == kios
        read: Any = read_response_header(kios + b"body", key, version)
        assert read == (99, b"body")
        assert peek_correlation_id(kios) == 99


@pytest.mark.parametrize("version", range(6))
def test_an_api_versions_response_has_header_v0_in_every_version(version: int) -> None:
    assert encode_response_header(18, version, 1) == b"\0\0\0\1"


@pytest.mark.parametrize("version", [5, 77, -1])
def test_api_versions_of_an_unknown_version_can_get_a_response_of_version_0(version: int) -> None:
    frame = encode_request_header(18, version, 5, "new") + b"\xffwhatever the future sends"
    request = read_request_header(frame)
    assert (request.correlation_id, request.client_id) == (5, "new")
    refusal = get_response_schema(18, 0)(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=())
    reply = encode_response_frame(refusal, correlation_id=request.correlation_id)
    assert reply == struct.pack(">iihi", 10, 5, 35, 0)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    plain = encode_request_header(3, 12, 1, "c")
    request: Any = read_request_header(plain[:-1] + b"\1\x05\2xx" + b"body")
    assert request.body == b"body"
    correlation = encode_response_header(3, 12, 1)[:-1]
    response: Any = read_response_header(correlation + b"\1\x05\2xx" + b"body", 3, 12)
    assert response == (1, b"body")


def test_a_body_is_a_writable_view_of_its_frame() -> None:
    frame = bytearray(encode_request_header(0, 9, 1, "c") + b"body")
    read_request_header(memoryview(frame)).body[0:1] = b"B"
    assert frame.endswith(b"Body")


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(struct.pack(">hhi", 3, 1, 1), id="no client id"),
        pytest.param(struct.pack(">hhih", 3, 1, 1, 5) + b"four", id="client id cut"),
        pytest.param(struct.pack(">hhih", 3, 1, 1, -2), id="client id negative"),
        pytest.param(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe", id="client id no UTF-8"),
        pytest.param(struct.pack(">hhih", 93, 1, 1, -1), id="unknown key"),
        pytest.param(struct.pack(">hhih", -1, 1, 1, -1), id="negative key"),
        pytest.param(struct.pack(">hhih", 3, 12, 1, -1), id="no tags"),
        pytest.param(struct.pack(">hhih", 3, 12, 1, -1) + b"\xff" * 6, id="endless tag count"),
        pytest.param(struct.pack(">hhih", 3, 12, 1, -1) + b"\x7f\0\0", id="too many tags"),
        pytest.param(struct.pack(">hhih", 3, 12, 1, -1) + b"\1\0\5abc", id="tag too long"),
    ],
)
def test_an_invalid_request_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_request_header(frame)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1\0\5a"])
def test_an_invalid_response_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read_response_header(frame, 3, 12)


def test_a_response_too_short_for_a_correlation_id_is_malformed() -> None:
    with pytest.raises(MalformedResponse):
        peek_correlation_id(b"\0\0")


def test_private_api_keys_can_be_added() -> None:
    keys = {**FIRST_FLEXIBLE_VERSIONS, 20_000: 0}
    frame = encode_request_header(20_000, 0, 3, None, keys)
    assert read_request_header(frame, keys)[:4] == (20_000, 0, 3, None)


def test_an_invalid_header_is_not_encoded() -> None:
    with pytest.raises(UnencodableMessage):
        encode_request_header(3, 1, 2**31, None)
    with pytest.raises(UnencodableMessage):
        encode_request_header(3, 1, 1, "x" * 40_000)


def test_a_request_frame_round_trips() -> None:
    message = sample(get_request_schema(3, 12), random.Random(1))
    frame = encode_request_frame(message, correlation_id=8, client_id="c")
    assert read_frame_size(frame, max_bytes=1 << 20) == len(frame) - 4
    header = read_request_header(frame[4:])
    assert decode_request(header.api_key, header.api_version, header.body) == message


def test_a_response_frame_round_trips() -> None:
    message = sample(get_response_schema(3, 12), random.Random(2))
    frame = encode_response_frame(message, correlation_id=8)
    correlation_id, body = read_response_header(frame[4:], 3, 12)
    assert correlation_id == peek_correlation_id(frame[4:]) == 8
    assert decode_response(3, 12, body) == message


class FileSlice:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


def test_a_frame_around_file_slices_counts_them_and_joins_the_rest() -> None:
    source = random.Random(6)
    messages = (sample(get_response_schema(1, 12), source) for _ in range(50))
    message = next(m for m in messages if sum(len(t.partitions) for t in m.responses) >= 3)
    topics = tuple(
        topic.__replace__(
            partitions=tuple(p.__replace__(records=bytes(70)) for p in topic.partitions)
        )
        for topic in message.responses
    )
    expected = encode_response_frame(message.__replace__(responses=topics), correlation_id=4)
    sliced = tuple(
        topic.__replace__(
            partitions=tuple(p.__replace__(records=FileSlice(70)) for p in topic.partitions),
        )
        for topic in topics
    )
    parts = encode_response_parts(message.__replace__(responses=sliced), correlation_id=4)
    assert b"".join(p if isinstance(p, bytes) else bytes(len(p)) for p in parts) == expected
    kinds = [isinstance(part, bytes) for part in parts]
    assert kinds == [number % 2 == 0 for number in range(len(kinds))]
    assert kinds.count(False) == sum(len(topic.partitions) for topic in topics)


def test_a_frame_too_large_for_its_size_field_is_not_encoded() -> None:
    with pytest.raises(UnencodableMessage, match=str(2**31)):
        frame_parts([FileSlice(2**31 - 4), b"four"])


@pytest.mark.parametrize("size", [0, -1, -(2**31)])
def test_an_impossible_frame_size_is_refused(size: int) -> None:
    with pytest.raises(FrameSizeRefused, match="does not speak Kafka"):
        read_frame_size(struct.pack(">i", size), max_bytes=100)


@pytest.mark.parametrize("size", [101, 2**31 - 1])
def test_a_frame_above_the_limit_is_refused_with_the_setting_to_change(size: int) -> None:
    with pytest.raises(FrameSizeRefused, match=r"socket\.request\.max\.bytes"):
        read_frame_size(struct.pack(">i", size), max_bytes=100)


def test_a_frame_of_exactly_the_limit_is_accepted() -> None:
    assert read_frame_size(struct.pack(">i", 100) + b"more", max_bytes=100) == 100
