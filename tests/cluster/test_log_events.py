"""Brokers fail in several ways, and the brokers' logs alone tell what happened, and in which order.

The test reads nothing but the JSON lines once the faults are over.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.log_events import Step, find_in_order, step, wait_events
from tests.cluster.records import LEADER, ConnectedClient, create_on
from tests.profile import is_long

import penstock
from penstock.client.errors import ClientError, SendFailed
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

TOPIC = "orders"
SETTINGS = {"logging.format": "json", "auto.leader.rebalance.enable": "false"}


def kill_and_restart(cluster: Cluster, broker: int) -> None:
    """A leader logs 100 ms later who has joined an ISR; the next fault may hit that leader."""
    cluster.kill(broker)
    cluster.wait_in_sync(TOPIC, 0, 2)
    cluster.start(broker)
    cluster.wait_in_sync(TOPIC, 0, 3)
    wait_events(cluster, left_and_came_back(broker))


def pause_past_its_session(cluster: Cluster, broker: int) -> None:
    cluster.pause(broker)
    cluster.wait_in_sync(TOPIC, 0, 2)
    cluster.resume(broker)
    cluster.wait_in_sync(TOPIC, 0, 3)


def cut_past_its_session(cluster: Cluster, broker: int) -> None:
    cluster.cut_from_zookeeper(broker)
    cluster.wait_in_sync(TOPIC, 0, 2)
    cluster.join_to_zookeeper(broker)
    cluster.wait_in_sync(TOPIC, 0, 3)


def test_a_kill_and_a_pause_can_be_told_from_the_logs() -> None:
    """On a machine so slow that other sessions expire, too, there are more events, and others may
    be the controller: the steps name only what the faults force."""
    with Cluster(brokers=3, config=SETTINGS) as cluster:
        controller = cluster.controller
        killed, other = (broker for broker in (1, 2, 3) if broker != controller)
        create_on(cluster, TOPIC, (killed, controller, other))
        kill_and_restart(cluster, killed)
        paused = cluster.controller
        pause_past_its_session(cluster, paused)
        steps = [
            step("controller_elected"),
            step("topics_created", topics=TOPIC),
            step("broker_left", id=killed),
            step("leaders_changed", partitions=f"{TOPIC}-0"),
            step("isr_shrunk", replicas=killed),
            step("recovery_finished", by=killed),
            *came_back(killed),
            step("controller_elected"),
            step("broker_left", id=paused),
            *came_back(paused),
        ]
        events = wait_events(cluster, steps)
    _, _, _, moved, shrunk, *_ = find_in_order(events, steps)
    assert moved["reason"] == shrunk["reason"]
    assert moved["reason"] in (f"broker {killed} left", "controller failover")
    find_in_order(
        events, [step("session_expired", by=paused), step("broker_registered", by=paused)]
    )
    (resigned,) = find_in_order(events, [step("controller_resigned", by=paused)])
    elected = [event for event in events if event["event"] == "controller_elected"]
    of_paused = [event["epoch"] for event in elected if event["broker"] == paused]
    assert resigned["epoch"] in of_paused
    assert any(
        event["broker"] != paused and event["epoch"] > resigned["epoch"] for event in elected
    )


def came_back(broker: int) -> list[Step]:
    """A controller does not log the brokers that it finds registered when it is elected; they
    themselves do."""
    return [
        step("broker_registered", by=broker),
        step("isr_expanded", replicas=broker, reason="caught up"),
    ]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of the first broker is on a disk of 8 MiB."""
    folder = tmp_path / "broker1"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "penstock-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill_disk(cluster: Cluster, broker: int) -> None:
    """Until the broker has ended, because its only log directory has failed."""
    with penstock.Producer(cluster.bootstrap_servers, acks=1, linger_ms=0) as producer:
        for _ in range(1_000):
            try:
                producer.send_and_wait(TOPIC, bytes(16_000))
            except (SendFailed, ClientError):
                break
    cluster.wait_in_sync(TOPIC, 0, 2)
    cluster.wait(lambda: "broker_stranded" in cluster.logs(broker), bool)
    cluster.kill(broker)


@pytest.mark.skipif(not is_long(), reason="the short form runs above")
def test_kill_pause_cut_and_a_full_disk_can_be_told_from_the_logs(
    small_disk: Path, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "min.insync.replicas": 1}
    with Cluster(brokers=3, data=tmp_path, config=settings) as cluster:
        create_on(cluster, TOPIC, (1, 2, 3))
        kill_and_restart(cluster, 2)
        pause_past_its_session(cluster, 3)
        cut_past_its_session(cluster, 2)
        fill_disk(cluster, 1)
        subprocess.run(["mount", "-o", "remount,size=256m", str(small_disk)], check=True)
        cluster.start(1)
        cluster.wait_in_sync(TOPIC, 0, 3)
        # Each on its own: one may begin before the last line of the one before is written, and
        # broker 1 may become the controller that would report its return.
        faults = [
            left_and_came_back(2),
            left_and_came_back(3),
            [step("session_disconnected", by=2), *left_and_came_back(2)],
            [
                step("log_directory_failed", by=1),
                step("broker_stranded", by=1),
                step("recovery_started", by=1),
                step("broker_registered", by=1),
                step("isr_expanded", replicas=1),
            ],
        ]
        for steps in faults:
            events = wait_events(cluster, steps)
    find_in_order(
        events,
        [
            step("log_directory_failed", by=1),
            step("leaders_changed", partitions=f"{TOPIC}-0"),
            step("isr_shrunk", replicas=1, partitions=f"{TOPIC}-0"),
        ],
    )
    for broker in (2, 3):
        find_in_order(events, [step("session_expired", by=broker)])


def left_and_came_back(broker: int) -> list[Step]:
    """A broker leaves, whoever is the controller, and comes back."""
    return [step("broker_left", id=broker), *came_back(broker)]


@pytest.mark.skipif(not is_long(), reason="the rule for the reason has a unit test")
def test_a_leader_says_why_it_removes_a_follower_from_the_isr() -> None:
    settings = {
        **SETTINGS,
        "replica.lag.time.max.ms": 2000,
        "zookeeper.session.timeout.ms": 60_000,  # so that the leader is the first to notice
    }
    with Cluster(brokers=3, config=settings) as cluster:
        create_on(cluster, TOPIC, (1, 2, 3))
        # A paused controller would answer the leader's AlterPartition after the pause only.
        follower = next(broker for broker in (2, 3) if broker != cluster.controller)
        with ConnectedClient(cluster) as client:
            client.send(TOPIC, "before")
            cluster.pause(follower)
            client.send(TOPIC, "for a fetch that waits", acks=LEADER)
            client.send(TOPIC, "unseen", acks=LEADER)
        cluster.wait_in_sync(TOPIC, 0, 2)
        cluster.resume(follower)
        cluster.wait_in_sync(TOPIC, 0, 3)
        steps = [
            step("isr_shrunk", by=1, replicas=follower, partitions=f"{TOPIC}-0"),
            step("isr_expanded", by=1, replicas=follower, reason="caught up"),
        ]
        shrunk, _ = find_in_order(wait_events(cluster, steps), steps)
    assert shrunk["reason"] == "no fetch for replica.lag.time.max.ms"
