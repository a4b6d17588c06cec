"""One scrape: a snapshot as text, in chunks between which the event loop runs.

A broker has one Scraper for all readers, because rates and quantiles are of the time since an
earlier scrape.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import chain

from penstock.metrics.broker_families import broker_families, topic_traffic
from penstock.metrics.committed_times import NO_TIMES, CommittedTimes, GroupTimes
from penstock.metrics.exposition import render
from penstock.metrics.families import Dialect, Family
from penstock.metrics.own_families import own_families
from penstock.metrics.partition_families import (
    GROUP_PREFIXES,
    PARTITION_PREFIXES,
    TIME_LAG,
    GroupSeries,
    cluster_families,
    label_slices,
    list_led,
    partition_families,
)
from penstock.metrics.statistics import BrokerStatistics
from penstock.metrics.windows import RecentRequests
from penstock.replication.partition import PartitionStatistics
from penstock.replication.topic_traffic import TrafficStatistics

Collect = Callable[[], Awaitable[BrokerStatistics]]


class Scraper:
    """Owned by the event loop."""

    def __init__(
        self,
        collect: Collect,
        committed_times: CommittedTimes,
        *,
        started_s: float,
        partition_limit: Callable[[], int],
    ) -> None:
        self._collect = collect
        self._committed_times = committed_times
        self._recent = RecentRequests(started_s)
        self._partition_limit = partition_limit

    async def scrape(self, dialect: Dialect, names: Sequence[str] = ()) -> AsyncIterator[bytes]:
        """`names`: beginnings of the wanted families' names; none: all families."""
        statistics = await self._collect()
        self._recent.look(
            statistics.monotonic_s, statistics.requests, dict(statistics.network.listeners)
        )
        limit = self._partition_limit()
        led = list_led(statistics, limit if _wants(names, PARTITION_PREFIXES) else 0)
        await asyncio.sleep(0)
        texts: list[str] = []
        for some in label_slices(led):
            texts += some
            await asyncio.sleep(0)
        times = NO_TIMES
        if _wants(names, (TIME_LAG,)):
            times = await self._committed_times.find(statistics, limit)
            await asyncio.sleep(0)
        groups = GroupSeries(statistics, limit if _wants(names, GROUP_PREFIXES) else 0, times)
        await asyncio.sleep(0)
        for _ in groups.write():
            await asyncio.sleep(0)
        traffic = topic_traffic(statistics)
        await asyncio.sleep(0)
        families = _chain(statistics, self._recent, traffic, led, texts, groups)
        for chunk in render(families, dialect, names):
            if chunk:
                yield chunk
            await asyncio.sleep(0)


def families_of(
    statistics: BrokerStatistics,
    recent: RecentRequests,
    partition_limit: int,
    times: GroupTimes = NO_TIMES,
) -> Iterator[Family]:
    """All families at once, for a thread beside the event loop; it owns `recent`."""
    recent.look(statistics.monotonic_s, statistics.requests, dict(statistics.network.listeners))
    led = list_led(statistics, partition_limit)
    texts = [text for some in label_slices(led) for text in some]
    groups = GroupSeries(statistics, partition_limit, times)
    for _ in groups.write():
        pass
    return _chain(statistics, recent, topic_traffic(statistics), led, texts, groups)


def _chain(
    statistics: BrokerStatistics,
    recent: RecentRequests,
    traffic: dict[str, TrafficStatistics],
    led: list[PartitionStatistics],
    texts: list[str],
    groups: GroupSeries,
) -> Iterator[Family]:
    return chain(
        broker_families(statistics, recent, traffic),
        own_families(statistics),
        cluster_families(statistics, led),
        partition_families(led, texts),
        groups.families(),
    )


def _wants(names: Sequence[str], prefixes: Sequence[str]) -> bool:
    """Whether a family with one of these prefixes is among those wanted."""
    return not names or any(
        name.startswith(prefix) or prefix.startswith(name) for name in names for prefix in prefixes
    )
