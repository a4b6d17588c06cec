"""`penstock cluster balance` and plans of `reassign` on real brokers, also stopped."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest
from tests.cluster.commands import begin, fill, json_lines, run
from tests.cluster.load import Load

from penstock.cli.throttled_reassignments import COPY_RATES
from penstock.client.admin_values import ConfigResource, NewTopic
from penstock.client.cluster import ClusterClient
from penstock.client.metadata import PartitionMetadata
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

BROKERS = (1, 2, 3, 4)
SLOW = "50000"  # bytes per second: what is copied at this rate is under way for long


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {"auto.create.topics.enable": False, "offsets.topic.num.partitions": 4}
    with Cluster(brokers=4, config=config) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, assignment: dict[int, tuple[int, ...]]) -> None:
    new = NewTopic(name=topic, assignment=assignment)
    cluster.ask(lambda client: client.admin.create_topics([new]))


def delete(cluster: Cluster, topic: str) -> None:
    cluster.ask(lambda client: client.admin.delete_topics([topic]))


def read_topic(cluster: Cluster, topic: str) -> list[PartitionMetadata]:
    return list(cluster.ask(lambda client: client.metadata([topic])).topics[topic].partitions)


def replicas_of(cluster: Cluster, topic: str) -> list[tuple[int, ...]]:
    return [tuple(partition.replicas) for partition in read_topic(cluster, topic)]


def copy_rates(cluster: Cluster) -> list[str]:
    """The throttle in force, as the brokers describe it."""

    async def ask(client: ClusterClient) -> list[str]:
        resource = ConfigResource.all_brokers()
        described = await client.admin.describe_configs([resource])
        return [entry.name for entry in described[resource] if entry.name in COPY_RATES]

    return cluster.ask(ask)


def list_ongoing(cluster: Cluster, topic: str | None = None) -> int:
    ongoing = cluster.ask(lambda client: client.reassignments.list_ongoing())
    return sum(tp.topic == topic for tp in ongoing) if topic else len(ongoing)


def test_a_cluster_is_balanced_under_load_and_a_second_plan_is_empty(cluster: Cluster) -> None:
    create(cluster, "crowded", dict.fromkeys(range(8), (1, 2)))
    load = Load(cluster, "crowded")
    load.wait_acknowledged()
    cluster.wait(lambda: load.committed, bool)  # the topic of the group's offsets exists by now
    done = run(
        cluster, "cluster", "balance", "--yes", "--json", "--throttle", "5000000", "--at-once", "3"
    )
    load.wait_acknowledged()
    load.stop()
    assert done.returncode == 0, done.stderr
    plan, *progress, result = json_lines(done.stdout)
    assert plan["type"] == "plan"
    assert {line["type"] for line in progress} == {"progress"}
    assert max(line["under_way"] for line in progress) <= 3
    assert len(result["done"]) == len(plan["reassignments"]) > 0
    load.check()
    assert (result["refused"], result["overtaken"]) == ({}, [])

    def counts() -> list[int]:
        """Replicas of each broker. A broker's metadata is a moment behind the controller's."""
        topics = ("crowded", "__consumer_offsets")
        on = Counter(
            broker for name in topics for of in replicas_of(cluster, name) for broker in of
        )
        return [on[broker] for broker in BROKERS]

    cluster.wait(counts, lambda now: max(now) - min(now) <= 1)
    assert all(len(replicas) == 2 for replicas in replicas_of(cluster, "crowded"))
    cluster.wait(lambda: copy_rates(cluster), lambda rates: rates == [])
    cluster.wait(lambda: plan_again(cluster), lambda reassignments: reassignments == [])
    delete(cluster, "crowded")


def plan_again(cluster: Cluster) -> list[object]:
    again = run(cluster, "cluster", "balance", "--dry-run", "--json")
    reassignments: list[object] = json.loads(again.stdout)["reassignments"]
    return reassignments


def test_ctrl_c_cancels_what_is_under_way_and_the_same_command_continues(cluster: Cluster) -> None:
    create(cluster, "slow", dict.fromkeys(range(4), (1, 2)))
    fill(cluster, "slow", 4, kib=4_000)  # more than the first fetches get before the throttle
    before = replicas_of(cluster, "slow")
    balance = ("cluster", "balance", "--remove-broker", "1", "--yes")
    process = begin(cluster, *balance, "--throttle", SLOW, "--at-once", "2")
    cluster.wait(partial(list_ongoing, cluster, "slow"), lambda count: count > 0)
    cluster.wait(lambda: copy_rates(cluster), lambda rates: rates == list(COPY_RATES))
    os.kill(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, (output, errors)
    assert "cancelling what is under way" in errors
    assert "cancelled, with their replicas as before" in output
    assert "run the command again to continue" in output
    assert list_ongoing(cluster) == 0
    cluster.wait(lambda: copy_rates(cluster), lambda rates: rates == [])
    cluster.wait(
        lambda: replicas_of(cluster, "slow"),
        lambda now: all(len(replicas) == 2 for replicas in now),
    )
    assert sum(1 in replicas for replicas in before) > 0
    done = run(cluster, *balance)
    assert done.returncode == 0, done.stderr
    cluster.wait(
        lambda: replicas_of(cluster, "slow"),
        lambda now: all(1 not in replicas and len(replicas) == 2 for replicas in now),
    )
    delete(cluster, "slow")


def test_cancel_from_elsewhere_ends_a_run(cluster: Cluster) -> None:
    create(cluster, "cancelled", dict.fromkeys(range(4), (1, 2)))
    fill(cluster, "cancelled", 4, kib=4_000)
    process = begin(
        cluster, "cluster", "balance", "--remove-broker", "2", "--yes", "--throttle", SLOW
    )
    cluster.wait(partial(list_ongoing, cluster, "cancelled"), lambda count: count > 0)
    cancelled = run(cluster, "cluster", "balance", "--cancel")
    assert cancelled.returncode == 0, cancelled.stderr
    assert "their partitions have their replicas of before" in cancelled.stdout
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, (output, errors)
    assert "somebody else cancelled or changed" in output
    assert list_ongoing(cluster) == 0
    delete(cluster, "cancelled")


def test_a_plan_in_kafkas_format_is_generated_run_and_reverted(cluster: Cluster) -> None:
    create(cluster, "planned", dict.fromkeys(range(4), (1, 2)))
    generate = ("cluster", "reassign", "planned", "--generate")
    before = json.loads(run(cluster, *generate, "--current").stdout)
    assert before["version"] == 1
    assert before["partitions"][0] == {"topic": "planned", "partition": 0, "replicas": [1, 2]}
    plan = run(cluster, *generate, "--brokers", "3,4").stdout
    done = run(
        cluster, "cluster", "reassign", "--plan", "-", "--wait", "--throttle", "9000000", stdin=plan
    )
    assert done.returncode == 0, done.stderr
    cluster.wait(
        lambda: replicas_of(cluster, "planned"),
        lambda now: all(set(replicas) == {3, 4} for replicas in now),
    )
    back = run(cluster, "cluster", "reassign", "--plan", "-", stdin=json.dumps(before))
    assert back.returncode == 0, back.stderr
    assert back.stdout.count("moves") == 4
    cluster.wait(lambda: replicas_of(cluster, "planned"), lambda now: set(now) == {(1, 2)})
    several = run(cluster, "cluster", "reassign", "planned-0", "planned-3", "--to", "3,4")
    assert several.stdout == "planned-0 moves\nplanned-3 moves\n"
    cluster.wait(
        lambda: replicas_of(cluster, "planned"),
        lambda now: now == [(3, 4), (1, 2), (1, 2), (3, 4)],
    )
    delete(cluster, "planned")


def test_a_run_that_nobody_confirms_is_wrong_usage(cluster: Cluster) -> None:
    done = run(cluster, "cluster", "balance")
    assert (done.returncode, done.stdout) == (2, "")
    assert "add --yes to run the plan" in done.stderr
