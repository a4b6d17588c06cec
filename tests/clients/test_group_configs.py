"""Configs of single consumer groups: set with the clients that can, and their effect."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.clients.under_test import BrokerUnderTest, broker_under_test
from tests.interop.kafka_jars import Say
from tests.scenarios.raw_client import RawClient

from penstock.protocol.api_keys import ApiKey

with warnings.catch_warnings():  # it loads its schemas with a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import admin as kafka_admin  # type: ignore[import-untyped]

pytestmark = [
    pytest.mark.xdist_group("client-kafka-python"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

_TIMEOUT_S = 180
_HEARTBEAT = "consumer.heartbeat.interval.ms"
_SESSION = "consumer.session.timeout.ms"
_DYNAMIC_GROUP_CONFIG = 8


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory, say: Say) -> Iterator[BrokerUnderTest]:
    """A broker whose bounds allow a group to choose other values."""
    bounds = {
        "group.consumer.min.session.timeout.ms": "10000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
    }
    with broker_under_test(tmp_path_factory.mktemp("bounded"), say, bounds) as broker:
        yield broker


def _alter(admin: AdminClient, group: str, kind: Any, settings: dict[str, str]) -> None:
    resource = ConfigResource(ConfigResource.Type.GROUP, group)
    for name, value in settings.items():
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=kind))
    admin.incremental_alter_configs([resource])[resource].result(_TIMEOUT_S)


def _describe(admin: AdminClient, group: str) -> dict[str, tuple[str, int]]:
    resource = ConfigResource(ConfigResource.Type.GROUP, group)
    described = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
    return {name: (str(entry.value), int(entry.source)) for name, entry in described.items()}


def _offered_interval_ms(broker: BrokerUnderTest, group: str) -> int:
    """The heartbeat interval that the coordinator gives a new member."""
    deadline = time.monotonic() + _TIMEOUT_S
    with RawClient(broker.bootstrap_servers) as client:
        while True:
            assert time.monotonic() < deadline
            client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=(group,))
            response = client.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                1,
                group_id=group,
                member_id="m",
                member_epoch=0,
                rebalance_timeout=timedelta(seconds=30),
                subscribed_topic_names=("absent",),
                topic_partitions=(),
            )
            if response.error_code == 0:
                return int(response.heartbeat_interval.total_seconds() * 1000)


def test_the_configs_of_a_group_are_described_listed_and_applied(
    bounded: BrokerUnderTest,
) -> None:
    admin = AdminClient({"bootstrap.servers": bounded.bootstrap_servers})
    _alter(admin, "a/b", AlterConfigOpType.SET, {_HEARTBEAT: "1500", _SESSION: "11000"})
    assert _describe(admin, "a/b") == {
        _HEARTBEAT: ("1500", _DYNAMIC_GROUP_CONFIG),
        _SESSION: ("11000", _DYNAMIC_GROUP_CONFIG),
    }
    python = kafka_admin.KafkaAdminClient(bootstrap_servers=bounded.bootstrap_servers)
    try:
        only_groups = [kafka_admin.ConfigResourceType.GROUP]
        assert python.list_config_resources(only_groups) == {"group": ["a/b"]}
        assert _offered_interval_ms(bounded, "a/b") == 1500
        assert _offered_interval_ms(bounded, "other") == 5000
        _alter(admin, "a/b", AlterConfigOpType.DELETE, {_HEARTBEAT: "", _SESSION: ""})
        assert not python.list_config_resources(only_groups).get("group")
        assert "broker" in python.list_config_resources()
    finally:
        python.close()
