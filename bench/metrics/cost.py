"""Measures the counters of a request alone, and a scrape step by step. Best of several rounds,
because a step's own cost is what a busy neighbour cannot lower."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time
from typing import NamedTuple, cast

from tests.unit.metrics.made_statistics import (
    find_no_time,
    make_partition,
    make_partitions,
    make_statistics,
)

from penstock.apis.request_counters import ApiRequestCounters
from penstock.coordinators.group.coordinator import GroupStatistics
from penstock.metrics.committed_times import MAX_LOOK_UPS, CommittedTimes
from penstock.metrics.families import Dialect
from penstock.metrics.partition_families import TIME_LAG
from penstock.metrics.scrape import Scraper, families_of
from penstock.metrics.statistics import BrokerStatistics
from penstock.metrics.windows import RecentRequests
from penstock.model.ids import Offset, TimestampMs, TopicPartition
from penstock.network.in_flight_request import InFlightRequest

ROUNDS = 9
REQUESTS = 50_000
TOP = ("kafka_server_brokertopicmetrics_bytesin_total", "penstock_loop_busy_share")  # like commands


class _Answering:
    """A request's fields that the counters use."""

    started_s = local_s = answered_s = 0.0


def measure_request() -> dict[str, float]:
    counters = {0: ApiRequestCounters("Produce", 12)}
    request = cast("InFlightRequest", _Answering())

    def count() -> None:
        """As in the dispatcher, the request and the connection."""
        for _ in range(REQUESTS):
            started_s = perf_counter()
            observer = counters.get(0)
            assert observer is not None
            observer.started[9] += 1
            request.started_s = started_s
            observer.on_answered(request)
            observer.on_sent(perf_counter() - request.answered_s)

    def loop() -> None:
        for _ in range(REQUESTS):
            pass

    spent_s = min(_time(count) - _time(loop) for _ in range(ROUNDS))
    return {"us_per_request": round(spent_s / REQUESTS * 1e6, 3)}


def measure_scrape(count: int, folder: Path) -> dict[str, float]:
    partition = make_partition(folder)
    collected = [
        partition.statistics()._replace(tp=TopicPartition(f"topic-{number // 10}", number % 10))
        for number in range(count)
    ]
    one_slice = min(
        _time(lambda: [partition.statistics() for _ in range(500)]) for _ in range(ROUNDS)
    )
    statistics = make_statistics(tuple(collected))
    scrapes = [asyncio.run(_scrape(statistics, ())) for _ in range(ROUNDS)]
    best = min(scrapes, key=lambda scrape: scrape.cpu_s)
    some = min(
        (asyncio.run(_scrape(statistics, TOP)) for _ in range(ROUNDS)), key=lambda s: s.cpu_s
    )
    return {
        "partitions": count,
        "collect_ms": round(one_slice / 500 * count * 1000, 2),
        "longest_collecting_slice_ms": round(one_slice * 1000, 2),
        "render_ms": round(best.cpu_s * 1000, 2),
        "render_wall_ms": round(min(scrape.wall_s for scrape in scrapes) * 1000, 2),
        "longest_rendering_slice_ms": round(best.longest_s * 1000, 2),
        "body_bytes": best.size,
        "top_render_ms": round(some.cpu_s * 1000, 2),
        "top_longest_slice_ms": round(some.longest_s * 1000, 2),
        "top_body_bytes": some.size,
    }


class _Scrape(NamedTuple):
    cpu_s: float
    wall_s: float
    longest_s: float  # between two turns of the loop, processor time
    size: int  # of the text


