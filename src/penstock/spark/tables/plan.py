"""What a sync reads next, decided from what the table holds and what the topic has. Pure.

Invariant: what a table holds only grows at its end, and a plan begins where the table ends.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.spark.source.plan import OffsetRange, backlog, limit_ends
from penstock.spark.tables.parts import HeldRange


class TopicEdges(NamedTuple):
    """Of each partition: where its log begins and ends, for readers of committed records."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class SyncPlan(NamedTuple):
    ranges: list[OffsetRange]  # to be read now; none is empty
    held: dict[int, HeldRange]  # of every partition, once they are
    lag: int  # records that are left after that
    losses: list[str]  # what can never be in the table, for people


def plan_sync(
    topic: str, held: Mapping[int, HeldRange], edges: TopicEdges, *, most_records: int
) -> SyncPlan:
    begins, losses = _begins(topic, held, edges)
    ends = limit_ends(begins, edges.ends, most_records)
    ranges = [OffsetRange(each, at, ends[each]) for each, at in sorted(begins.items())]
    after = {
        each.tp.partition: HeldRange(_start(held, each), max(each.start, each.end))
        for each in ranges
    }
    left = sum(backlog(ends, edges.ends).values())
    return SyncPlan([each for each in ranges if each.size], after, left, losses)


def _begins(
    topic: str, held: Mapping[int, HeldRange], edges: TopicEdges
) -> tuple[dict[TopicPartition, int], list[str]]:
    begins, losses = {}, []
    for partition, start in edges.starts.items():
        known = held.get(partition.partition)
        begins[partition] = start if known is None else known.end
        if known is not None and known.end < start:
            losses.append(f"offsets {known.end} to {start - 1} of {partition} are deleted")
            begins[partition] = start
        elif known is not None and known.end > edges.ends[partition]:
            losses.append(
                f"{partition} ends at offset {edges.ends[partition]}, before {known.end} where the "
                "table goes on; was the topic made anew?"
            )
    gone = [number for number in held if TopicPartition(topic, number) not in edges.starts]
    losses += [f"{topic}-{number} is gone" for number in sorted(gone)]
    return begins, losses


def _start(held: Mapping[int, HeldRange], wanted: OffsetRange) -> int:
    known = held.get(wanted.tp.partition)
    return wanted.start if known is None else known.start
