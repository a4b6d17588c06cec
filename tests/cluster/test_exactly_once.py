"""Three brokers and transactional copiers: whatever is killed, each number is copied exactly once.

Numbers with the same key keep their order, and at the end no transaction is open.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.copying import (
    KEYS,
    PARTITIONS,
    SOURCE,
    TARGET,
    CopierProcess,
    Feed,
    read_copies,
    wait_copied,
    wait_decided,
)
from tests.cluster.faults import heal, kill_leader
from tests.profile import scaled

from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

MESSAGES = scaled(test=5_000, verify=100_000, release=400_000)
RATE = 800  # numbers per second during the faults
BROKER_KILLS = scaled(test=1, verify=4, release=20)
CLIENT_KILLS = scaled(test=1, verify=6, release=30)
STATE_PARTITIONS = 5  # of each internal topic: enough that several brokers coordinate
SETTINGS = {
    "transaction.state.log.num.partitions": STATE_PARTITIONS,
    "offsets.topic.num.partitions": STATE_PARTITIONS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
UNDECIDED = ("Ongoing", "PrepareCommit", "PrepareAbort")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=SETTINGS) as cluster:
        for topic in (SOURCE, TARGET):
            cluster.create_topic(
                topic,
                partitions=PARTITIONS,
                replication_factor=3,
                config={"min.insync.replicas": 2},
            )
            heal(cluster, topic)
        yield cluster


def test_kills_neither_lose_nor_duplicate_transactional_copies(
    cluster: Cluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    begun = time.monotonic()

    def note(what: str) -> None:
        note = f"{time.monotonic() - begun:5.1f} s, {feed.sent} sent: {what}"
        print(note)
        record_property("event", note)

    feed = Feed(cluster, least=MESSAGES, rate=RATE)
    with copying(cluster, tmp_path) as copiers:
        note("all copiers are at work")
        try:
            for evidence in inject_faults(cluster, copiers):
                note(evidence)
                heal(cluster, TARGET)
        finally:
            feed.stop()
        note("everything is sent")
        wait_copied(cluster)
        given_up = sum(copier.given_up for copier in copiers)
        note(f"everything is copied; clients gave up {given_up} times by themselves")
    wait_nothing_open(cluster)
    note("nothing is open")

    copies = read_copies(cluster)
    for key in range(KEYS):
        assert copies[key] == list(range(key, feed.sent, KEYS)), f"copies of key {key}"
    assert feed.sent >= MESSAGES


@contextmanager
def copying(cluster: Cluster, note: Path) -> Iterator[list[CopierProcess]]:
    """Runs two copiers; both must exit with success unless the block fails."""
    copiers = [CopierProcess(cluster, name, note / f"{name}.log") for name in ("left", "right")]
    try:
        for copier in copiers:
            copier.wait_open()
        yield copiers
    except BaseException:
        for copier in copiers:
            copier.kill()
        raise
    for copier in copiers:
        copier.stop()


def inject_faults(cluster: Cluster, copiers: list[CopierProcess]) -> Iterator[str]:
    """Injects one fault after the other while records are copied; yields the evidence of each."""
    for turn in range(max(BROKER_KILLS, CLIENT_KILLS)):
        copier = copiers[turn % len(copiers)]
        if turn < CLIENT_KILLS:
            yield kill_client(copier)
        if turn < BROKER_KILLS:
            copier.wait_open()
            yield (
                kill_coordinator(cluster, copier.name)
                if turn % 2 == 0
                else kill_leader(cluster, TARGET)
            )


def kill_client(copier: CopierProcess) -> str:
    before = copier.pid
    copier.kill_in_transaction()
    copier.start()
    copier.wait_open()
    return f"copier {copier.name}: process {before} -> {copier.pid}"


def kill_coordinator(cluster: Cluster, name: str) -> str:
    """Kills the coordinator of this transactional id."""
    before = find_coordinator(cluster, name)
    cluster.kill(before)
    after = cluster.wait(lambda: find_coordinator(cluster, name), lambda broker: broker != before)
    cluster.start(before)
    return f"coordinator of {name}: {before} -> {after}"


def find_coordinator(cluster: Cluster, name: str) -> int:
    return int(cluster.ask(lambda client: client.transactions.describe(name)).coordinator.id)


def wait_nothing_open(cluster: Cluster) -> None:
    """Waits until no transaction is open at a coordinator or in a partition."""
    cluster.wait(
        lambda: cluster.ask(lambda client: client.transactions.list_transactions(states=UNDECIDED)),
        lambda open_: not open_,
    )
    wait_decided(cluster, TARGET)
    wait_decided(cluster, "__consumer_offsets", STATE_PARTITIONS)
