"""When the records at the committed offsets of groups were written, for the groups' time lag.

Reads the logs of this broker's replicas, leaders and followers alike, on the event loop that owns
them: a batch header for an offset. Not the lag itself, which is the scrape's. Invariant: a scrape
makes at most MAX_LOOK_UPS, in turns with other work; an offset that has not moved, or has nothing
behind it, costs none.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nsmallest
from operator import attrgetter
from time import perf_counter
from typing import NamedTuple

from penstock.metrics.statistics import BrokerStatistics
from penstock.model.ids import LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition
from penstock.replication.partition import PartitionStatistics

MAX_LOOK_UPS = 1_000  # of one scrape: some 20 ms of computing
SLICE = 500  # committed offsets that are compared at once
SLICE_S = 0.001  # of look-ups

FindTime = Callable[[TopicPartition, Offset], TimestampMs | None]


class CommittedTime(NamedTuple):
    """What was found at an offset, which may be one that was committed before the current one: then
    the time is too early, never too late."""

    offset: int
    leader_epoch: LeaderEpoch  # another may have other records there, and so may a new topic
    topic_id: TopicId
    timestamp_ms: TimestampMs | None  # None: the record has none, or cannot be read
    scrape: int  # the number of the scrape that looked it up


GroupTimes = Mapping[str, Mapping[TopicPartition, CommittedTime]]
NO_TIMES: GroupTimes = {}
_TP = attrgetter("tp")
_LAST_SCRAPE = attrgetter("last_scrape")


class _LookUp(NamedTuple):
    times: dict[TopicPartition, CommittedTime]  # of its group
    partition: PartitionStatistics
    offset: int
    last_scrape: int  # that looked it up at another offset; 0: none


class CommittedTimes:
    """Owned by the event loop. One for all readers, because it keeps what it found."""

    def __init__(self, find_time: FindTime, *, max_look_ups: int = MAX_LOOK_UPS) -> None:
        self._find_time = find_time
        self._max_look_ups = max_look_ups
        self._turn = asyncio.Lock()
        self._times: dict[str, dict[TopicPartition, CommittedTime]] = {}
        self._scrapes = 0

    async def find(self, statistics: BrokerStatistics, limit: int) -> GroupTimes:
        """Of the first `limit` committed offsets, those with records behind them and a replica
        here. The result does not change any more."""
        async with self._turn:
            self._scrapes += 1
            self._times, outdated = await self._compare(statistics, limit)
            if len(outdated) > self._max_look_ups:
                outdated = nsmallest(self._max_look_ups, outdated, key=_LAST_SCRAPE)
                await asyncio.sleep(0)
            await self._look_up(outdated)
            return self._times

    async def _compare(
        self, statistics: BrokerStatistics, limit: int
    ) -> tuple[dict[str, dict[TopicPartition, CommittedTime]], list[_LookUp]]:
        """What is still known of the groups, and what has to be looked up."""
        partitions = statistics.replicas.partitions
        replicas = dict(zip(map(_TP, partitions), partitions, strict=True))
        await asyncio.sleep(0)
        kept: dict[str, dict[TopicPartition, CommittedTime]] = {}
        outdated: list[_LookUp] = []
        unbroken = 0
        for group in statistics.groups:
            if limit <= 0:
                break
            before, times = self._times.get(group.group, {}), kept.setdefault(group.group, {})
            for start in range(0, min(limit, len(group.offsets)), SLICE):
                some = group.offsets[start : min(limit, start + SLICE)]
                outdated += _compare_some(some, replicas, before, times)
                unbroken += len(some)
                if unbroken >= SLICE:
                    unbroken = 0
                    await asyncio.sleep(0)
            limit -= max(1, len(group.offsets))
        return kept, outdated

    async def _look_up(self, outdated: list[_LookUp]) -> None:
        began_s = perf_counter()
        for times, partition, offset, _ in outdated:
            timestamp_ms = self._find_time(partition.tp, Offset(offset))
            times[partition.tp] = CommittedTime(
                offset, partition.leader_epoch, partition.topic_id, timestamp_ms, self._scrapes
            )
            if perf_counter() - began_s > SLICE_S:
                await asyncio.sleep(0)
                began_s = perf_counter()


def _compare_some(
    offsets: Sequence[tuple[TopicPartition, int]],
    replicas: Mapping[TopicPartition, PartitionStatistics],
    before: Mapping[TopicPartition, CommittedTime],
    times: dict[TopicPartition, CommittedTime],
) -> Iterator[_LookUp]:
    """Yields what has to be looked up, and keeps what is not too late in `times`."""
    for tp, committed in offsets:
        partition = replicas.get(tp)
        if partition is None or committed >= partition.visible_end:
            continue
        offset = max(committed, partition.log_start_offset)
        earlier = before.get(tp)
        if (
            earlier is None
            or earlier.offset > offset
            or earlier.leader_epoch != partition.leader_epoch
            or earlier.topic_id is not partition.topic_id
        ):
            yield _LookUp(times, partition, offset, 0)
            continue
        times[tp] = earlier
        if earlier.offset != offset:
            yield _LookUp(times, partition, offset, earlier.scrape)
