"""Broker configs with names unknown to the broker, set and read with librdkafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from confluent_kafka.cimpl import NewTopic
from tests.clients.under_test import BrokerUnderTest
from tests.profile import is_long

import penstock
from penstock.model.errors import ErrorCode

pytestmark = pytest.mark.xdist_group("client-kafka-python")  # this broker runs there already

_TIMEOUT_S = 180
SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE


@pytest.fixture(scope="module")
def admin(broker: BrokerUnderTest) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def _broker_id(admin: AdminClient) -> str:
    (broker,) = admin.list_topics(timeout=_TIMEOUT_S).brokers
    return str(broker)


def _alter(
    admin: AdminClient,
    name: str,
    operation: AlterConfigOpType,
    setting: str = "acme.color",
    kind: str = "broker",
) -> None:
    value = "red" if operation is SET else None
    entry = ConfigEntry(setting, value, incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(_TIMEOUT_S)


def _described(admin: AdminClient, name: str) -> ConfigEntry | None:
    resource = ConfigResource(ConfigResource.Type.BROKER, name)
    entries = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
    entry: ConfigEntry | None = entries.get("acme.color")
    return entry


def test_an_unknown_setting_is_stored_described_without_its_value_and_deleted(
    admin: AdminClient,
) -> None:
    own = _broker_id(admin)
    assert _described(admin, own) is None
    _alter(admin, own, SET)
    entry = _described(admin, own)
    assert entry is not None
    assert (entry.value, entry.is_sensitive, entry.is_default) == (None, True, False)
    assert ConfigSource(entry.source) is ConfigSource.DYNAMIC_BROKER_CONFIG
    _alter(admin, own, DELETE)
    assert _described(admin, own) is None


def test_an_unknown_setting_of_a_topic_is_rejected(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("custom", 1, 1)])["custom"].result(_TIMEOUT_S)
    with pytest.raises(KafkaException) as refused:
        _alter(admin, "custom", SET, kind="topic")
    assert refused.value.args[0].code() == ErrorCode.INVALID_CONFIG


@pytest.mark.skipif(not is_long(), reason="starts a broker twice")
def test_an_unknown_setting_survives_a_restart_and_is_logged_once_per_start(tmp_path: Path) -> None:
    for run in range(2):
        with penstock.Broker(data=tmp_path) as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            own = _broker_id(admin)
            if run == 0:
                _alter(admin, own, SET)
                _alter(admin, own, SET, "acme.shape")
            assert _described(admin, own) is not None
            assert broker.logs().count("acme.color is stored but has no effect") == 1
