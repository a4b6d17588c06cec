"""kill -9 under load: acknowledged records survive.

With synchronous flush every response leaves after fdatasync; the system calls show it, so that a
power cut loses nothing either. By default records are in the page cache, which survives a killed
process.
"""

import asyncio
import re
import shutil
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.profile import scaled

import penstock
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST
from penstock.model.ids import TopicPartition
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch

SYNCHRONOUS = {"log.flush.interval.messages": 1}
PARTITIONS = 4
KILLS = scaled(test=1, verify=8, release=40)
LEAST_ACKNOWLEDGED = 300  # acknowledged before the kill


class Load:
    """Sends numbers until the broker is gone, and records which were acknowledged."""

    def __init__(self, servers: str, first: int) -> None:
        self.acknowledged: list[int] = []
        self._next = first
        self._stop = threading.Event()
        self._producer = penstock.Producer(servers, linger_ms=1, delivery_timeout_ms=1_500)
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        while not self._stop.is_set():
            number, self._next = self._next, self._next + 1
            future = self._producer.send(
                "load", str(number).encode(), partition=number % PARTITIONS
            )
            future.add_done_callback(partial(self._note, number))
            if number % 50 == 0:
                time.sleep(0.001)  # leaves CPU time to the broker

    def _note(self, number: int, done: Any) -> None:
        if done.exception() is None:
            self.acknowledged.append(number)

    def wait_acknowledged(self, count: int) -> None:
        deadline = time.monotonic() + 180
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, f"only {len(self.acknowledged)} acknowledged"
            time.sleep(0.01)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close()


def read_all(servers: str) -> list[int]:
    """All records of the partitions, up to their log end offsets."""
    count = asyncio.run(count_records(servers))
    numbers: list[int] = []
    with penstock.Consumer(
        "load", bootstrap_servers=servers, from_beginning=True, timeout_s=30
    ) as consumer:
        while len(numbers) < count:
            numbers.extend(int(message.value or b"") for message in consumer.poll_batch(10_000, 30))
    return numbers


async def count_records(servers: str) -> int:
    partitions = [TopicPartition("load", number) for number in range(PARTITIONS)]
    async with ClusterClient(servers) as client:
        ends = await client.list_offsets(dict.fromkeys(partitions, LATEST))
        return sum(end.offset for end in ends.values())


@pytest.mark.parametrize("mode", ["synchronous", "default"])
def test_no_acknowledged_record_is_lost_by_a_kill(mode: str, tmp_path: Path) -> None:
    config = SYNCHRONOUS if mode == "synchronous" else {}
    broker = penstock.Broker(data=tmp_path, config=config)
    acknowledged: set[int] = set()
    broker.start()
    broker.create_topic("load", partitions=PARTITIONS)
    for kill in range(KILLS):
        load = Load(broker.bootstrap_servers, first=kill * 1_000_000_000)
        load.wait_acknowledged(LEAST_ACKNOWLEDGED)
        broker.kill()
        load.end()
        acknowledged.update(load.acknowledged)
        broker.start()
        numbers = read_all(broker.bootstrap_servers)
        assert acknowledged <= set(numbers)
        assert len(numbers) == len(set(numbers)), "an idempotent producer leaves no duplicate"
        for partition in range(PARTITIONS):
            mine = [number for number in numbers if number % PARTITIONS == partition]
            assert mine == sorted(mine), "order within a partition is the order of sending"
    broker.stop()


# -- the system calls --------------------------------------------------------------------------

_CALL = re.compile(r"^\d+ +(?P<name>\w+)\((?P<fd>\d+)<(?P<path>[^>]*)>.*= (?P<result>-?\d+)")


def trace_produce(broker: penstock.Broker, out: Path, count: int) -> list[tuple[str, str]]:
    """The system calls of `count` sequential produce requests: (call, path)."""
    command = [
        "strace",
        "-f",
        "-y",
        "-s",
        "0",
        "-e",
        "trace=write,fdatasync,sendto,sendmsg,sendfile",
    ]
    with subprocess.Popen(
        [*command, "-o", str(out), "-p", str(broker.pid)], stderr=subprocess.PIPE, text=True
    ) as strace:
        assert strace.stderr is not None
        assert "attached" in strace.stderr.readline()
        asyncio.run(produce(broker.bootstrap_servers, count))
        strace.send_signal(signal.SIGINT)
        strace.wait(180)
    calls = [_CALL.match(line) for line in _joined(out.read_text().splitlines())]
    return [(call["name"], call["path"]) for call in calls if call is not None]


def _joined(lines: list[str]) -> list[str]:
    """Joins calls that strace splits over two lines, at the line where they return."""
    joined, begun = [], {}
    for line in lines:
        thread = line.split()[0]
        if line.endswith("<unfinished ...>"):
            begun[thread] = line.removesuffix("<unfinished ...>")
        elif " resumed>" in line:
            joined.append(begun.pop(thread) + line.split(" resumed>", 1)[1])
        else:
            joined.append(line)
    return joined


async def produce(servers: str, count: int) -> None:
    async with ClusterClient(servers) as client:
        for number in range(count):
            record = Record(
                offset=0, timestamp_ms=1, key=None, value=str(number).encode(), headers=()
            )
            batch = build_batch([record], codec=Codec.NONE)
            await client.produce(TopicPartition("traced", 0), bytes(batch), acks=-1)


def count_responses_before_sync(calls: list[tuple[str, str]]) -> tuple[int, int]:
    """Counts responses that left before the log was synced, and writes to the log."""
    early = writes = 0
    is_dirty = False
    for name, path in calls:
        if name == "write" and path.endswith(".log"):
            writes += 1
            is_dirty = True
        elif name == "fdatasync" and path.endswith(".log"):
            is_dirty = False
        elif name in ("sendto", "sendmsg", "sendfile") and is_dirty:
            early += 1
            is_dirty = False
    return early, writes


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("mode", ["synchronous", "default"])
def test_a_response_leaves_after_fdatasync_has_returned(mode: str, tmp_path: Path) -> None:
    config = SYNCHRONOUS if mode == "synchronous" else {}
    with penstock.Broker(config=config) as broker:
        broker.create_topic("traced")
        calls = trace_produce(broker, tmp_path / "trace", count=50)
    early, writes = count_responses_before_sync(calls)
    assert writes == 50
    if mode == "synchronous":
        assert early == 0
    else:  # the control: its trace must show responses before a sync
        assert early > 0
