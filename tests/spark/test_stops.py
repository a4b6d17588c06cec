"""Queries on one topic are stopped, killed and paused at random moments: consumers of committed
records are never behind by more than the bound, and every record is written once. Counted with
librdkafka."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.interop.kafka_broker import Child
from tests.interop.kafka_jars import Say
from tests.profile import is_long, scaled
from tests.spark.stable_offsets import (
    Sample,
    StableOffsetWatch,
    count_committed,
    longest_hold_s,
)
from tests.spark.stopped_queries_job import READY, STARTED, STOPPED, QueriesJob, source_topic
from tests.spark.topics import Sent, create_topic, send
from tests.spark.worker_processes import find_executors_of, find_workers_of

import penstock

DRIVERS = scaled(test=0, verify=2, release=4)
QUERIES_A_DRIVER = scaled(test=0, verify=2, release=5)
DISRUPTIONS = scaled(test=0, verify=10, release=200)
RECORDS = scaled(test=0, verify=2_000, release=20_000)  # of each query
PARTITIONS = 2
BOUND_S = 60
TIMEOUT_S = 600
KINDS = ["stop"] * 5 + ["kill driver"] * 2 + ["kill worker"] * 2 + ["kill executor", "pause driver"]


class Driver:
    """One driver process with its queries."""

    def __init__(self, job: QueriesJob, queries: range) -> None:
        self.job = job
        self.queries = queries
        self._answered = 0
        self._child: Child | None = None
        self.starts_at_s = 0.0

    @property
    def is_running(self) -> bool:
        return self._child is not None

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.process.pid

    def start(self, *, number: int) -> None:
        log = Path(self.job.home) / f"driver-{self.job.driver}-{number}.log"
        self._child, self._answered = Child(self.job.command(), log), 0
        self._wait(READY)
        for query in self.queries:
            self.start_query(query)

    def start_query(self, query: int) -> None:
        self._ask(f"start {query}", f"{STARTED} {query}")

    def stop_query(self, query: int) -> None:
        self._ask(f"stop {query}", f"{STOPPED} {query}")

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.pid, number)

    def kill(self) -> None:
        if self._child is not None:
            self.signal(signal.SIGKILL)
            self._child.end(with_signal=None, timeout_s=TIMEOUT_S)
            self._child = None

    def _ask(self, command: str, answer: str) -> None:
        assert self._child is not None
        assert self._child.process.stdin is not None
        self._child.process.stdin.write(f"{command}\n")
        self._child.process.stdin.flush()
        self._wait(answer)

    def _wait(self, answer: str) -> None:
        assert self._child is not None
        self._answered = self._child.wait_line(answer, timeout_s=TIMEOUT_S, after=self._answered)


@pytest.mark.skipif(not is_long(), reason="several Sparks for minutes: `make verify`, `make soak`")
@pytest.mark.usefixtures("java")
def test_stops_and_kills_hold_back_consumers_for_less_than_the_bound(
    broker: penstock.Broker, tmp_path: Path, say: Say
) -> None:
    servers, target = broker.bootstrap_servers, create_target(broker)
    chance = random.Random(DISRUPTIONS)
    with running(servers, target, tmp_path) as drivers:
        with StableOffsetWatch(servers, target, PARTITIONS) as watch:
            counts = disrupt(drivers, chance)
            wait_for_left_overs()
        restart_all(drivers)
        wanted = {
            f"{query}:{number}".encode()
            for driver in drivers
            for query in driver.queries
            for number in range(RECORDS)
        }
        visible = count_committed(servers, target, wanted=len(wanted), timeout_s=TIMEOUT_S)
    held_s = watch.longest_hold_s()
    say(f"{counts}: consumers were behind by at most {held_s:.1f} s; {len(wanted)} rows once")
    assert set(visible) == wanted
    assert max(visible.values()) == 1
    assert held_s <= BOUND_S


def create_target(broker: penstock.Broker) -> str:
    servers = broker.bootstrap_servers
    for query in range(DRIVERS * QUERIES_A_DRIVER):
        topic = create_topic(servers, source_topic(query), partitions=PARTITIONS)
        records = (
            Sent(f"{query}:{number}".encode(), None, number % PARTITIONS)
            for number in range(RECORDS)
        )
        send(servers, topic, records)
    return create_topic(servers, "copies", partitions=PARTITIONS)


@contextmanager
def running(servers: str, target: str, home: Path) -> Iterator[list[Driver]]:
    drivers = []
    for number in range(DRIVERS):
        has_executors = number == 0
        job = QueriesJob(
            servers=servers,
            target=target,
            home=str(home),
            driver=number,
            master="local-cluster[1,2,1024]" if has_executors else "local[2]",
            abandoned_after=f"{BOUND_S}s",
            records_a_batch=max(1, RECORDS // 100),
        )
        first = number * QUERIES_A_DRIVER
        drivers.append(Driver(job, range(first, first + QUERIES_A_DRIVER)))
    try:
        for driver in drivers:
            driver.start(number=0)
        yield drivers
    finally:
        for driver in drivers:
            driver.kill()


def disrupt(drivers: list[Driver], chance: random.Random) -> dict[str, int]:
    """What was done how often. What was stopped starts again at a random time, so that some
    left-overs are found by the next run of their query, and some by a broker."""
    counts: dict[str, int] = {}
    stopped: list[tuple[float, Driver, int]] = []  # when to start it again, which query
    for number in range(1, DISRUPTIONS + 1):
        time.sleep(chance.uniform(0.2, 4))  # the moment is what is tested
        driver = chance.choice(drivers)
        stopped = restart_due(drivers, stopped, number)
        if not driver.is_running:
            driver.start(number=number)
        kind = chance.choice(KINDS)
        if kind == "stop":
            query = chance.choice(driver.queries)
            driver.stop_query(query)
            stopped.append((time.monotonic() + chance.uniform(0, 1.2 * BOUND_S), driver, query))
        elif kind == "kill driver":
            driver.kill()
            driver.starts_at_s = time.monotonic() + chance.uniform(0, 1.2 * BOUND_S)
            stopped = [one for one in stopped if one[1] is not driver]
        elif kind == "pause driver":
            driver.signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0, BOUND_S))
            driver.signal(signal.SIGCONT)
        else:  # its queries may have failed, and each is started again at another moment
            kind = kill_part(driver, kind, chance)
            stopped += [
                (time.monotonic() + chance.uniform(0, BOUND_S), driver, query)
                for query in driver.queries
            ]
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def restart_due(
    drivers: list[Driver], stopped: list[tuple[float, Driver, int]], number: int
) -> list[tuple[float, Driver, int]]:
    """Starts what is due; returns what is not."""
    now_s = time.monotonic()
    for driver in drivers:
        if not driver.is_running and driver.starts_at_s <= now_s:
            driver.start(number=number)
    for starts_at_s, driver, query in stopped:
        if starts_at_s <= now_s and driver.is_running:
            driver.start_query(query)
    return [one for one in stopped if one[0] > now_s]


def kill_part(driver: Driver, kind: str, chance: random.Random) -> str:
    """Kills a Python worker or an executor; returns what it was."""
    executors = find_executors_of(driver.pid)
    if kind == "kill executor" and executors:
        os.kill(chance.choice(executors), signal.SIGKILL)
        return kind
    workers = find_workers_of(driver.pid)
    if not workers:
        return "nothing to kill"
    os.kill(chance.choice(workers), signal.SIGKILL)
    return "kill worker"


def wait_for_left_overs() -> None:
    """Long enough to see the last left-overs end."""
    time.sleep(BOUND_S)


def restart_all(drivers: list[Driver]) -> None:
    """Starts every query again, some of which have failed, and lets it finish in a few batches."""
    for driver in drivers:
        driver.kill()
        driver.job = driver.job._replace(records_a_batch=RECORDS)
        driver.start(number=DISRUPTIONS + 1)


def test_longest_hold_is_measured_from_the_write_to_stability() -> None:
    ends = [(0, 0, 0), (1, 0, 10), (2, 0, 20), (3, 10, 20), (9, 20, 20), (10, 20, 20)]
    samples = [Sample(at_s, 0, stable, end) for at_s, stable, end in ends]
    assert longest_hold_s(samples) == 7
    assert longest_hold_s(samples[:4]) == 2


def test_hold_that_does_not_end_counts_until_the_last_sample() -> None:
    samples = [Sample(at_s, 0, 0, 10) for at_s in range(60)]
    assert longest_hold_s(samples) == 59
