"""Three brokers, three replicas, acks=all: a fault of one broker loses nothing."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random

import pytest
from tests.cluster.faults import FAULTS, Fault, heal
from tests.cluster.load import PARTITIONS, Load
from tests.profile import is_long, scaled

from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

ROUNDS = scaled(test=1, verify=4, release=12)  # how often each fault occurs
AT_LEAST = scaled(test=5, verify=25, release=75)  # number of faults in one run
STOPS = scaled(test=2, verify=4, release=12)
LAG_S = 30.0  # replica.lag.time.max.ms, in seconds
TOPIC = "numbers"
Note = Callable[[str, Iterable[str]], None]


# In the long form also with brokers of both storage engines.
MIXED = {2: {"storage.engine": "commitlog"}, 3: {"storage.engine": "commitlog"}}
ENGINES: dict[str, dict[int, dict[str, str]]] = {
    "one engine": {},
    **({"mixed engines": MIXED} if is_long() else {}),
}


@pytest.fixture(scope="module", params=ENGINES)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(brokers=3, broker_configs=ENGINES[request.param]) as cluster:
        cluster.create_topic(
            TOPIC,
            partitions=PARTITIONS,
            replication_factor=3,
            config={"min.insync.replicas": 2},
        )
        heal(cluster, TOPIC)
        yield cluster


def test_no_fault_loses_or_duplicates_acknowledged_records(
    cluster: Cluster, record_note: Note
) -> None:
    load = Load(cluster, TOPIC)
    try:
        load.wait_acknowledged()
        plan = [fault for fault in FAULTS for _ in range(ROUNDS)]
        Random(7).shuffle(plan)
        seen = Counter(_do(fault, cluster, load, record_note) for fault in plan)
    finally:
        load.stop()
    load.check()
    assert seen.total() >= AT_LEAST
    assert set(seen) == {fault.name for fault in FAULTS}
    assert min(seen.values()) >= min(ROUNDS, 3)
    assert len(load.acknowledged) > 200 * len(plan)
    assert load.committed, "nothing was committed in all that time"


def test_clients_do_not_wait_for_a_stopped_controller(cluster: Cluster) -> None:
    """Controlled shutdown takes the broker out of every ISR at once: nothing waits for replica
    lag."""
    cluster.create_topic(
        "others", partitions=PARTITIONS, replication_factor=3, config={"min.insync.replicas": 2}
    )
    heal(cluster, "others")
    load = Load(cluster, "others")
    try:
        load.wait_acknowledged()
        for _ in range(STOPS):
            controller = cluster.controller
            cluster.stop(controller)
            assert load.wait_every_partition_acknowledges(time.monotonic()) < LAG_S / 2
            cluster.start(controller)
            heal(cluster, "others")
    finally:
        load.stop()
    load.check()


def _do(fault: Fault, cluster: Cluster, load: Load, record_note: Note) -> str:
    """Injects the fault; returns its name once the cluster has recovered and clients continue."""
    begun = time.monotonic()
    evidence = fault.do(cluster, TOPIC)
    assert evidence
    heal(cluster, TOPIC)
    load.wait_acknowledged()
    silence_s = load.longest_silence_s(begun)
    note = f"{fault.name}: {evidence}; longest without an acknowledgement {silence_s:.1f} s"
    print(note)
    record_note("cluster: faults and the evidence of each", [note])
    return fault.name
