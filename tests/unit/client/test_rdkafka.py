from typing import Any

import pytest
from confluent_kafka import KafkaError

import penstock
from penstock.client.errors import InvalidAddress
from penstock.client.rdkafka import LocalCode


def test_librdkafkas_codes_equal_those_of_confluent_kafka() -> None:
    for code in LocalCode:
        assert getattr(KafkaError, f"_{code.name}") == code


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"acks": 2}, "use 0, 1 or 'all'"),
        ({"compression": "rar"}, "rar"),
        ({"partitioner": "nearest"}, "hash, round_robin, sticky"),
        ({"idempotent": True, "acks": 1}, "acks"),
        ({"config": {"no.such.setting": 1}}, "no.such.setting"),
    ],
)
def test_invalid_settings_of_a_producer_are_named(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        penstock.Producer("127.0.0.1:9092", **options)


def test_invalid_settings_of_a_consumer_are_named() -> None:
    isolation: Any = "total"
    with pytest.raises(ValueError, match=r"isolation\.level"):
        penstock.Consumer("t", bootstrap_servers="127.0.0.1:9092", isolation=isolation)


def test_an_invalid_address_is_rejected_before_anything_starts() -> None:
    with pytest.raises(InvalidAddress, match="HOST:PORT"):
        penstock.Producer("localhost")
    with pytest.raises(InvalidAddress, match="HOST:PORT"):
        penstock.Consumer("t", bootstrap_servers="localhost")
