"""Runs all rounds: both clusters run side by side, and each measurement alternates between them.

Rounds are the outer loop; the first cluster alternates between rounds. Brokers are killed last,
each in turn, so that the controller's broker is among them on both sides.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from bench.broker.cells import LIBRDKAFKA, Cell, Latency
from bench.broker.clients import run_librdkafka
from bench.broker.nodes import NodeFailedError
from bench.broker.state import Sample, State
from bench.cluster.contenders import BROKERS, Contender, cluster_cpu_seconds, cluster_mb
from bench.cluster.failover import measure_failover
from bench.cluster.topics import Topics

STARTED_S = 15.0  # both still load and compile code after they start
IDLE_S = 10.0
CALM_S = 0.5
CALM_SHARE = 0.2  # of one CPU, over all processes: idle brokers still send requests
CALM_DEADLINE_S = 20.0
SIZE_BYTES = 1000
MEMORY_KEY = "memory"
FAILOVER_KEY = "failover"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    partitions: tuple[int, ...]
    records: int  # per cell
    latency: Latency
    rounds: int
    failovers: int


class Rounds:
    def __init__(self, plan: Plan, state: State, contenders: Mapping[str, Contender]) -> None:
        self._plan = plan
        self._state = state
        self._contenders = contenders
        self._topics: dict[str, Topics] = {}

    def run(self) -> None:
        with ExitStack() as stack:
            for name, contender in self._contenders.items():
                stack.enter_context(contender)
                self._topics[name] = stack.enter_context(Topics(contender.bootstrap))
                self._topics[name].wait_brokers()
            idle = self._settle()
            for number in range(self._plan.rounds):
                self._round(number)
            for name, contender in self._contenders.items():
                loaded = {"loaded_mb": cluster_mb(contender)}
                self._keep(MEMORY_KEY, name, 0, idle[name] | loaded)
            for number in range(self._plan.failovers):
                for name in self._order(number):
                    self._keep(FAILOVER_KEY, name, number, self._fail_over(name, number))

    def _order(self, number: int) -> list[str]:
        names = list(self._contenders)
        return names if number % 2 == 0 else names[::-1]

    def _settle(self) -> dict[str, Sample]:
        """Measures idle memory and CPU, then warms up both."""
        time.sleep(STARTED_S)
        before = {
            name: cluster_cpu_seconds(contender) for name, contender in self._contenders.items()
        }
        time.sleep(IDLE_S)
        idle = {
            name: {
                "idle_mb": cluster_mb(contender),
                "idle_cpu_share": (cluster_cpu_seconds(contender) - before[name]) / IDLE_S,
            }
            for name, contender in self._contenders.items()
        }
        for name in self._contenders:
            self._throughput(name, "warm-up", max(self._plan.partitions))
        return idle

    def _round(self, number: int) -> None:
        for partitions in self._plan.partitions:
            for name in self._order(number):
                sample = self._throughput(name, f"throughput-{partitions}-{number}", partitions)
                self._keep(throughput_key(partitions), name, number, sample)
        for name in self._order(number):
            sample = self._latency(name, f"latency-{number}")
            self._keep(self._plan.latency.key, name, number, sample)

    def _keep(self, key: str, name: str, number: int, sample: Sample) -> None:
        self._state.add(key, name, sample)
        figures = ", ".join(f"{metric} {value:.4g}" for metric, value in sample.items())
        print(f"round {number + 1}  {key}  {name}: {figures}", flush=True)

    # -- one measurement -------------------------------------------------------------------

    def _throughput(self, name: str, topic: str, partitions: int) -> Sample:
        records, contender = self._plan.records, self._contenders[name]
        cell = Cell(LIBRDKAFKA, SIZE_BYTES, "all", "none", partitions)
        arguments = cell._asdict() | {"records": records}

        def produce() -> Sample:
            before = cluster_cpu_seconds(contender)
            result = run_librdkafka("produce", contender.bootstrap, topic, arguments)
            spent = cluster_cpu_seconds(contender) - before
            gigabytes = records * SIZE_BYTES / 1e9
            seconds = float(result["seconds"])
            return {"mb_s": 1000 * gigabytes / seconds, "cpu_s_per_gb": spent / gigabytes}

        return self._with_topic(name, topic, partitions, produce)

    def _latency(self, name: str, topic: str) -> Sample:
        latency, bootstrap = self._plan.latency, self._contenders[name].bootstrap

        def measure() -> Sample:
            sample: Sample = run_librdkafka("latency", bootstrap, topic, latency._asdict())
            return sample

        return self._with_topic(name, topic, latency.partitions, measure)

    def _with_topic(
        self, name: str, topic: str, partitions: int, measure: Callable[[], Sample]
    ) -> Sample:
        """Measures with a fresh topic; fails unless every replica stayed in sync."""
        topics = self._topics[name]
        topics.create(topic, partitions=partitions)
        self._calm_down()
        sample = measure()
        in_sync = topics.count_in_sync(topic)
        if in_sync != [len(BROKERS)] * partitions:
            raise NodeFailedError(f"{name}: {topic} lost replicas under load: {in_sync}")
        topics.delete(topic)
        return sample

    def _fail_over(self, name: str, number: int) -> Sample:
        topic, victim = f"failover-{number}", BROKERS[number % len(BROKERS)]
        topics, contender = self._topics[name], self._contenders[name]
        topics.create(topic, leaders=[victim])
        self._calm_down()
        assert topics.find_leader(topic) == victim
        seconds = measure_failover(contender, topic, victim)
        contender.start(victim)
        topics.wait_in_sync(topic)
        topics.delete(topic)
        return {"seconds": seconds, "beyond_session_s": seconds - contender.session_ms / 1000}

    def _calm_down(self) -> None:
        """Waits until writes and deletions of the previous measurement are done, so that they do
        not slow the next."""
        os.sync()
        deadline = time.monotonic() + CALM_DEADLINE_S
        while time.monotonic() < deadline:
            before = self._spent()
            time.sleep(CALM_S)
            if self._spent() - before < CALM_S * CALM_SHARE:
                return

    def _spent(self) -> float:
        return sum(map(cluster_cpu_seconds, self._contenders.values()))


def throughput_key(partitions: int) -> str:
    return f"throughput {partitions} partition{'s' if partitions > 1 else ''}"
