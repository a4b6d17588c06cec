"""The znodes of a group are those that Kafka 0.8.2 and its clients write and read."""

import json

import pytest

from penstock.metadata_store.errors import DamagedZnode
from penstock.model.ids import TopicPartition
from penstock.zookeeper_consumer.group_znodes import (
    AssignmentRule,
    Registration,
    SubscriptionPattern,
    decode_broker_address,
    decode_offset,
    decode_partitions,
    decode_registration,
    encode_registration,
    offset_path,
    owner_path,
)
from penstock.zookeeper_consumer.topic_filter import TopicFilter, parse_list, white_list_of


def test_a_registration_has_the_fields_of_kafka_and_the_rule() -> None:
    registration = Registration(
        pattern=SubscriptionPattern.WHITE_LIST, subscription={"a.*": 1}, timestamp_ms=1234
    )
    data = encode_registration(registration)
    assert json.loads(data) == {
        "version": 1,
        "subscription": {"a.*": 1},
        "pattern": "white_list",
        "timestamp": "1234",
        "assignment": "range",
    }
    assert decode_registration("/x", data) == registration


def test_other_clients_registrations_are_read() -> None:
    # kazoo-go writes the timestamp as a number, and no rule.
    data = b'{"pattern":"static","subscription":{"orders":2},"timestamp":1234,"version":1}'
    registration = decode_registration("/x", data)
    assert registration.streams_of("orders") == 2
    assert registration.streams_of("orders2") == 0
    assert (registration.rule, registration.names_rule) == (AssignmentRule.RANGE, False)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"pattern":"static"}',
        b'{"subscription":{"t":0},"pattern":"static"}',
        b'{"subscription":{"t":true},"pattern":"static"}',
        b'{"subscription":{"t":1000000000},"pattern":"static"}',
        b'{"subscription":{"t":1},"pattern":"grey_list"}',
        b'{"subscription":{"t":1},"pattern":"static","assignment":"dice"}',
        b'{"subscription":{"(":1},"pattern":"white_list"}',
    ],
)
def test_a_damaged_registration_is_named(data: bytes) -> None:
    with pytest.raises(DamagedZnode, match="/consumers/g/ids/c cannot be read"):
        decode_registration("/consumers/g/ids/c", data)


def test_owners_and_offsets_are_where_every_client_looks() -> None:
    tp = TopicPartition("orders", 3)
    assert owner_path("g", tp) == "/consumers/g/owners/orders/3"
    assert offset_path("g", tp) == "/consumers/g/offsets/orders/3"
    assert [decode_offset(data) for data in (b"17", b"-1", b"", b"x")] == [17, None, None, None]


def test_partitions_and_addresses_of_brokers_are_read() -> None:
    assert decode_partitions("/x", b'{"version":1,"partitions":{"10":[1],"2":[1,2]}}') == (2, 10)
    new = {
        "version": 5,
        "host": None,
        "port": -1,
        "endpoints": ["IN://h:1", "OUT://h:2"],
        "listener_security_protocol_map": {"IN": "PLAINTEXT", "OUT": "SSL"},
    }
    data = json.dumps(new).encode()
    assert decode_broker_address("/x", data, "PLAINTEXT") == "h:1"
    assert decode_broker_address("/x", data, "SSL") == "h:2"
    assert decode_broker_address("/x", data, "SASL_SSL") is None
    old = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1"}'
    assert decode_broker_address("/x", old, "PLAINTEXT") == "h:9092"


@pytest.mark.parametrize(
    ("text", "regex"), [("a.*", "a.*"), (" a, b ", "a|b"), ('"a.*,b"', "a.*|b"), ("'x'", "x")]
)
def test_a_list_is_read_as_kafkas_console_consumer_reads_it(text: str, regex: str) -> None:
    assert parse_list(text, "white_list") == regex


@pytest.mark.parametrize("text", ["", "''", "(", "a**", "(?=b)"])
def test_a_list_that_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="white_list"):
        parse_list(text, "white_list")


def test_filters_match_whole_names_and_leave_internal_topics_out() -> None:
    white, black = TopicFilter("a.*|b"), TopicFilter("a.*|b", is_black_list=True)
    names = ["a", "ab", "b", "bc", "cab", "__consumer_offsets"]
    assert [name for name in names if white.allows(name)] == ["a", "ab", "b"]
    assert [name for name in names if black.allows(name)] == ["bc", "cab"]
    assert TopicFilter(".*", with_internal=True).allows("__consumer_offsets")


def test_named_topics_join_a_white_list_letter_by_letter() -> None:
    regex = white_list_of(["my.orders-1"], "a.*")
    white = TopicFilter(regex)
    assert [name for name in ("my.orders-1", "my_orders-1", "ab") if white.allows(name)] == [
        "my.orders-1",
        "ab",
    ]
