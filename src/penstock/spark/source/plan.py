"""Plans what a query reads next, from offsets alone: limits, splits, new and lost partitions.

Pure: no cluster, no clock, no Spark. Invariant: the ranges of a plan never overlap, and none is
empty.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from penstock.model.ids import TopicId, TopicPartition
from penstock.spark.source.offset_json import Offsets, StreamOffset, TopicIds, format_partitions


class OffsetRange(NamedTuple):
    tp: TopicPartition
    start: int
    end: int  # exclusive
    topic_id: TopicId | None = None  # of the topic that the offsets belong to, if known

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


# Where a batch ends.


def backlog(starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    """Unread offsets of each partition that has any."""
    sizes = {tp: end - starts.get(tp, end) for tp, end in ends.items()}
    return {tp: size for tp, size in sizes.items() if size > 0}


def limit_ends(starts: Offsets, ends: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Ends of a batch of about `limit` offsets. Each partition's share is proportional to its
    backlog, and at least 1."""
    sizes = backlog(starts, ends)
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    shares = {tp: max(1, limit * size // total) for tp, size in sizes.items()}
    return {
        tp: min(end, starts[tp] + shares[tp]) if tp in shares else end for tp, end in ends.items()
    }


def rows_within_bytes(
    sizes: Mapping[TopicPartition, int],
    bytes_per_offset: Mapping[TopicPartition, float],
    limit: int,
) -> int:
    """How many offsets of this backlog hold about `limit` bytes; at least one."""
    total_bytes = sum(size * bytes_per_offset.get(tp, 0.0) for tp, size in sizes.items())
    total = sum(sizes.values())
    if total_bytes <= limit:
        return total
    return max(1, int(total * limit / total_bytes))


def should_wait(available: int, *, at_least: int, since_last_ms: float, max_delay_ms: int) -> bool:
    """Whether to wait for more records: too few are available, and the last batch was recent."""
    return since_last_ms < max_delay_ms and available < at_least


# Topics that were deleted and created anew.


def find_recreated(saved: TopicIds, current: TopicIds) -> list[str]:
    """Topics whose name now belongs to another topic. Those without an id on either side, as with
    old brokers and checkpoints, count as the same."""
    return sorted(
        topic for topic, saved_id in saved.items() if current.get(topic, saved_id) != saved_id
    )


def recreation_losses(saved: TopicIds, current: TopicIds) -> list[str]:
    return [
        f"topic {topic!r} was deleted and created anew: the checkpoint's offsets are of topic id "
        f"{saved[topic]}, the cluster has {current[topic]}"
        for topic in find_recreated(saved, current)
    ]


# Ranges of a batch.


class BatchPlan(NamedTuple):
    ranges: list[OffsetRange]
    losses: list[str]  # messages about records that may be missing


def find_starts(start: StreamOffset, end: StreamOffset) -> dict[TopicPartition, int]:
    """Starts carried by the end offset take precedence. For the first batch of a query only they
    count, because a restart after a crash computes a different initial offset."""
    return dict(end.starts) if start.is_initial else {**start.offsets, **end.starts}


def plan_batch(start: StreamOffset, end: StreamOffset, starts: Offsets) -> BatchPlan:
    ids = {topic: TopicId(UUID(topic_id)) for topic, topic_id in end.topic_ids.items()}
    ranges = [
        OffsetRange(tp, starts[tp], stop, ids.get(tp.topic))
        for tp, stop in sorted(end.offsets.items())
        if tp in starts
    ]
    return BatchPlan(
        [wanted for wanted in ranges if wanted.size],
        [*_lost_partitions(start, end, starts), *_moved_back(ranges)],
    )


def _lost_partitions(start: StreamOffset, end: StreamOffset, starts: Offsets) -> Iterable[str]:
    unknown = end.offsets.keys() - starts.keys()
    if unknown:
        yield f"cannot find the earliest offsets of {format_partitions(unknown)}"
    if start.is_initial:
        return
    gone = start.offsets.keys() - end.offsets.keys()
    if gone:
        yield f"{format_partitions(gone)} are gone; was a topic deleted?"
    for added in sorted(starts.keys() - start.offsets.keys()):
        if starts[added] > 0:
            yield f"the new partition {added} starts at offset {starts[added]} instead of 0"


def _moved_back(ranges: Iterable[OffsetRange]) -> Iterable[str]:
    for wanted in ranges:
        if wanted.end < wanted.start:
            yield (
                f"{wanted.tp} ends at offset {wanted.end}, before {wanted.start} where reading "
                "was to continue; was the topic recreated?"
            )


# How it is split into tasks.


def split_ranges(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Pieces for tasks: none larger than `max_records`, and at least `min_partitions` if there are
    as many offsets. The largest pieces are split first."""
    counts = [-(-whole.size // max_records) if max_records else 1 for whole in ranges]
    _add_pieces(ranges, counts, min_partitions or 0)
    return [
        piece for whole, count in zip(ranges, counts, strict=True) for piece in _cut(whole, count)
    ]


def _add_pieces(ranges: Sequence[OffsetRange], counts: list[int], wanted: int) -> None:
    heap = [(-whole.size / counts[index], index) for index, whole in enumerate(ranges)]
    heapq.heapify(heap)
    missing = wanted - sum(counts)
    while missing > 0 and heap:
        _, index = heapq.heappop(heap)
        if counts[index] < ranges[index].size:
            counts[index] += 1
            missing -= 1
            heapq.heappush(heap, (-ranges[index].size / counts[index], index))


def _cut(whole: OffsetRange, count: int) -> Iterable[OffsetRange]:
    """Pieces whose sizes differ by at most one."""
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    for start, end in pairwise(edges):
        yield whole._replace(start=start, end=end)


def share_tasks(
    pieces: Sequence[OffsetRange], *, max_records: int, max_ranges: int
) -> list[tuple[OffsetRange, ...]]:
    """The pieces of each task: small neighbours share one, up to this many records and ranges."""
    tasks: list[list[OffsetRange]] = []
    records = 0
    for piece in pieces:
        if tasks and len(tasks[-1]) < max_ranges and records + piece.size <= max_records:
            tasks[-1].append(piece)
        else:
            tasks.append([piece])
            records = 0
        records += piece.size
    return [tuple(task) for task in tasks]


# How far behind a query is.


class OffsetsBehind(NamedTuple):
    """The lag of a query's partitions, in offsets."""

    least: int
    most: int
    average: float
    total: int


def offsets_behind(consumed: Offsets, latest: Offsets) -> OffsetsBehind:
    behind = [max(0, latest[tp] - offset) for tp, offset in consumed.items() if tp in latest]
    if not behind:
        return OffsetsBehind(0, 0, 0.0, 0)
    total = sum(behind)
    return OffsetsBehind(min(behind), max(behind), total / len(behind), total)
