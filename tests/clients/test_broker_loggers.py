"""BROKER_LOGGER (KIP-412): clients read and change the log levels of a running broker.

librdkafka cannot name this type of resource; kafka-python and our own client can.
"""

import asyncio
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import penstock
from penstock.client.admin_values import AlterConfigOp, ConfigResource
from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError
from penstock.model.admin import ConfigOperation, ConfigResourceType

with warnings.catch_warnings():  # it loads its schemas with a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import admin as kafka_admin  # type: ignore[import-untyped]

pytestmark = [
    pytest.mark.xdist_group("client-kafka-python"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:alter_configs:DeprecationWarning"),
]

LOGGER = "penstock.controller"
LEVELS = ConfigResource.broker_logger(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[penstock.Broker]:
    with penstock.Broker() as broker:
        yield broker


def describe(broker: penstock.Broker, resource: ConfigResource = LEVELS) -> dict[str, str | None]:
    async def ask() -> dict[str, str | None]:
        async with ClusterClient(broker.bootstrap_servers) as client:
            described = await client.admin.describe_configs([resource])
        return {entry.name: entry.value for entry in described[resource]}

    return asyncio.run(ask())


def alter(
    broker: penstock.Broker, changes: Sequence[AlterConfigOp], resource: ConfigResource = LEVELS
) -> None:
    async def ask() -> None:
        async with ClusterClient(broker.bootstrap_servers) as client:
            await client.admin.incremental_alter_configs({resource: changes})

    asyncio.run(ask())


def set_level(name: str, level: str) -> AlterConfigOp:
    return AlterConfigOp(name, level)


def test_a_level_is_set_takes_effect_and_is_reset_to_the_roots(broker: penstock.Broker) -> None:
    assert describe(broker)["root"] == describe(broker)[LOGGER] == "INFO"
    alter(broker, [set_level(LOGGER, "ERROR")])
    assert (describe(broker)["root"], describe(broker)[LOGGER]) == ("INFO", "ERROR")
    broker.create_topic("unlogged")
    alter(broker, [set_level("root", "WARN")])
    alter(broker, [AlterConfigOp(LOGGER, None, ConfigOperation.DELETE)])
    assert describe(broker)[LOGGER] == "WARN"
    alter(broker, [set_level("root", "INFO")])
    broker.create_topic("logged")
    logs = broker.logs()
    assert "topics=logged" in logs
    assert "topics=unlogged" not in logs


def test_kafka_python_describes_and_alters_them(broker: penstock.Broker) -> None:
    admin: Any = kafka_admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    kind = kafka_admin.ConfigResourceType.BROKER_LOGGER
    try:
        changes = {"penstock.network": (kafka_admin.AlterConfigOp.SET, "DEBUG")}
        admin.alter_configs([kafka_admin.ConfigResource(kind, "1", configs=changes)])
        described = admin.describe_configs(
            [kafka_admin.ConfigResource(kind, "1")], config_filter="all"
        )
    finally:
        admin.close()
    assert "'penstock.network'" in str(described)
    assert describe(broker)["penstock.network"] == "DEBUG"


def test_alter_configs_is_refused_because_it_would_reset_every_other_logger(
    broker: penstock.Broker,
) -> None:
    admin: Any = kafka_admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    kind = kafka_admin.ConfigResourceType.BROKER_LOGGER
    resource = kafka_admin.ConfigResource(kind, "1", configs={"penstock.server": "DEBUG"})
    try:
        result = admin.alter_configs([resource], incremental=False, raise_on_unknown=False)
    finally:
        admin.close()
    assert "IncrementalAlterConfigs" in str(result)
    assert describe(broker)["penstock.server"] == "INFO"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_level("kafka.server", "INFO"), "does not exist"),
        (set_level(LOGGER, "LOUD"), "not a supported log level"),
        (AlterConfigOp("root", None, ConfigOperation.DELETE), "is not allowed"),
        (AlterConfigOp(LOGGER, "INFO", ConfigOperation.APPEND), "APPEND operation is not allowed"),
    ],
)
def test_wrong_changes_are_refused_together_with_right_ones(
    broker: penstock.Broker, change: AlterConfigOp, words: str
) -> None:
    with pytest.raises(ClientError, match=words):
        alter(broker, [set_level("penstock.storage", "DEBUG"), change])
    assert describe(broker)["penstock.storage"] == "INFO"


def test_a_broker_answers_for_its_own_loggers_only(broker: penstock.Broker) -> None:
    with pytest.raises(ClientError, match="must not be empty"):
        describe(broker, ConfigResource(ConfigResourceType.BROKER_LOGGER, ""))
