"""Log end offset, high watermark and last stable offset in four pictures of a running cluster.

`python offsets.py [FOLDER]` brings three brokers into four states, asks them for their offsets, and
draws what they say: as SVG into the folder (without one, nothing is kept), and as text. Needs Java
for ZooKeeper and nothing else. The exit code is 0 only if the offsets are what the page says.
"""

import sys
import time
from pathlib import Path
from typing import NamedTuple

from broker_faults import (
    PATIENCE_S,
    SETTINGS,
    Freezer,
    create,
    kill,
    producer_at,
    wait_in_sync,
    wait_stored,
)
from replica_pictures import PartitionOffsets, ReplicaState, draw

import penstock
from penstock.client.topic_descriptions import PartitionDescription
from penstock.testing import Cluster

TOPIC = "pictures"


class Numbers(NamedTuple):
    """Of the leader, of A and of B."""

    starts: list[int]
    ends: list[int]
    committed: int
    stable: int


class View(NamedTuple):
    replicas: list[ReplicaState]
    offsets: PartitionOffsets

    def states(self) -> list[str]:
        return [replica.state for replica in self.replicas]

    def numbers(self) -> Numbers:
        return Numbers(
            starts=[replica.log_start_offset for replica in self.replicas],
            ends=[replica.log_end_offset for replica in self.replicas],
            committed=self.offsets.high_watermark,
            stable=self.offsets.last_stable_offset,
        )


class Gallery:
    """Asks the cluster, draws, and compares with what should be there."""

    def __init__(self, cluster: Cluster, leader: int, names: dict[int, str], folder: Path | None):
        self._address = cluster.bootstrap_servers.split(",")[leader - 1]
        self._cluster = cluster
        self._names = names
        self._folder = folder
        self._count = 0
        self._ends = dict.fromkeys(names, 0)  # as known last

    def add(self, title: str, caption: str, numbers: Numbers, state_of_b: str = "in sync") -> None:
        expected = (numbers, ["leader", "in sync", state_of_b])

        def is_so(view: View) -> bool:
            return (view.numbers(), view.states()) == expected

        # Followers learn of high watermarks, and leaders of followers' ends, with the next fetch.
        view = self._cluster.wait(
            self._look, lambda view: (view.numbers(), view.states()) == expected
        )
        self._ends = dict(zip(self._names, numbers.ends, strict=True))
        self._count += 1
        print(f"\n{self._count}. {title}")
        for replica in view.replicas:
            print(f"   {replica.name:>9}, {replica.state:<22} log end {replica.log_end_offset}")
        print(f"   high watermark {numbers.committed}, last stable offset {numbers.stable}")
        if self._folder is not None:
            path = self._folder / f"offsets-{self._count}.svg"
            path.write_text(draw(f"{self._count}. {title}", caption, *view))

    def _look(self) -> View:
        tp = (TOPIC, 0)
        with penstock.Admin(self._address) as admin:
            [partition] = admin.describe_topics([TOPIC])[TOPIC].partitions
            stable = admin.list_offsets({tp: "latest"}, isolation="read_committed")[tp].offset
        return View(
            [self._state_of(partition, broker) for broker in self._names],
            PartitionOffsets(
                high_watermark=partition.high_watermark or 0, last_stable_offset=stable or 0
            ),
        )

    def _state_of(self, partition: PartitionDescription, broker: int) -> ReplicaState:
        """One that does not answer is described by its leader, as long as that follows it."""
        [replica] = [replica for replica in partition.replicas if replica.broker == broker]
        end = replica.log_end_offset
        return ReplicaState(
            name=self._names[broker],
            state=replica.state,
            log_start_offset=replica.log_start_offset or 0,
            log_end_offset=self._ends[broker] if end is None else end,
        )


def main(folder: Path | None) -> None:
    started = time.monotonic()
    with Cluster(brokers=3, config=SETTINGS) as cluster:
        leader = next(broker for broker in (1, 2, 3) if broker != cluster.controller)
        a, b = (broker for broker in (1, 2, 3) if broker != leader)
        create(cluster, {TOPIC: {}}, (leader, a, b), "record 0")
        gallery = Gallery(cluster, leader, {leader: "leader", a: "A", b: "B"}, folder)
        with producer_at(cluster, leader, acks="all") as producer:
            for number in range(1, 4):
                producer.send_and_wait(TOPIC, f"record {number}", partition=0)
        gallery.add(
            "All have caught up",
            "What every replica in sync has is committed: consumers read up to the high watermark.",
            Numbers(starts=[0, 0, 0], ends=[4, 4, 4], committed=4, stable=4),
        )
        let_one_fall_behind(cluster, gallery, leader, a, b)
        show_a_transaction(cluster, gallery, leader, a, b)
    print(f"\nAll steps held, in {time.monotonic() - started:.1f} s.")


def let_one_fall_behind(cluster: Cluster, gallery: Gallery, leader: int, a: int, b: int) -> None:
    with Freezer(cluster, leader) as freezer, producer_at(cluster, leader, acks="all") as producer:
        freezer.freeze(b)
        sent = [producer.send(TOPIC, f"record {number}", partition=0) for number in (4, 5, 6)]
        records = [f"record {number}" for number in range(7)]
        for broker in (leader, a):
            wait_stored(cluster, broker, TOPIC, records)
        gallery.add(
            "B is frozen, and still in sync",
            "Three records are written and not committed. Their producer (acks=all) waits for B.",
            Numbers(starts=[0, 0, 0], ends=[7, 7, 4], committed=4, stable=4),
            "in sync, no answer",
        )
        assert not any(future.done() for future in sent)
        kill(cluster, b)
        wait_in_sync(cluster, [TOPIC], (leader, a))
        for future in sent:
            future.result(PATIENCE_S)
        gallery.add(
            "B has left the ISR",
            "The high watermark is the smallest end of those in sync: it moves on without B.",
            Numbers(starts=[0, 0, 0], ends=[7, 7, 4], committed=7, stable=7),  # B's as known last
            "out of sync, no answer",
        )


def show_a_transaction(cluster: Cluster, gallery: Gallery, leader: int, a: int, b: int) -> None:
    cluster.start(b)
    wait_in_sync(cluster, [TOPIC], (leader, a, b))
    with penstock.Admin(cluster.bootstrap_servers) as admin:
        admin.delete_records({(TOPIC, 0): 2})
    servers = cluster.bootstrap_servers
    with (
        penstock.TransactionalProducer(servers, transactional_id="open") as transactional,
        penstock.Producer(servers) as producer,
    ):
        transactional.begin()
        transactional.send(TOPIC, "undecided", partition=0)
        transactional.flush()
        producer.send_and_wait(TOPIC, "after it", partition=0)
        gallery.add(
            "B is back, two records are deleted, a transaction is open",
            "read_committed consumers read up to the last stable offset, before the transaction.",
            Numbers(starts=[2, 2, 2], ends=[9, 9, 9], committed=9, stable=7),
        )
        transactional.abort()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit("python offsets.py [FOLDER]")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
