"""Faults of a cluster, each with evidence that it occurred: a fault without evidence does not
count.

After a fault every broker runs and every replica is in sync.
"""

import ssl
from collections.abc import Callable
from typing import NamedTuple

from tests.cluster.load import GROUP, PARTITIONS

from penstock.testing import Cluster

BROKERS = (1, 2, 3)


def heal(cluster: Cluster, topic: str) -> None:
    for partition in range(PARTITIONS):
        cluster.wait_in_sync(topic, partition, len(BROKERS))


def kill_leader(cluster: Cluster, topic: str) -> str:
    before = cluster.partition(topic, 0)
    cluster.kill(before.leader)
    after = cluster.wait_partition(topic, 0, lambda state: state.leader_epoch > before.leader_epoch)
    cluster.start(before.leader)
    return f"epoch {before.leader_epoch} -> {after.leader_epoch}"


def kill_follower(cluster: Cluster, topic: str) -> str:
    leader = cluster.leader(topic, 0)
    victim = next(broker for broker in BROKERS if broker != leader)
    pid = cluster.pid(victim)
    cluster.kill(victim)
    cluster.wait_partition(topic, 0, lambda state: victim not in state.in_sync)
    cluster.start(victim)
    assert cluster.pid(victim) != pid
    return f"broker {victim} left the in-sync set; process {pid} -> {cluster.pid(victim)}"


def kill_controller(cluster: Cluster, topic: str) -> str:
    before = cluster.controller
    cluster.kill(before)
    after = cluster.wait_controller(lambda broker: broker not in (before, -1))
    cluster.start(before)
    return f"controller {before} -> {after}"


def kill_coordinator(cluster: Cluster, topic: str) -> str:
    before = _find_coordinator(cluster)
    cluster.kill(before)
    after = cluster.wait(lambda: _find_coordinator(cluster), lambda broker: broker != before)
    cluster.start(before)
    return f"coordinator {before} -> {after}"


def _find_coordinator(cluster: Cluster) -> int:
    return int(cluster.ask(lambda client: client.groups.find_coordinator(GROUP)).id)


def pause_leader(cluster: Cluster, topic: str) -> str:
    """Pauses the leader for longer than its session timeout, so that it resumes as a deposed
    leader."""
    before = cluster.partition(topic, 0)
    cluster.pause(before.leader)
    after = cluster.wait_partition(topic, 0, lambda state: state.leader_epoch > before.leader_epoch)
    cluster.resume(before.leader)
    return f"epoch {before.leader_epoch} -> {after.leader_epoch}"


def cut_from_zookeeper(cluster: Cluster, topic: str) -> str:
    before = cluster.partition(topic, 0)
    cluster.cut_from_zookeeper(before.leader)
    after = cluster.wait_partition(topic, 0, lambda state: state.leader_epoch > before.leader_epoch)
    cluster.join_to_zookeeper(before.leader)
    return f"epoch {before.leader_epoch} -> {after.leader_epoch}"


def restart_all(cluster: Cluster, topic: str) -> str:
    pids = {broker: cluster.pid(broker) for broker in BROKERS}
    for broker in BROKERS:
        cluster.stop(broker)
        cluster.start(broker)
        heal(cluster, topic)
    assert all(cluster.pid(broker) != pids[broker] for broker in BROKERS)
    return "every process is another"


def rotate_certificates(cluster: Cluster, topic: str) -> str:
    """Of all brokers at once, while everybody is connected. Only with the security "mtls_scram"."""
    before = _served_certificates(cluster)
    cluster.renew_certificates()
    after = cluster.wait(
        lambda: _served_certificates(cluster), lambda served: not set(served) & set(before)
    )
    assert len(set(after)) == 1
    return f"{len(after)} listeners show another certificate"


def _served_certificates(cluster: Cluster) -> list[str]:
    """In PEM, of both listeners of each broker. The brokers' sends it before it asks for one."""
    served = []
    for broker in BROKERS:
        for listener in ("CLIENTS", "BROKERS"):
            host, _, port = cluster.address(broker, listener).rpartition(":")
            served.append(ssl.get_server_certificate((host, int(port)), timeout=30))
    return served


class Fault(NamedTuple):
    name: str
    do: Callable[[Cluster, str], str]  # returns the evidence


FAULTS = (
    Fault("kill the leader", kill_leader),
    Fault("kill a follower", kill_follower),
    Fault("kill the controller", kill_controller),
    Fault("kill the group's coordinator", kill_coordinator),
    Fault("pause the leader", pause_leader),
    Fault("cut the leader from ZooKeeper", cut_from_zookeeper),
    Fault("restart all, one by one", restart_all),
)
ROTATION = Fault("rotate the certificates", rotate_certificates)
