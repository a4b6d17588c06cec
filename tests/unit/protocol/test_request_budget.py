"""Every array of every request counts against its budget before anything is made of it."""

import pytest
from tests.unit.protocol.filled_requests import Filling, fill, list_arrays

from penstock.apis.registry import SERVED
from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import ConfigError, RawConfig
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.headers import read_request_header
from penstock.protocol.malformed import MalformedRequest, RequestOverLimit
from penstock.protocol.messages import decode_request, get_request_schema
from penstock.protocol.produce_request import OLD_VERSIONS
from penstock.protocol.request_budget import (
    LEAST_MAX_ELEMENTS,
    MAX_TAGGED_FIELDS,
    SMALL_FRAME_BYTES,
    STRUCT_ELEMENTS,
    RequestBudget,
)
from penstock.protocol.unsigned_varint import encode_unsigned_varint

VERSIONS = [
    pytest.param(key, version, id=f"{key.title}-v{version}")
    for key, versions in SERVED.items()
    for version in (versions[0], versions[-1])
    if not (key is ApiKey.PRODUCE and version in OLD_VERSIONS)
]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_array_is_charged(key: ApiKey, version: int) -> None:
    schema = get_request_schema(key, version)
    for path in list_arrays(schema):
        body = fill(schema, Filling(path, 1000))
        used = RequestBudget()
        decode_request(key, version, body, used)
        assert 1000 <= used.used_elements <= 2000 + 2 * len(path)
        exact = RequestBudget(used.used_elements)
        decode_request(key, version, body, exact)
        assert exact.elements == 0
        with pytest.raises(RequestOverLimit, match=path[-1]):
            decode_request(key, version, body, RequestBudget(used.used_elements - 1))


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_no_small_frame_exceeds_the_lowest_limit(key: ApiKey, version: int) -> None:
    """So its elements need not be counted."""
    schema = get_request_schema(key, version)
    for path in list_arrays(schema):
        body = fill(schema, Filling(path, 1000))
        used = RequestBudget()
        decode_request(key, version, body, used)
        assert used.used_elements <= len(body) * STRUCT_ELEMENTS


def test_the_lowest_limit_that_can_be_set_is_above_small_frames() -> None:
    below = {"penstock.request.max.elements": str(LEAST_MAX_ELEMENTS - 1)}
    with pytest.raises(ConfigError, match=r"penstock\.request\.max\.elements"):
        resolve_broker(RawConfig.from_mapping(below, where="test"))
    assert SMALL_FRAME_BYTES // 2 <= MAX_TAGGED_FIELDS  # of two bytes at least


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_unknown_tagged_fields_are_charged(key: ApiKey, version: int) -> None:
    schema = get_request_schema(key, version)
    if not schema.__flexible__:
        pytest.skip("has no tagged fields")
    body = fill(schema, Filling((), 0, tagged_fields=100))
    decode_request(key, version, body, RequestBudget(max_tagged_fields=100))
    with pytest.raises(RequestOverLimit, match="more than 99 tagged fields"):
        decode_request(key, version, body, RequestBudget(max_tagged_fields=99))


def test_a_count_is_refused_before_its_elements_are_read() -> None:
    """The elements are not even valid, which shows that only the count was read."""
    body = (50_000).to_bytes(4, "big") + b"\xff" * 100_000
    with pytest.raises(RequestOverLimit):
        decode_request(ApiKey.METADATA, 1, body, RequestBudget(99_999))
    with pytest.raises(MalformedRequest, match="length"):
        decode_request(ApiKey.METADATA, 1, body, RequestBudget(100_000))


def test_the_tagged_fields_of_a_header_are_few() -> None:
    def frame(tagged_fields: int) -> bytes:
        tags = b"".join(encode_unsigned_varint(tag) + b"\0" for tag in range(tagged_fields))
        head = ApiKey.METADATA.to_bytes(2, "big") + (12).to_bytes(2, "big") + bytes(4)
        return head + b"\xff\xff" + encode_unsigned_varint(tagged_fields) + tags + b"body"

    assert bytes(read_request_header(frame(0)).body) == b"body"
    assert bytes(read_request_header(frame(100)).body) == b"body"
    with pytest.raises(MalformedRequest, match="more than 100 tagged fields"):
        read_request_header(frame(101))
