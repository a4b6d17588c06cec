"""A broker that is gone for long loses its replicas to others."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.cluster.commands import fill, run
from tests.cluster.load import PARTITIONS, Load
from tests.cluster.log_events import read_events
from tests.profile import scaled

from penstock.cli.throttled_reassignments import COPY_RATES
from penstock.client.admin_values import AlterConfigOp, ConfigResource, NewTopic
from penstock.client.metadata import PartitionMetadata
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

BROKERS = (1, 2, 3, 4)
LOGS = {
    "auto.create.topics.enable": False,
    "logging.format": "json",
    "offsets.topic.num.partitions": 1,
}


def create(cluster: Cluster, topic: str, replicas: tuple[int, ...]) -> None:
    new = NewTopic(name=topic, assignment=dict.fromkeys(range(PARTITIONS), replicas))
    cluster.ask(lambda client: client.admin.create_topics([new]))


def set_all(cluster: Cluster, **configs: str | None) -> None:
    ops = [AlterConfigOp(name.replace("_", "."), value) for name, value in configs.items()]
    changes = {ConfigResource.all_brokers(): ops}
    cluster.ask(lambda client: client.admin.incremental_alter_configs(changes))


def replicas_of(cluster: Cluster, topic: str) -> list[tuple[int, ...]]:
    topics = cluster.ask(lambda client: client.metadata([topic])).topics
    return [tuple(partition.replicas) for partition in topics[topic].partitions]


def list_ongoing(cluster: Cluster, topic: str) -> int:
    ongoing = cluster.ask(lambda client: client.reassignments.list_ongoing())
    return sum(tp.topic == topic for tp in ongoing)


def find_events(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    return [event for event in read_events(cluster, BROKERS) if event["event"] == name]


def wait_event(cluster: Cluster, name: str, is_so: Callable[[dict[str, Any]], bool]) -> None:
    cluster.wait(lambda: find_events(cluster, name), lambda events: any(map(is_so, events)))


def has_left_broker_2(state: PartitionMetadata) -> bool:
    return set(state.in_sync) == set(state.replicas) == {1, 3, 4}


def test_replicas_of_a_broker_that_is_gone_are_replaced_and_undone_when_it_returns() -> None:
    with Cluster(brokers=4, config=LOGS) as cluster:
        create(cluster, "orders", (1, 2, 3))
        create(cluster, "archive", (1, 2, 3))
        # More than the first fetches get before the throttle: what is copied stays under way.
        fill(cluster, "archive", PARTITIONS, kib=2_000)
        rates = dict.fromkeys(COPY_RATES, "1")
        set_all(cluster, **{name.replace(".", "_"): rate for name, rate in rates.items()})
        load = Load(cluster, "orders")
        load.wait_acknowledged()
        cluster.kill(3)
        cluster.wait_in_sync("orders", 0, 2)
        set_all(cluster, replica_replacement_delay_ms="1000")
        cluster.wait(lambda: list_ongoing(cluster, "archive"), lambda count: count == PARTITIONS)
        cluster.wait(
            lambda: balancing_status(cluster),
            lambda now: now["under_way"] >= PARTITIONS and now["gone_seconds"].keys() == {"3"},
        )
        cluster.wait(
            lambda: run(cluster, "cluster", "status").stdout,
            lambda text: "broker 3 has been gone for" in text,
        )
        assert all({1, 2, 3} <= set(on) for on in replicas_of(cluster, "archive"))
        cluster.start(3)
        wait_event(cluster, "replacement_undone", lambda event: event["brokers"] == [3])
        cluster.wait(lambda: set(replicas_of(cluster, "archive")), lambda on: on == {(1, 2, 3)})
        cluster.wait_in_sync("archive", 0, 3)

        cluster.kill(2)
        set_all(cluster, **{name.replace(".", "_"): "100000000" for name in COPY_RATES})
        for topic in ("orders", "archive"):
            for partition in range(PARTITIONS):
                cluster.wait_partition(topic, partition, has_left_broker_2)
        wait_event(cluster, "balance_planned", lambda event: event["removed"] == [2])
        load.wait_acknowledged()
        load.stop()
        load.check()


def balancing_status(cluster: Cluster) -> dict[str, Any]:
    """What the command shows; it fails while the cluster has no controller."""
    done = run(cluster, "cluster", "status", "--json")
    if done.returncode:
        return {"under_way": 0, "gone_seconds": {}}
    status: dict[str, Any] = json.loads(done.stdout)["balancing"]
    return status


def test_nothing_is_replaced_while_two_brokers_are_gone() -> None:
    # Longer than one of two that are paused at once can be the only one that is gone.
    delay_ms = 20_000
    with Cluster(brokers=4, config={**LOGS, "replica.replacement.delay.ms": delay_ms}) as cluster:
        create(cluster, "orders", (1, 2, 3))
        controller = cluster.controller
        victims = [broker for broker in (1, 2, 3) if broker != controller][:2]
        for broker in victims:
            cluster.pause(broker)  # as if the network had failed: both come back
        wait_event(cluster, "balance_held", lambda event: event["brokers"] == victims)
        cluster.wait(
            lambda: run_at(cluster, controller, "cluster", "status"),
            lambda text: "balancing is held" in text,
        )
        held_until_s = time.monotonic() + scaled(test=0, verify=2, release=2) * delay_ms / 1000
        while time.monotonic() < held_until_s:
            assert not find_events(cluster, "balance_planned")
            time.sleep(1)
        assert list_ongoing(cluster, "orders") == 0
        for broker in victims:
            cluster.resume(broker)
        cluster.wait_in_sync("orders", 0, 3)
        assert set(replicas_of(cluster, "orders")) == {(1, 2, 3)}
        assert not find_events(cluster, "balance_planned")


def run_at(cluster: Cluster, broker: int, *arguments: str) -> str:
    """The command's output, asked of one broker, because others may be paused."""
    address = cluster.bootstrap_servers.split(",")[broker - 1]
    return run(cluster, *arguments, "--bootstrap", address).stdout
