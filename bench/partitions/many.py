"""Creates many partitions and measures their cost: time, memory, file descriptors, latency.

Requests alternate between both brokers, so that noise affects both.
"""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from bench.partitions.kafka_node import KafkaNode
from penstock.client.admin_values import NewTopic
from penstock.client.cluster import ClusterClient
from penstock.model.ids import TopicPartition
from penstock.protocol.records import Record, build_batch

Contender = penstock.Broker | KafkaNode
TOPIC_PARTITIONS = 100
REQUESTS = 2_000
VALUE = bytes(1024)


def measure(partitions: int, folder: Path, *, engine: str = "segmented") -> dict[str, Any]:
    """Compares a broker with `partitions`, in topics of 100 each, with one that has 10."""

    def make(directory: Path) -> penstock.Broker:
        return penstock.Broker(data=directory, config={"storage.engine": engine})

    return compare_sizes(partitions, folder, make, name=engine)


def compare_sizes(
    partitions: int, folder: Path, make: Callable[[Path], Contender], *, name: str
) -> dict[str, Any]:
    small, large = make(folder / "small"), make(folder / "large")
    small.start()
    large.start()
    try:
        small.create_topic("topic-0", partitions=10)
        empty = describe_process(large.pid)
        created_s = asyncio.run(create(large.bootstrap_servers, partitions))
        filled = describe_process(large.pid)
        metadata = asyncio.run(time_metadata(large.bootstrap_servers))
        latencies = asyncio.run(compare(small.bootstrap_servers, large.bootstrap_servers))
        after = describe_process(large.pid)
        clean_s, killed_s = restart(large)
    finally:
        large.stop()
        small.stop()
    return {
        "engine": name,
        "partitions": partitions,
        "create_ms_each": round(created_s * 1000 / partitions, 3),
        "process": {"empty": empty, "created": filled, "after_produce": after},
        "kib_each": round((after["resident_kib"] - empty["resident_kib"]) / partitions, 2),
        "metadata_ms": metadata,
        "start_s": {"after_clean_stop": clean_s, "after_kill": killed_s},
        "produce_ms": latencies,
    }


async def create(servers: str, partitions: int) -> float:
    started = time.perf_counter()
    async with ClusterClient(servers) as client:
        for number in range(partitions // TOPIC_PARTITIONS):
            topic = NewTopic(name=f"topic-{number}", partitions=TOPIC_PARTITIONS)
            await client.admin.create_topics([topic], timeout_ms=120_000)
    return time.perf_counter() - started


async def time_metadata(servers: str) -> dict[str, float]:
    """Metadata of all topics, including decoding in this client: first, and repeated unchanged."""
    async with ClusterClient(servers) as client:
        times = []
        for _ in range(5):
            started = time.perf_counter()
            await client.metadata(None)
            times.append((time.perf_counter() - started) * 1000)
    return {"first": round(times[0], 1), "best_of_next": round(min(times[1:]), 1)}


async def compare(small: str, large: str) -> dict[str, Any]:
    """Latency of single-record requests, spread over the partitions of each broker."""
    batch = bytes(
        build_batch([Record(offset=0, timestamp_ms=1, key=None, value=VALUE, headers=())])
    )
    times: dict[str, list[float]] = {"small": [], "large": []}
    async with ClusterClient(small) as one, ClusterClient(large) as many:
        topics = len((await many.metadata(None)).topics)
        for number in range(REQUESTS):
            targets = {
                "small": (one, TopicPartition("topic-0", number % 10)),
                "large": (
                    many,
                    TopicPartition(f"topic-{number % topics}", number * 7 % TOPIC_PARTITIONS),
                ),
            }
            for name, (client, tp) in targets.items():
                started = time.perf_counter()
                await client.produce(tp, batch)
                times[name].append((time.perf_counter() - started) * 1000)
    figures = {name: percentiles(latencies) for name, latencies in times.items()}
    ratio = round(figures["large"]["p99"] / figures["small"]["p99"], 2)
    return {**figures, "p99_large_to_small": ratio}


def percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        f"p{wanted:g}": round(ordered[min(int(len(ordered) * wanted / 100), len(ordered) - 1)], 3)
        for wanted in (50, 99, 99.9)
    }


def restart(broker: Contender) -> tuple[float, float]:
    """Seconds to `ready` after a clean stop, and after kill -9."""
    broker.stop()
    started = time.perf_counter()
    broker.start()
    clean_s = time.perf_counter() - started
    broker.kill()
    started = time.perf_counter()
    broker.start()
    return round(clean_s, 2), round(time.perf_counter() - started, 2)


def describe_process(pid: int) -> dict[str, int]:
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return {
        "resident_kib": int(resident.split()[1]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }
