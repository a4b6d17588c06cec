"""Half messages while brokers and clients are killed: delivered once if, and only if, the first
decision is commit, and not before; those that nobody decided about are asked for."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import IO

import pytest
from tests.cluster.half_clients import GROUP, TOPIC, delay_ms, is_committed
from tests.cluster.test_delayed_messages import _await_quiet, _Reader
from tests.profile import scaled

from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

SHARDS = "__penstock_deferred"
PARTITIONS = 2
COUNT = scaled(test=200, verify=20_000, release=50_000)
KILLS = scaled(test=1, verify=12, release=20)
HANG_S = 240.0  # without any progress
CONFIG = {"min.insync.replicas": "2"}


def test_kills_neither_lose_nor_repeat_nor_invent_a_half_message() -> None:
    config = {
        "penstock.delayed.topic.num.partitions": 3,
        "penstock.half.first.check.ms": 3_000,
        "penstock.half.check.interval.ms": 2_000,
    }
    with Cluster(brokers=3, config=config) as cluster:
        make_topics(cluster)
        clients = Clients(cluster.bootstrap_servers)
        with _Reader(cluster.bootstrap_servers, TOPIC, PARTITIONS) as reader:
            try:
                clients.start("checker")
                clients.start("producer")
                for kill in range(KILLS):
                    clients.wait(lambda: clients.begun, COUNT * (2 * kill + 1) // (2 * KILLS))
                    kill_a_leader(cluster, kill)
                    clients.replace("producer" if kill % 2 == 0 else "checker")
                clients.wait(lambda: clients.done, COUNT)
                certain = {number for number in clients.stored if is_committed(number)}
                reader.wait(lambda read: len(read) >= len(certain))
                reader.wait(lambda read: {int(one.value() or b"") for one in read} >= certain)
                _await_quiet(reader)
            finally:
                clients.close()
    read = Counter(int(message.value() or b"") for message in reader.messages)
    assert set(read.values()) <= {1}
    assert read.keys() >= certain
    # A client that was killed may have stored halves without its knowing: they are asked for.
    assert read.keys() <= {number for number in range(clients.begun + 1) if is_committed(number)}
    for message, read_ms in zip(reader.messages, reader.read_ms, strict=True):
        number = int(message.value() or b"")
        assert read_ms >= clients.decided_ms[number] + delay_ms(number), f"{number} came early"
    print(
        f"{len(read)} of {len(clients.stored)} stored halves delivered, {clients.count} clients, "
        f"{len(clients.decided_ms)} decided"
    )


def make_topics(cluster: Cluster) -> None:
    bound = CONFIG | {"penstock.half.groups": GROUP}
    for name, configs in (
        (TOPIC, CONFIG),
        (f"{GROUP}.half.checks", CONFIG),
        (f"{TOPIC}.half.expired", CONFIG),
        (f"{TOPIC}.half.decisions", bound),
        (f"{TOPIC}.half", bound),
    ):
        cluster.create_topic(name, partitions=PARTITIONS, replication_factor=3, config=configs)


def kill_a_leader(cluster: Cluster, kill: int) -> None:
    """Of the shard, of the halves, the controller, of the target; in turn."""
    led = (SHARDS, 0), (f"{TOPIC}.half", 0), None, (TOPIC, 1)
    chosen = led[kill % len(led)]
    topic, partition = chosen or (TOPIC, 0)
    victim = cluster.leader(topic, partition) if chosen else cluster.controller
    cluster.kill(victim)
    cluster.wait_partition(topic, partition, lambda state: state.leader not in (victim, -1))
    cluster.start(victim)
    for index in range(PARTITIONS):
        cluster.wait_in_sync(TOPIC, index, 3)


class Clients:
    """A producer and a checker, each of which another takes over from when it is killed."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.count = 0
        self.begun = self.done = -1
        self.stored: set[int] = set()  # as the producers were told
        self.decided_ms: dict[int, int] = {}  # the earliest that anybody may have decided
        self._servers = bootstrap_servers
        self._processes: dict[str, tuple[subprocess.Popen[str], threading.Thread]] = {}

    def start(self, role: str) -> None:
        self.count += 1
        settings = [role, self._servers]
        if role == "producer":
            settings += [str(self.begun + 1), str(COUNT)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.half_clients", *settings],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        output = threading.Thread(target=self._read, args=(process.stdout,))
        output.start()
        self._processes[role] = process, output

    def replace(self, role: str) -> None:
        self._kill(role)
        self.start(role)

    def wait(self, progress: Callable[[], int], wanted: int) -> None:
        seen, deadline = progress(), time.monotonic() + HANG_S
        while seen < wanted:
            assert time.monotonic() < deadline, f"nothing beyond {seen} of {wanted}"
            assert self._processes["producer"][0].poll() in (None, 0)
            time.sleep(0.05)
            if progress() != seen:
                seen, deadline = progress(), time.monotonic() + HANG_S

    def close(self) -> None:
        for role in tuple(self._processes):
            self._kill(role)

    def _kill(self, role: str) -> None:
        process, output = self._processes.pop(role)
        process.kill()
        process.wait(HANG_S)
        output.join(HANG_S)

    def _read(self, output: IO[str]) -> None:
        with output:
            for line in output:
                if line.endswith("\n"):  # else it was killed while it wrote
                    word, first, second = line.split()
                    self._take(word, int(first), int(second))

    def _take(self, word: str, first: int, second: int) -> None:
        if word == "begun":
            self.begun = second
        elif word == "stored":
            self.stored |= set(range(first, second + 1))
        elif word == "decided":
            self.decided_ms[first] = min(second, self.decided_ms.get(first, second))
        else:
            self.done = second
