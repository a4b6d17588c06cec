"""Requests of real clients that are not quite Kafka's."""

import pytest

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.malformed import MalformedRequest
from penstock.protocol.messages import decode_request

# Captured from librdkafka 2.16.1: list_topics() in version 12, behind the header.
LIST_TOPICS = bytes.fromhex("00000000010000")


def test_librdkafkas_question_for_all_topics_is_read() -> None:
    request = decode_request(ApiKey.METADATA, 12, LIST_TOPICS)
    assert request.topics is None
    assert request.allow_auto_topic_creation is True
    assert request.include_topic_authorized_operations is False


@pytest.mark.parametrize("version", [9, 10])
def test_so_is_the_one_with_a_flag_for_the_clusters_operations(version: int) -> None:
    request = decode_request(ApiKey.METADATA, version, bytes.fromhex("0000000001010000"))
    assert request.topics is None
    assert request.include_cluster_authorized_operations is True


def test_a_short_request_for_all_topics_is_read_as_it_is() -> None:
    request = decode_request(ApiKey.METADATA, 12, bytes.fromhex("00000000"))
    assert request.topics is None
    assert request.allow_auto_topic_creation is False


@pytest.mark.parametrize(
    "body", ["000000000100", "0000000001000000", "00000100010000", "01000000010000"]
)
def test_nothing_else_that_is_too_long_is_read(body: str) -> None:
    with pytest.raises(MalformedRequest, match="ends at byte"):
        decode_request(ApiKey.METADATA, 12, bytes.fromhex(body))
