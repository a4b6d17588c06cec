"""Decides what a sync reads next, from the table's held offsets and the topic's offsets. Pure.

Invariant: held ranges grow only at their end, and a plan starts where the table ends.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.spark.source.plan import OffsetRange, backlog, limit_ends
from penstock.spark.tables.parts import HeldRange


class TopicEdges(NamedTuple):
    """Start and end of each partition's log, for read_committed readers."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class SyncPlan(NamedTuple):
    ranges: list[OffsetRange]  # to read now; none is empty
    held: dict[int, HeldRange]  # of every partition after that
    lag: int  # records that remain after that
    losses: list[str]  # messages about offsets that can never be in the table


def plan_sync(
    topic: str, held: Mapping[int, HeldRange], edges: TopicEdges, *, most_records: int
) -> SyncPlan:
    starts, losses = _starts(topic, held, edges)
    ends = limit_ends(starts, edges.ends, most_records)
    ranges = [OffsetRange(tp, at, ends[tp]) for tp, at in sorted(starts.items())]
    after = {
        span.tp.partition: HeldRange(_start(held, span), max(span.start, span.end))
        for span in ranges
    }
    left = sum(backlog(ends, edges.ends).values())
    return SyncPlan([span for span in ranges if span.size], after, left, losses)


def _starts(
    topic: str, held: Mapping[int, HeldRange], edges: TopicEdges
) -> tuple[dict[TopicPartition, int], list[str]]:
    starts, losses = {}, []
    for tp, start in edges.starts.items():
        held_range = held.get(tp.partition)
        starts[tp] = start if held_range is None else held_range.end
        if held_range is not None and held_range.end < start:
            losses.append(f"offsets {held_range.end} to {start - 1} of {tp} are deleted")
            starts[tp] = start
        elif held_range is not None and held_range.end > edges.ends[tp]:
            losses.append(
                f"{tp} ends at offset {edges.ends[tp]}, before {held_range.end} where the table "
                "ends; was the topic recreated?"
            )
    gone = [number for number in held if TopicPartition(topic, number) not in edges.starts]
    losses += [f"{topic}-{number} does not exist any more" for number in sorted(gone)]
    return starts, losses


def _start(held: Mapping[int, HeldRange], wanted: OffsetRange) -> int:
    held_range = held.get(wanted.tp.partition)
    return wanted.start if held_range is None else held_range.start