async def _scrape(
    statistics: BrokerStatistics, names: tuple[str, ...], times: CommittedTimes | None = None
) -> _Scrape:
    """As the metrics listener and DescribeMetrics do it."""

    async def collect() -> BrokerStatistics:
        return statistics

    scraper = Scraper(
        collect,
        CommittedTimes(find_no_time) if times is None else times,
        started_s=0.0,
        partition_limit=lambda: 1 << 30,
    )
    stop, gaps = asyncio.Event(), [0.0]

    async def watch() -> None:
        last_s = thread_time()
        while not stop.is_set():
            await asyncio.sleep(0)
            now_s = thread_time()
            gaps.append(now_s - last_s)
            last_s = now_s

    watching = asyncio.create_task(watch())
    began_s, began_wall_s = thread_time(), perf_counter()
    size = 0
    async for chunk in scraper.scrape(Dialect.A, names):
        size += len(chunk)
    spent_s, elapsed_s = thread_time() - began_s, perf_counter() - began_wall_s
    stop.set()
    await watching
    return _Scrape(spent_s, elapsed_s, max(gaps), size)


def measure_time_lags(count: int, folder: Path) -> dict[str, float]:
    """Scrapes of time lag alone: a group that is behind in all partitions, each with a log of its
    own, more than descriptors. First nothing is known; then nothing has moved; then all has."""
    partitions = make_partitions(folder, count)
    statistics = make_statistics(tuple(one.statistics() for one in partitions.values()))

    def find_time(tp: TopicPartition, offset: Offset) -> TimestampMs | None:
        return partitions[tp].find_time_of(offset)

    def commit(offset: int) -> BrokerStatistics:
        committed = tuple((tp, offset) for tp in partitions)
        group = GroupStatistics("group", "Stable", "classic", 1, committed)
        return statistics._replace(groups=(group,), wall_ms=1_000_000)

    results: dict[str, float] = {"partitions": count, "look_ups": MAX_LOOK_UPS}
    for name, is_known, then in (("first", False, 1), ("same", True, 1), ("moved", True, 2)):
        rounds = []
        for _ in range(ROUNDS):
            times = CommittedTimes(find_time)
            if is_known:
                for _ in range(-(-count // MAX_LOOK_UPS)):
                    asyncio.run(times.find(commit(1), count))
            rounds.append(asyncio.run(_scrape(commit(then), (TIME_LAG,), times)))
        best = min(rounds, key=lambda scrape: scrape.cpu_s)
        results[f"{name}_ms"] = round(best.cpu_s * 1000, 2)
        results[f"{name}_longest_slice_ms"] = round(best.longest_s * 1000, 2)
        results[f"{name}_bytes"] = best.size
    return results


def measure_otlp(count: int, folder: Path) -> dict[str, float]:
    """A push without its HTTP requests; empty without the extra otlp."""
    try:
        from penstock.metrics.otlp import Times, encode_requests
    except ImportError:
        return {}
    partition = make_partition(folder).statistics()
    statistics = make_statistics(
        tuple(
            partition._replace(tp=TopicPartition(f"topic-{number // 10}", number % 10))
            for number in range(count)
        )
    )

    def encode() -> tuple[float, float, int]:
        began_s = thread_time()
        families = families_of(statistics, RecentRequests(0.0), 1 << 30)
        sizes = [len(body) for body in encode_requests(families, Dialect.A, {}, Times(0, 0))]
        return thread_time() - began_s, len(sizes), sum(sizes)

    async def measure() -> tuple[float, float, int, float]:
        """The wall clock is right for the loop's delays, which come from the thread's lock."""
        encoding = asyncio.create_task(asyncio.to_thread(encode))
        delays = []
        while not encoding.done():
            began_s = perf_counter()
            await asyncio.sleep(0.001)
            delays.append(perf_counter() - began_s - 0.001)
        spent_s, requests, size = await encoding
        return spent_s, requests, size, sorted(delays)[len(delays) // 2]

    spent_s, requests, size, delay_s = min(asyncio.run(measure()) for _ in range(3))
    return {
        "encode_ms": round(spent_s * 1000, 2),
        "requests": requests,
        "body_bytes": size,
        "median_delay_of_loop_ms": round(delay_s * 1000, 2),
    }


def _time(work: Callable[[], object]) -> float:
    """Processor time: on an idle machine the same as the clock's."""
    began_s = thread_time()
    work()
    return thread_time() - began_s
