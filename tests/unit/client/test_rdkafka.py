import math
from typing import Any

import pytest
from confluent_kafka import KafkaError

import penstock
from penstock.client.errors import InvalidAddress
from penstock.client.producer import _find_factory
from penstock.client.rdkafka import LocalCode, metadata_settings, refresh_interval_s


def test_librdkafkas_codes_equal_those_of_confluent_kafka() -> None:
    for code in LocalCode:
        assert getattr(KafkaError, f"_{code.name}") == code


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"acks": 2}, "use 0, 1 or 'all'"),
        ({"compression": "rar"}, "rar"),
        ({"partitioner": "nearest"}, "hash, hash_or_round_robin, round_robin, sticky"),
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


@pytest.mark.parametrize(
    ("config", "interval_s"),
    [
        ({}, 60.0),
        ({"metadata.max.age.ms": 2_000}, 2.0),
        ({"topic.metadata.refresh.interval.ms": 3_000, "metadata.max.age.ms": 2_000}, 3.0),
        ({"topic.metadata.refresh.interval.ms": -1}, math.inf),
    ],
)
def test_both_names_say_how_often_new_partitions_are_looked_for(
    config: dict[str, int], interval_s: float
) -> None:
    assert refresh_interval_s(metadata_settings(60_000, config)) == interval_s


class LastPartition:
    def partition(self, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return partitions - 1


@pytest.mark.parametrize("partitioner", [LastPartition, LastPartition()])
def test_a_partitioner_may_be_an_object_or_its_class(partitioner: Any) -> None:
    make = _find_factory(partitioner, 1)
    assert make is not None
    assert make().choose(None, None, 4) == 3


def test_what_is_no_partitioner_is_refused() -> None:
    nothing: Any = object()
    with pytest.raises(ValueError, match=r"method partition\(key, value, partitions\)"):
        penstock.Producer("127.0.0.1:9092", partitioner=nothing)
