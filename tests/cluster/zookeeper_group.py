"""Harness: a group in ZooKeeper of processes that are killed and paused, and what they have read.

A doubled message is explained by its first reader: a member that was killed or paused, or whose
session expired on a slow machine, after it had read it, and before it could commit. Of a paused
member also the one message that it held: it writes it down when it wakes, after another member has
read it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import penstock
from penstock.testing import Cluster

PROGRAM = Path(__file__).with_name("zookeeper_member.py")


class Line(NamedTuple):
    """Of a member's journal."""

    at_s: float
    member: int
    partition: int
    offset: int
    value: str


class GroupMemberProcess:
    def __init__(self, number: int, command: list[str], journal: Path) -> None:
        self.number = number
        self._journal = journal
        with (
            journal.with_suffix(".out").open("wb") as output,
            journal.with_suffix(".err").open("wb") as errors,
        ):
            self._process = subprocess.Popen([*command, str(journal)], stdout=output, stderr=errors)
        self.broken_at_s: list[float] = []  # when it was killed or paused

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self.broken_at_s.append(time.monotonic())
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        self.broken_at_s.append(time.monotonic())
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> int:
        if self.is_running:
            self._process.terminate()
        return self._process.wait(120)

    def expired_at_s(self) -> list[float]:
        """When it noticed that its session had expired."""
        expired = Path(f"{self._journal}.expired")
        return list(map(float, expired.read_text().split())) if expired.exists() else []

    def lost_at_s(self) -> list[float]:
        return [*self.broken_at_s, *self.expired_at_s()]

    def errors(self) -> str:
        return self._journal.with_suffix(".err").read_text()

    def lines(self) -> Iterator[Line]:
        if not self._journal.exists():
            return
        for text in self._journal.read_text().splitlines(keepends=True):
            if text.endswith("\n"):  # else it was killed while it wrote
                at_s, partition, offset, value = text.split()
                yield Line(float(at_s), self.number, int(partition), int(offset), value)


class ZooKeeperGroup:
    def __init__(self, cluster: Cluster, folder: Path, *, group: str, topic: str) -> None:
        self.cluster = cluster
        self.group = group
        self._topic = topic
        self._folder = folder
        self.members: list[GroupMemberProcess] = []

    def join(self, program: Sequence[str] = (sys.executable, str(PROGRAM))) -> GroupMemberProcess:
        """`program` takes the same arguments and writes the same lines."""
        number = len(self.members)
        command = [*program, self.cluster.zookeeper, self.group, self._topic]
        member = GroupMemberProcess(number, command, self._folder / f"member-{number}")
        self.members.append(member)
        return member

    @property
    def running(self) -> list[GroupMemberProcess]:
        return [member for member in self.members if member.is_running]

    def lines(self) -> list[Line]:
        return sorted(line for member in self.members for line in member.lines())

    def values(self) -> set[str]:
        return {line.value for line in self.lines()}

    def wait_read(self, numbers: int) -> None:
        """Until every number below this one was read."""
        wanted = set(map(str, range(numbers)))

        def missing() -> set[str]:
            assert not [m.errors() for m in self.members if m.errors()]
            return wanted - self.values()

        self.cluster.wait(missing, lambda left: not left)

    def stop(self) -> None:
        for member in self.running:
            assert member.stop() == 0, member.errors()


class Doubles(NamedTuple):
    after_breaks: int  # read before a kill or pause, and not committed
    in_hand: int  # held by a member while it was paused
    unexplained: list[Line]


def count_doubles(group: ZooKeeperGroup) -> Doubles:
    broken = {member.number: member.lost_at_s() for member in group.members}
    readings: dict[tuple[int, int], list[Line]] = defaultdict(list)
    for line in group.lines():
        readings[line.partition, line.offset].append(line)
    after_breaks, in_hand, unexplained = 0, 0, list[Line]()
    for lines in readings.values():
        for first, again in pairwise(lines):
            if any(at_s >= first.at_s for at_s in broken[first.member]):
                after_breaks += 1
            elif any(at_s <= again.at_s for at_s in broken[again.member]):
                in_hand += 1
            else:
                unexplained.append(again)
    return Doubles(after_breaks, in_hand, unexplained)


@contextmanager
def sending(cluster: Cluster, topic: str, *, partitions: int, rate: int) -> Iterator[list[int]]:
    """Numbers as values, until the end; the list has how many were acknowledged."""
    stop, sent = threading.Event(), [0]

    def send() -> None:
        with penstock.Producer(cluster.bootstrap_servers) as producer:
            while not stop.wait(0.05):
                for _ in range(rate // 20):
                    producer.send(topic, str(sent[0]), partition=sent[0] % partitions)
                    sent[0] += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()
