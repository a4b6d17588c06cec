"""Reading a topic's configs and setting them back, with common admin clients."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic
from tests.clients.under_test import BrokerUnderTest

from penstock.config.registry import TOPIC_SETTINGS

with warnings.catch_warnings():  # it loads its schemas with a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import admin as kafka_admin  # type: ignore[import-untyped]

pytestmark = [
    pytest.mark.xdist_group("client-kafka-python"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:alter_configs:DeprecationWarning"),
]

_TIMEOUT_S = 180


@pytest.fixture(scope="module")
def librdkafka(broker: BrokerUnderTest) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture(scope="module")
def kafka_python(broker: BrokerUnderTest) -> Iterator[Any]:
    admin = kafka_admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield admin
    admin.close()


def _create(librdkafka: AdminClient, topic: str) -> None:
    config = {"retention.ms": "12345", "cleanup.policy": "compact,delete"}
    new = NewTopic(topic, 1, 1, config=config)
    librdkafka.create_topics([new])[topic].result(_TIMEOUT_S)


def _describe(librdkafka: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    described: dict[str, ConfigEntry] = librdkafka.describe_configs([resource])[resource].result(
        _TIMEOUT_S
    )
    return described


def _values(librdkafka: AdminClient, topic: str) -> dict[str, str]:
    return {name: str(entry.value) for name, entry in _describe(librdkafka, topic).items()}


@pytest.mark.parametrize("how", ["incremental_alter_configs", "alter_configs"])
def test_librdkafka_can_set_every_config_to_the_value_it_read(
    librdkafka: AdminClient, how: str
) -> None:
    topic = f"round-trip-{how.replace('_', '-')}"
    _create(librdkafka, topic)
    read = _values(librdkafka, topic)
    assert read.keys() == TOPIC_SETTINGS.keys()
    assert read["retention.ms"] == "12345"
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    for name, value in read.items():
        if how == "alter_configs":
            resource.set_config(name, value)
        else:
            resource.add_incremental_config(
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            )
    getattr(librdkafka, how)([resource])[resource].result(_TIMEOUT_S)
    assert _values(librdkafka, topic) == read


@pytest.mark.parametrize("incremental", [True, False])
def test_kafka_python_can_set_every_config_to_the_value_it_read(
    librdkafka: AdminClient, kafka_python: Any, *, incremental: bool
) -> None:
    topic = f"round-trip-kafka-python-{incremental}"
    _create(librdkafka, topic)
    resource = kafka_admin.ConfigResource(kafka_admin.ConfigResourceType.TOPIC, topic)
    described = kafka_python.describe_configs([resource], config_filter="all")
    read = {name: entry["value"] for name, entry in described["topic"][topic].items()}
    assert read.keys() == TOPIC_SETTINGS.keys()
    back = kafka_admin.ConfigResource(kafka_admin.ConfigResourceType.TOPIC, topic, configs=read)
    altered = kafka_python.alter_configs([back], incremental=incremental)
    assert altered == {"topic": {topic: "OK"}}
    assert _values(librdkafka, topic) == read
