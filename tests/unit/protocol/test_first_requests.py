"""ApiVersions and Metadata requests decoded by hand: the same as by the generic decoder."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.profile import scaled
from tests.unit.protocol.message_samples import sample

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.first_requests import (
    MetadataRequest,
    RequestedTopic,
    read_api_versions_request,
    read_metadata_request,
)
from penstock.protocol.malformed import MalformedRequest
from penstock.protocol.messages import decode_request, encode, get_request_schema

METADATA_VERSIONS = range(13)
CASES = [(ApiKey.API_VERSIONS, version) for version in range(5)] + [
    (ApiKey.METADATA, version) for version in METADATA_VERSIONS
]
READERS: dict[ApiKey, Callable[[bytes, int], Any]] = {
    ApiKey.API_VERSIONS: read_api_versions_request,
    ApiKey.METADATA: read_metadata_request,
}


def generic(key: ApiKey, version: int, body: bytes) -> Any:
    """Return the generic decoder's values in our shape; None if it refuses."""
    try:
        message = decode_request(key, version, body)
    except MalformedRequest:
        return None
    if key is ApiKey.API_VERSIONS:
        names = ("client_software_name", "client_software_version")
        return tuple(getattr(message, name, None) for name in names)
    topics = message.topics
    return MetadataRequest(
        None
        if topics is None
        else [RequestedTopic(topic.name, getattr(topic, "topic_id", None)) for topic in topics],
        getattr(message, "allow_auto_topic_creation", True),
        getattr(message, "include_cluster_authorized_operations", False),
        getattr(message, "include_topic_authorized_operations", False),
    )


def by_position(key: ApiKey, version: int, body: bytes) -> Any:
    try:
        return READERS[key](body, version)
    except MalformedRequest:
        return None


@pytest.mark.parametrize(("key", "version"), CASES)
def test_a_request_is_decoded_as_by_the_generic_decoder(key: ApiKey, version: int) -> None:
    source = random.Random(version)
    schema = get_request_schema(key, version)
    for _ in range(scaled(test=40, verify=1000, release=10_000)):
        body = bytes(encode(sample(schema, source, width=4)))
        read = by_position(key, version, body)
        assert read is not None
        assert read == generic(key, version, body)


@pytest.mark.parametrize(("key", "version"), CASES)
def test_damaged_requests_are_refused_as_by_the_generic_decoder(key: ApiKey, version: int) -> None:
    source = random.Random(version)
    schema = get_request_schema(key, version)
    for _ in range(scaled(test=150, verify=4000, release=40_000)):
        body = bytearray(encode(sample(schema, source, width=3)))
        for _ in range(source.randrange(1, 4)):
            damage(body, source)
        assert by_position(key, version, bytes(body)) == generic(key, version, bytes(body))


def damage(body: bytearray, source: random.Random) -> None:
    position = source.randrange(len(body) + 1)
    match source.randrange(4):
        case 0:
            del body[position:]
        case 1:
            body.insert(position, source.choice((0, 1, 0x7F, 0x80, 0xFF)))
        case 2 if position < len(body):
            body[position] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
        case _ if position < len(body):
            del body[position]


def test_a_count_allocates_nothing_before_it_is_checked() -> None:
    with pytest.raises(MalformedRequest, match="2147483647 topics do not fit in 5 bytes"):
        read_metadata_request(b"\x7f\xff\xff\xff\x00", 4)


def test_an_error_names_the_request_and_the_reason() -> None:
    with pytest.raises(MalformedRequest, match="Metadata v4 ends early, after 2 bytes"):
        read_metadata_request(b"\0\0", 4)
    with pytest.raises(MalformedRequest, match="ApiVersions v0 ends at byte 0 of 1"):
        read_api_versions_request(b"\0", 0)
