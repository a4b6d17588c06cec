"""Three brokers that show certificates to each other, clients that log in by SCRAM: a fault loses
nothing, nobody else is heard meanwhile, and certificates are rotated without a lost connection."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

import pytest
from tests.cluster.faults import BROKERS, FAULTS, ROTATION, Fault, heal
from tests.cluster.load import PARTITIONS, Load
from tests.cluster.strangers import Strangers
from tests.profile import is_long, scaled

from penstock.testing import Cluster

pytestmark = [
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(not is_long(), reason="minutes of faults: PROFILE=verify"),
]

ROUNDS = scaled(test=1, verify=2, release=6)  # how often each fault occurs
ROTATIONS = scaled(test=1, verify=5, release=20)
TOPIC = "numbers"
# Of a follower or a controller that could not reach a broker.
_LOST = ("fetch_failed", "broker_unreachable", "session_disconnected")
Note = Callable[[str, Iterable[str]], None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {"min.insync.replicas": 2, "penstock.ssl.reload.interval.ms": 500}
    with Cluster(brokers=3, security="mtls_scram", config=config) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        heal(cluster, TOPIC)
        yield cluster


def test_certificates_are_rotated_without_a_lost_connection(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("rotated", partitions=PARTITIONS, replication_factor=3)
    heal(cluster, "rotated")
    load = Load(cluster, "rotated")
    try:
        load.wait_acknowledged(300)
        before = _count_losses(cluster)
        for _ in range(ROTATIONS):
            ROTATION.do(cluster, "rotated")
            load.wait_acknowledged(300)
        lost = _count_losses(cluster) - before
    finally:
        load.stop()
    load.check()
    assert load.disconnects == []
    assert not lost


def test_no_fault_loses_records_or_lets_strangers_in(
    cluster: Cluster, tmp_path: Path, record_note: Note
) -> None:
    load = Load(cluster, TOPIC)
    strangers = Strangers(cluster, BROKERS, tmp_path)
    try:
        load.wait_acknowledged()
        plan = [fault for fault in (*FAULTS, ROTATION) for _ in range(ROUNDS)]
        Random(11).shuffle(plan)
        for fault in plan:
            _do(fault, cluster, load, record_note)
    finally:
        strangers.stop()
        load.stop()
    load.check()
    strangers.check(at_least=3 * len(plan))
    assert len(load.acknowledged) > 200 * len(plan)
    assert load.committed, "nothing was committed in all that time"


def _count_losses(cluster: Cluster) -> Counter[str]:
    return Counter(
        event for broker in BROKERS for event in _LOST for _ in _lines(cluster.logs(broker), event)
    )


def _lines(log: str, event: str) -> list[str]:
    return [line for line in log.splitlines() if f" {event}: " in line]


def _do(fault: Fault, cluster: Cluster, load: Load, record_note: Note) -> None:
    """Injects the fault; returns once the cluster has recovered and clients continue."""
    begun = time.monotonic()
    evidence = fault.do(cluster, TOPIC)
    assert evidence
    heal(cluster, TOPIC)
    load.wait_acknowledged()
    silence_s = load.longest_silence_s(begun)
    note = f"{fault.name}: {evidence}; longest without an acknowledgement {silence_s:.1f} s"
    print(note)
    record_note("cluster: faults of secured brokers and the evidence of each", [note])
