"""What a query reads next, decided from offsets alone: limits, splits, new and lost partitions.

Pure: no cluster, no clock, no Spark. Invariant: ranges of a plan never overlap, and none is empty.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.spark.source.offset_json import Offsets, StreamOffset, format_partitions


class OffsetRange(NamedTuple):
    tp: TopicPartition
    start: int
    end: int  # not read any more

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


# How far a batch goes.


def backlog(starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    """Offsets to be read of each partition that has any."""
    sizes = {each: end - starts.get(each, end) for each, end in ends.items()}
    return {each: size for each, size in sizes.items() if size > 0}


def limit_ends(starts: Offsets, ends: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Ends of a batch of about `limit` offsets: each partition's share follows its backlog, and
    none that has one gets nothing."""
    sizes = backlog(starts, ends)
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    shares = {each: max(1, limit * size // total) for each, size in sizes.items()}
    return {
        each: min(end, starts[each] + shares[each]) if each in shares else end
        for each, end in ends.items()
    }


def rows_within_bytes(
    sizes: Mapping[TopicPartition, int],
    bytes_per_offset: Mapping[TopicPartition, float],
    limit: int,
) -> int:
    """How many offsets of this backlog hold about `limit` bytes; at least one."""
    total_bytes = sum(size * bytes_per_offset.get(each, 0.0) for each, size in sizes.items())
    total = sum(sizes.values())
    if total_bytes <= limit:
        return total
    return max(1, int(total * limit / total_bytes))


def should_wait(available: int, *, at_least: int, since_last_ms: float, max_delay_ms: int) -> bool:
    """For more records: there are too few, and the last batch is not long ago."""
    return since_last_ms < max_delay_ms and available < at_least


# What a batch reads.


class BatchPlan(NamedTuple):
    ranges: list[OffsetRange]
    losses: list[str]  # what may be missing, for people


def find_begins(start: StreamOffset, end: StreamOffset) -> dict[TopicPartition, int]:
    """What the end carries wins. It is all that counts where a new query begins: a run after a
    crash has an initial offset of its own, of another moment."""
    return dict(end.starts) if start.is_initial else {**start.offsets, **end.starts}


def plan_batch(start: StreamOffset, end: StreamOffset, begins: Offsets) -> BatchPlan:
    ranges = [
        OffsetRange(each, begins[each], stop)
        for each, stop in sorted(end.offsets.items())
        if each in begins
    ]
    return BatchPlan(
        [each for each in ranges if each.size],
        [*_lost_partitions(start, end, begins), *_moved_back(ranges)],
    )


def _lost_partitions(start: StreamOffset, end: StreamOffset, begins: Offsets) -> Iterable[str]:
    unknown = end.offsets.keys() - begins.keys()
    if unknown:
        yield f"the earliest offsets of {format_partitions(unknown)} cannot be found"
    if start.is_initial:
        return
    gone = start.offsets.keys() - end.offsets.keys()
    if gone:
        yield f"{format_partitions(gone)} are gone; was a topic deleted?"
    for added in sorted(begins.keys() - start.offsets.keys()):
        if begins[added] > 0:
            yield f"the new partition {added} begins at offset {begins[added]} instead of 0"


def _moved_back(ranges: Iterable[OffsetRange]) -> Iterable[str]:
    for each in ranges:
        if each.end < each.start:
            yield (
                f"{each.tp} ends at offset {each.end}, before {each.start} where reading "
                "was to go on; was the topic made anew?"
            )


# Who reads it.


def split_ranges(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Pieces for tasks: none larger than `max_records`, at least `min_partitions` where there are
    as many offsets; the largest pieces are divided first."""
    pieces = [-(-each.size // max_records) if max_records else 1 for each in ranges]
    _divide_more(ranges, pieces, min_partitions or 0)
    return [
        piece for each, count in zip(ranges, pieces, strict=True) for piece in _cut(each, count)
    ]


def _divide_more(ranges: Sequence[OffsetRange], pieces: list[int], wanted: int) -> None:
    heap = [(-each.size / pieces[place], place) for place, each in enumerate(ranges)]
    heapq.heapify(heap)
    missing = wanted - sum(pieces)
    while missing > 0 and heap:
        _, place = heapq.heappop(heap)
        if pieces[place] < ranges[place].size:
            pieces[place] += 1
            missing -= 1
            heapq.heappush(heap, (-ranges[place].size / pieces[place], place))


def _cut(whole: OffsetRange, count: int) -> Iterable[OffsetRange]:
    """Pieces whose sizes differ by one at most."""
    edges = [whole.start + whole.size * place // count for place in range(count + 1)]
    for start, end in pairwise(edges):
        yield OffsetRange(whole.tp, start, end)


# How far behind a query is.


class OffsetsBehind(NamedTuple):
    """Of the partitions that a query reads: offsets between where it is and their ends."""

    least: int
    most: int
    average: float
    total: int


def offsets_behind(consumed: Offsets, latest: Offsets) -> OffsetsBehind:
    behind = [max(0, latest[each] - at) for each, at in consumed.items() if each in latest]
    if not behind:
        return OffsetsBehind(0, 0, 0.0, 0)
    total = sum(behind)
    return OffsetsBehind(min(behind), max(behind), total / len(behind), total)
