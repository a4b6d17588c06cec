"""Three brokers in network namespaces, for each lag time: CPU of idle and loaded brokers, ISR
changes while nothing is wrong and while a follower stalls, and how long a cut link blocks writes.

An ISR change is a write of a partition's state znode. Times are of this machine; compare rows.
"""

import os
import time
from collections.abc import Callable, Sequence
from threading import Timer
from typing import Any

from confluent_kafka import Producer
from kazoo.client import KazooClient

from penstock.testing import Cluster

QUIET_S = 15.0
STALL_S = 5.0  # the follower is stopped this long, as if its disk or host paused
DEADLINE_S = 90.0
IDLE, LOADED, CUT = "idle", "loaded", "cut"
BROKERS = (1, 2, 3)
_TICKS = os.sysconf("SC_CLK_TCK")


def measure(partitions: int, lags_ms: Sequence[int]) -> dict[str, Any]:
    rows = [_measure_one(lag_ms, partitions) for lag_ms in lags_ms]
    return {
        "partitions": partitions,
        "machine": {"cores": os.cpu_count(), "load_average": os.getloadavg()},
        "rows": rows,
    }


def _measure_one(lag_ms: int, partitions: int) -> dict[str, Any]:
    config = {"replica.lag.time.max.ms": lag_ms, "zookeeper.session.timeout.ms": 18_000}
    with Cluster(brokers=3, config=config, in_namespaces=True) as cluster:
        return _measure_started(cluster, lag_ms, partitions)


def _measure_started(cluster: Cluster, lag_ms: int, partitions: int) -> dict[str, Any]:
    for topic, count in ((IDLE, partitions), (LOADED, 12), (CUT, 12)):
        cluster.create_topic(topic, partitions=count, replication_factor=3)
        cluster.wait_in_sync(topic, count - 1, 3)
    row = {
        "lag_ms": lag_ms,
        "idle": _watch(cluster, lambda: time.sleep(QUIET_S)),
        "loaded": _watch(cluster, lambda: _load(cluster, QUIET_S)),
        "stalled_follower": _watch(cluster, lambda: _load_with_stall(cluster)),
        "cut_link_blocks_s": round(_cut(cluster), 1),
    }
    print(row, flush=True)
    return row


def _watch(cluster: Cluster, work: Callable[[], int | None]) -> dict[str, Any]:
    """CPU per broker in percent of a core, and ISR changes, while the work runs."""
    changes, cpu, start = _count_changes(cluster), _cpu_s(cluster), time.perf_counter()
    acknowledged = work()
    elapsed_s = time.perf_counter() - start
    after = _cpu_s(cluster)
    return {
        "cpu_percent": [round(100 * (after[n] - cpu[n]) / elapsed_s, 1) for n in BROKERS],
        "isr_changes": _count_changes(cluster) - changes,
        "seconds": round(elapsed_s, 1),
        "records_per_s": None if acknowledged is None else round(acknowledged / elapsed_s),
    }


def _load(cluster: Cluster, duration_s: float) -> int:
    sender = _Sender(cluster)
    end = time.perf_counter() + duration_s
    while time.perf_counter() < end:
        sender.send(LOADED)
    sender.finish()
    return sender.acknowledged


def _load_with_stall(cluster: Cluster) -> int:
    cluster.pause(3)
    resume = Timer(STALL_S, cluster.resume, [3])
    resume.start()
    acknowledged = _load(cluster, QUIET_S)
    resume.join()
    return acknowledged


def _cut(cluster: Cluster) -> float:
    """Seconds until acks=all writes proceed after the link between a leader and one follower is
    cut.

    The leader's broker is the controller: a leader that cannot reach the controller cannot change
    the ISR.
    """
    leader = cluster.controller
    follower = next(broker for broker in BROKERS if broker != leader)
    partition = next(n for n in range(12) if cluster.leader(CUT, n) == leader)
    sender = _Sender(cluster)
    sender.send_one(CUT, partition)
    for link in ((leader, follower), (follower, leader)):
        cluster.cut(*link)
    start = time.perf_counter()
    sender.send_one(CUT, partition)
    blocked_s = time.perf_counter() - start
    for link in ((leader, follower), (follower, leader)):
        cluster.join(*link)
    return blocked_s


class _Sender:
    def __init__(self, cluster: Cluster) -> None:
        self.acknowledged = 0
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "acks": "all",
                "linger.ms": 20,
                "queue.buffering.max.messages": 20_000,
                "log_level": 0,
            }
        )

    def send(self, topic: str) -> None:
        try:
            self._producer.produce(topic, bytes(100), on_delivery=self._note)
            self._producer.poll(0)
        except BufferError:
            self._producer.poll(0.05)

    def send_one(self, topic: str, partition: int) -> None:
        """Returns when the record is acknowledged."""
        wanted = self.acknowledged + 1
        self._producer.produce(topic, b"x", partition=partition, on_delivery=self._note)
        end = time.perf_counter() + DEADLINE_S
        while self.acknowledged < wanted:
            self._producer.poll(0.05)
            if time.perf_counter() > end:
                raise RuntimeError(f"{topic}-{partition}: not acknowledged in {DEADLINE_S:.0f} s")

    def finish(self) -> None:
        self._producer.flush(DEADLINE_S)

    def _note(self, error: Any, _: Any) -> None:
        self.acknowledged += error is None


def _cpu_s(cluster: Cluster) -> dict[int, float]:
    used: dict[int, float] = {}
    for broker in BROKERS:
        with open(f"/proc/{cluster.pid(broker)}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        used[broker] = (int(fields[11]) + int(fields[12])) / _TICKS
    return used


def _count_changes(cluster: Cluster) -> int:
    """The number of writes to all state znodes so far."""
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start()
    try:
        paths = [
            f"/brokers/topics/{topic}/partitions/{partition}/state"
            for topic in (IDLE, LOADED, CUT)
            for partition in zookeeper.get_children(f"/brokers/topics/{topic}/partitions")
        ]
        gets = [zookeeper.get_async(path) for path in paths]
        return sum(get.get()[1].version for get in gets)
    finally:
        zookeeper.stop()
        zookeeper.close()
