"""Requests of real clients that deviate from Kafka's schemas."""

import pytest

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.malformed import MalformedRequest
from penstock.protocol.messages import decode_request

# Captured from librdkafka 2.16.1: list_topics() in version 12, without the header.
LIST_TOPICS = bytes.fromhex("00000000010000")


def test_librdkafkas_request_for_all_topics_is_decoded() -> None:
    request = decode_request(ApiKey.METADATA, 12, LIST_TOPICS)
    assert request.topics is None
    assert request.allow_auto_topic_creation is True
    assert request.include_topic_authorized_operations is False


@pytest.mark.parametrize("version", [9, 10])
def test_its_request_with_a_flag_for_cluster_operations_is_decoded(version: int) -> None:
    request = decode_request(ApiKey.METADATA, version, bytes.fromhex("0000000001010000"))
    assert request.topics is None
    assert request.include_cluster_authorized_operations is True


def test_a_short_request_for_all_topics_is_decoded_unchanged() -> None:
    request = decode_request(ApiKey.METADATA, 12, bytes.fromhex("00000000"))
    assert request.topics is None
    assert request.allow_auto_topic_creation is False


@pytest.mark.parametrize(
    "body", ["000000000100", "0000000001000000", "00000100010000", "01000000010000"]
)
def test_other_requests_with_trailing_bytes_are_malformed(body: str) -> None:
    with pytest.raises(MalformedRequest, match="ends at byte"):
        decode_request(ApiKey.METADATA, 12, bytes.fromhex(body))
