"""The part of the log a job works on: topics, partitions, start and end.

Resolves it to offsets with the cluster, and decides nothing else. Invariant: a range lies within
its log as it is now; requested offsets outside of it are reported, not read.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from penstock.client.data_calls import EARLIEST, LATEST, IsolationLevel
from penstock.client.errors import ClientError
from penstock.model.ids import TopicPartition
from penstock.spark.connect.cluster_security import security_options
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.failures import ClusterNotReady
from penstock.spark.jobs.failures import JobRefused
from penstock.spark.source.offset_json import format_partitions, nest_by_topic
from penstock.spark.source.plan import OffsetRange


class EdgeKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"  # the first record at or after it


class Edge(NamedTuple):
    kind: EdgeKind
    value: int = 0


class JobScope(NamedTuple):
    topics: tuple[str, ...]
    partitions: tuple[int, ...] | None = None  # None: all
    start: Edge = Edge(EdgeKind.EARLIEST)
    end: Edge = Edge(EdgeKind.LATEST)


class ResolvedScope(NamedTuple):
    """A scope resolved to offsets."""

    ranges: list[OffsetRange]  # by partition; a range may be empty
    log_starts: Mapping[TopicPartition, int]
    log_ends: Mapping[TopicPartition, int]

    @property
    def offsets(self) -> int:
        return sum(span.size for span in self.ranges)


def parse_edge(option: str, text: str) -> Edge:
    if text in (EdgeKind.EARLIEST.value, EdgeKind.LATEST.value):
        return Edge(EdgeKind(text))
    if text.isascii() and text.isdecimal():
        return Edge(EdgeKind.OFFSET, int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise JobRefused(
            f"{option} {text!r}: write an offset, a time as 2026-01-31T13:45:00Z, earliest or "
            "latest"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Edge(EdgeKind.TIME, round(moment.timestamp() * 1000))


def parse_partitions(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise JobRefused(f"--partitions {text!r}: write numbers separated by commas, as 0,3,4")
    return tuple(sorted({int(part) for part in parts}))


def resolve_scope(
    client: BlockingClient,
    scope: JobScope,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> ResolvedScope:
    try:
        partitions = _find_partitions(client, scope)
        earliest = _listed(client, dict.fromkeys(partitions, EARLIEST), isolation)
        latest = _listed(client, dict.fromkeys(partitions, LATEST), isolation)
        starts = _resolve(client, scope.start, earliest, latest, isolation)
        ends = _resolve(client, scope.end, earliest, latest, isolation)
    except ClientError as error:
        raise ClusterNotReady(str(error)) from None
    ranges = [OffsetRange(tp, starts[tp], max(starts[tp], ends[tp])) for tp in partitions]
    return ResolvedScope(ranges, earliest, latest)


def source_options(bootstrap: str, resolved: ResolvedScope) -> dict[str, str]:
    """Options with which `format("penstock")` reads exactly these ranges."""
    ranges = [span for span in resolved.ranges if span.size]
    numbers: dict[str, list[int]] = {}
    for tp in (span.tp for span in ranges):
        numbers.setdefault(tp.topic, []).append(tp.partition)
    return {
        "kafka.bootstrap.servers": bootstrap,
        "assign": json.dumps(numbers),
        "startingOffsets": json.dumps(nest_by_topic({span.tp: span.start for span in ranges})),
        "endingOffsets": json.dumps(nest_by_topic({span.tp: span.end for span in ranges})),
        **security_options(bootstrap),
    }


def _find_partitions(client: BlockingClient, scope: JobScope) -> list[TopicPartition]:
    topics = client.metadata(scope.topics).topics
    for topic in scope.topics:
        topics[topic].check()
    existing = [
        TopicPartition(topic, metadata.partition)
        for topic in sorted(scope.topics)
        for metadata in topics[topic].partitions
    ]
    if scope.partitions is None:
        return existing
    wanted = [
        TopicPartition(topic, number) for topic in scope.topics for number in scope.partitions
    ]
    missing = set(wanted) - set(existing)
    if missing:
        raise ClusterNotReady(
            f"the cluster does not have {format_partitions(missing)}: correct --partitions"
        )
    return [tp for tp in existing if tp.partition in scope.partitions]


def _resolve(
    client: BlockingClient,
    edge: Edge,
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
) -> dict[TopicPartition, int]:
    match edge.kind:
        case EdgeKind.EARLIEST:
            return dict(earliest)
        case EdgeKind.LATEST:
            return dict(latest)
        case EdgeKind.OFFSET:
            offsets = dict.fromkeys(earliest, edge.value)
        case EdgeKind.TIME:
            offsets = _listed(client, dict.fromkeys(earliest, edge.value), isolation)
            offsets = {tp: latest[tp] if at < 0 else at for tp, at in offsets.items()}
    return {tp: min(max(at, earliest[tp]), latest[tp]) for tp, at in offsets.items()}


def _listed(
    client: BlockingClient, wanted: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    listed = client.list_offsets(wanted, isolation=isolation)
    return {tp: listed_offset.offset for tp, listed_offset in listed.items()}


def topics_of(resolved: ResolvedScope) -> list[str]:
    return sorted({span.tp.topic for span in resolved.ranges})
