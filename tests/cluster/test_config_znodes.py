"""A plain ZooKeeper client changes config znodes by hand, and every broker acts on them at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from kazoo.client import KazooClient

from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

WAIT_S = 120
Put = Callable[..., None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def zookeeper(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def put(zookeeper: KazooClient) -> Put:
    def put(entity: str, **configs: str) -> None:
        is_dotted = entity.startswith(("topics/", "brokers/"))
        named = {
            name.replace("_", ".") if is_dotted else name: value for name, value in configs.items()
        }
        put_bytes(zookeeper, entity, json.dumps({"version": 1, "config": named}).encode())

    return put


def put_bytes(zookeeper: KazooClient, entity: str, data: bytes) -> None:
    path = f"/config/{entity}"
    if zookeeper.exists(path):
        zookeeper.set(path, data)
    else:
        zookeeper.create(path, data)


def notify(zookeeper: KazooClient, entity: str) -> None:
    change = json.dumps({"version": 2, "entity_path": entity}).encode()
    zookeeper.create("/config/changes/config_change_", change, sequence=True)


def config_at(cluster: Cluster, broker: int, kind: str, name: str, setting: str) -> str | None:
    """As this broker answers: of a topic any broker may, so only it is asked."""
    host = cluster.bootstrap_servers.split(",")[broker - 1]
    admin = AdminClient({"bootstrap.servers": host})
    resource = ConfigResource(kind, name)
    [answer] = admin.describe_configs([resource], request_timeout=WAIT_S).values()
    value: str | None = answer.result(WAIT_S)[setting].value
    return value


def produce_error(cluster: Cluster, topic: str, size: int) -> str | None:
    errors: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": WAIT_S * 1000}
    )
    producer.produce(topic, b"x" * size, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_S)
    [error] = errors
    return None if error is None else str(error.name())


def all_logs(cluster: Cluster) -> str:
    return "\n".join(map(cluster.logs, (1, 2, 3)))


def lines_about(cluster: Cluster, path: str) -> list[str]:
    return [line for line in all_logs(cluster).splitlines() if path in line]


@pytest.mark.parametrize("is_notified", [False, True])
def test_a_topics_configs_take_effect_at_once(
    cluster: Cluster, zookeeper: KazooClient, put: Put, is_notified: bool
) -> None:
    topic = f"limited-{is_notified}"
    cluster.create_topic(topic, replication_factor=3)
    assert produce_error(cluster, topic, 5_000) is None
    put(f"topics/{topic}", max_message_bytes="1000")
    if is_notified:
        notify(zookeeper, f"topics/{topic}")
    cluster.wait(
        partial(produce_error, cluster, topic, 5_000), lambda error: error == "MSG_SIZE_TOO_LARGE"
    )
    zookeeper.delete(f"/config/topics/{topic}")
    cluster.wait(partial(produce_error, cluster, topic, 5_000), lambda error: error is None)


def test_configs_of_all_brokers_and_of_one_reach_each_broker(
    cluster: Cluster, zookeeper: KazooClient, put: Put
) -> None:
    put("brokers/<default>", log_retention_ms="3600000")
    put("brokers/2", log_retention_ms="7200000")
    for broker, value in ((1, "3600000"), (2, "7200000"), (3, "3600000")):
        seen = partial(config_at, cluster, broker, "broker", str(broker), "log.retention.ms")
        cluster.wait(seen, lambda now, value=value: now == value)  # type: ignore[misc]
    zookeeper.delete("/config/brokers/2")
    seen = partial(config_at, cluster, 2, "broker", "2", "log.retention.ms")
    cluster.wait(seen, lambda now: now == "3600000")


def test_bad_configs_are_one_log_line_and_the_previous_ones_stay(
    cluster: Cluster, zookeeper: KazooClient, put: Put
) -> None:
    cluster.create_topic("damaged", replication_factor=3, config={"max.message.bytes": "1000"})
    about = partial(lines_about, cluster, "/config/topics/damaged")
    put_bytes(zookeeper, "topics/damaged", b'{"version":1,"config"')
    # A line of each controller that reads it: on a slow machine there may be another one.
    cluster.wait(about, lambda lines: len(lines) >= 1)
    put("topics/damaged", max_message_bytes="much")
    cluster.wait(about, lambda lines: any("much" in line for line in lines))
    assert produce_error(cluster, "damaged", 5_000) == "MSG_SIZE_TOO_LARGE"
    put("topics/damaged", max_message_bytes="9000")
    cluster.wait(partial(produce_error, cluster, "damaged", 5_000), lambda error: error is None)


def test_quotas_of_users_and_clients_are_read(cluster: Cluster, put: Put) -> None:
    put("users/alice", producer_byte_rate="1024")
    put("clients/app", consumer_byte_rate="1024")
    for line in ("user 'alice' has producer_byte_rate", "client-id 'app' has consumer_byte_rate"):
        cluster.wait(
            lambda: all_logs(cluster),
            lambda logs, line=line: line in logs,  # type: ignore[misc]
        )
    assert lines_about(cluster, "/config/users") == []


def test_a_change_without_a_controller_is_applied_at_the_election(
    cluster: Cluster, zookeeper: KazooClient, put: Put
) -> None:
    """The bad znode keeps what the brokers knew, also under a controller that never read it."""
    for topic in ("orphaned", "spoiled"):
        cluster.create_topic(topic, replication_factor=3, config={"max.message.bytes": "1000"})
    controller = cluster.controller
    cluster.kill(controller)
    put("topics/orphaned", max_message_bytes="9000")
    put_bytes(zookeeper, "topics/spoiled", b"nonsense")
    cluster.wait_controller(lambda now: now != controller)
    cluster.wait(partial(produce_error, cluster, "orphaned", 5_000), lambda error: error is None)
    assert produce_error(cluster, "spoiled", 5_000) == "MSG_SIZE_TOO_LARGE"
    cluster.start(controller)
    put("topics/spoiled", max_message_bytes="9000")
    cluster.wait(partial(produce_error, cluster, "spoiled", 5_000), lambda error: error is None)
