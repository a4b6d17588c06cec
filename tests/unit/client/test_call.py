from datetime import timedelta
from importlib.metadata import version
from uuid import UUID

import pytest

from penstock.client.call import Call
from penstock.client.data_calls import (
    FetchFrom,
    FetchOptions,
    IsolationLevel,
    fetch_call,
    list_offsets_call,
    produce_call,
)
from penstock.client.metadata import metadata_call
from penstock.client.versions import API_VERSIONS, VersionRange, pick_version
from penstock.model.ids import Offset, TopicId, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import decode_request, encode

ORDERS = TopicPartition("orders", 3)
TOPIC_ID = TopicId(UUID("12345678-1234-5678-1234-567812345678"))


def round_trips(call: Call) -> list[object]:
    """Return the message of every version, as a broker decodes it."""
    read = []
    for number in call.versions:
        message = call.compose(number)
        read.append(decode_request(call.api_key, number, encode(message)))
        assert encode(read[-1]) == encode(message)
    return read


@pytest.mark.parametrize(
    "call",
    [
        metadata_call(None),
        metadata_call(["orders"]),
        produce_call(ORDERS, b"batch", acks=-1, timeout_ms=1_500),
        fetch_call([FetchFrom(ORDERS, Offset(5))], FetchOptions(), {"orders": TOPIC_ID}),
        list_offsets_call({ORDERS: -1}, isolation=IsolationLevel.READ_COMMITTED),
    ],
    ids=lambda call: call.api_key.title,
)
def test_a_request_can_be_encoded_in_every_version_it_claims(call: Call) -> None:
    assert len(round_trips(call)) == len(call.versions)


def test_a_field_that_a_version_lacks_is_left_out() -> None:
    call = fetch_call([FetchFrom(ORDERS, Offset(5))], FetchOptions(), {"orders": TOPIC_ID})
    by_name, by_id = call.compose(12), call.compose(13)
    assert by_name.topics[0].topic == "orders"
    assert by_id.topics[0].topic_id == TOPIC_ID
    assert not hasattr(by_name.topics[0], "topic_id")


def test_fetches_use_topic_ids_only_if_every_id_is_known() -> None:
    wanted = [FetchFrom(ORDERS, Offset(0)), FetchFrom(TopicPartition("old", 0), Offset(0))]
    assert fetch_call(wanted, FetchOptions(), {"orders": TOPIC_ID}).versions[-1] == 12


def test_the_largest_timestamp_is_requested_only_in_versions_that_have_it() -> None:
    assert (
        list_offsets_call({ORDERS: -3}, isolation=IsolationLevel.READ_UNCOMMITTED).versions[0] == 7
    )


def test_timeouts_are_sent_in_milliseconds() -> None:
    message = produce_call(ORDERS, b"batch", acks=1, timeout_ms=1_500).compose(7)
    assert message.timeout == timedelta(seconds=1.5)


@pytest.mark.parametrize(
    ("ours", "served", "picked"),
    [
        (range(4, 13), VersionRange(0, 13), 12),
        (range(4, 13), VersionRange(0, 9), 9),
        (range(4, 13), VersionRange(4, 4), 4),
        (range(4, 13), VersionRange(0, 3), None),
        (range(4, 13), VersionRange(13, 15), None),
        (range(4, 13), None, None),
    ],
)
def test_the_highest_common_version_is_used(
    ours: range, served: VersionRange | None, picked: int | None
) -> None:
    assert pick_version(ours, served) == picked


def test_api_versions_sends_our_version() -> None:
    assert API_VERSIONS.fields["client_software_version"] == version("penstock")


def test_a_missing_field_is_named() -> None:
    with pytest.raises(TypeError, match="acks"):
        Call(ApiKey.PRODUCE, range(3, 12), {"timeout": timedelta()}).compose(9)
