"""A topic that is filled while copiers, in processes of their own, copy it in transactions.

Records what was sent, so that a test can compare at the end. Only this module kills copiers, and
restarts them under the same name.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST, IsolationLevel
from penstock.model import ids
from penstock.testing import Cluster

REPOSITORY = Path(__file__).parents[2]
PARTITIONS = 3
KEYS = 30
SOURCE, TARGET, GROUP = "numbers", "copies", "copiers"
PATIENCE_S = 120.0
PAUSES_A_SECOND = 50


class Feed:
    """Sends numbers, each with one of the keys, at a rate until `stop`; then sends as fast as
    possible until there are `least` of them."""

    def __init__(self, cluster: Cluster, *, least: int, rate: int) -> None:
        self.sent = 0
        self._least = least
        self._rate = rate
        self._failed: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "delivery.timeout.ms": int(PATIENCE_S * 1000),
                "linger.ms": 5,
                "log_level": 0,
                "on_delivery": self._note,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in count():
            if self._stop.is_set() and number >= self._least:
                break
            key = number % KEYS
            self._producer.produce(SOURCE, str(number), str(key), key % PARTITIONS)
            self.sent = number + 1
            if number % (self._rate // PAUSES_A_SECOND) == 0:
                self._producer.poll(0)
                self._stop.wait(1 / PAUSES_A_SECOND)
        assert self._producer.flush(PATIENCE_S) == 0

    def _note(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(str(error))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive()
        assert self._failed == []


class CopierProcess:
    """One copier, over all its restarts: when it exits by itself, it is started again."""

    def __init__(self, cluster: Cluster, name: str, log: Path) -> None:
        self.name = name
        self.given_up = 0  # how often it exited with SIGALRM
        self._command = [sys.executable, "-m", "tests.cluster.copier", cluster.bootstrap_servers]
        self._command += [GROUP, SOURCE, TARGET, name]
        self._log = log
        self._opened = 0  # number of transactions, over all restarts
        self._said = threading.Condition()
        self.start()

    def start(self) -> None:
        self._spawn()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def _spawn(self) -> None:
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=errors, cwd=REPOSITORY
            )

    def _watch(self) -> None:
        while self._run_once() == -signal.SIGALRM:
            self.given_up += 1
            self._spawn()
        with self._said:
            self._said.notify_all()  # the copier has ended

    def _run_once(self) -> int:
        """Counts the transactions of one process; returns its exit code."""
        with self._process as process:
            assert process.stdout is not None
            for _ in process.stdout:
                with self._said:
                    self._opened += 1
                    self._said.notify_all()
        return self._process.returncode

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_open(self, more: int = 1) -> None:
        """Waits until it has begun this many more transactions."""
        wanted = self._opened + more
        with self._said:
            self._said.wait_for(
                lambda: self._opened >= wanted or not self._watcher.is_alive(), PATIENCE_S
            )
        assert self._opened >= wanted, f"{self.name} does not go on: {self._log.read_text()}"

    def kill_in_transaction(self) -> None:
        """Kills it with SIGKILL while a transaction is open or about to be committed."""
        self.wait_open()
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._watcher.join(PATIENCE_S)

    def stop(self) -> None:
        """Repeats the signal, because the process may exit with SIGALRM and be restarted even
        now."""
        while self._watcher.is_alive():
            self._process.terminate()
            self._watcher.join(1.0)
        status = self._process.returncode
        assert status in (0, -signal.SIGTERM), f"{self.name}: {status}: {self._log.read_text()}"


# -- afterwards ----------------------------------------------------------------------------


def wait_copied(cluster: Cluster) -> None:
    """Waits until the group has committed the end of every source partition. Any duration is fine,
    as long as there is progress."""
    left = _count_left(cluster)
    while left:
        before = left
        left = cluster.wait(lambda: _count_left(cluster), lambda seen: seen < before)  # noqa: B023


def _count_left(cluster: Cluster) -> int:
    places = _places(SOURCE)

    async def read(client: ClusterClient) -> int:
        ends = await client.list_offsets(dict.fromkeys(places, LATEST))
        committed = await client.groups.fetch_offsets(GROUP, places)
        done = sum(committed[tp].offset for tp in places if tp in committed)
        return sum(end.offset for end in ends.values()) - done

    return cluster.ask(read)


def wait_decided(cluster: Cluster, topic: str, partitions: int = PARTITIONS) -> None:
    """Waits until the last stable offset of each partition is its high watermark."""
    wanted = dict.fromkeys(_places(topic, partitions), LATEST)

    async def read(client: ClusterClient) -> list[tuple[int, int]]:
        ends = await client.list_offsets(wanted)
        stable = await client.list_offsets(wanted, isolation=IsolationLevel.READ_COMMITTED)
        return [(stable[tp].offset, ends[tp].offset) for tp in wanted]

    cluster.wait(lambda: cluster.ask(read), lambda seen: all(a == b for a, b in seen))


def read_copies(cluster: Cluster) -> dict[int, list[int]]:
    """The committed values by key, in partition order."""
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "none: partitions are assigned",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    reader.assign([TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)])
    values: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message: Any = reader.poll(PATIENCE_S)
        assert message is not None, f"only {ended} were read to their ends"
        error = message.error()
        if error is None:
            values[int(message.key())].append(int(message.value()))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    reader.close()
    return values


def _places(topic: str, partitions: int = PARTITIONS) -> list[ids.TopicPartition]:
    return [ids.TopicPartition(topic, number) for number in range(partitions)]
