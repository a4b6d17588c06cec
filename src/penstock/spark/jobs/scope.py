"""What part of the log a job is about: topics, partitions, and from where to where.

Asks the cluster for offsets, and decides nothing else. Invariant: a range lies within its log as it
is now; what was asked for beyond it is told, not read.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from penstock.client.data_calls import EARLIEST, LATEST, IsolationLevel
from penstock.client.errors import ClientError
from penstock.model.ids import TopicPartition
from penstock.spark.connect.connections import BlockingClient, ClientSettings, shared_client
from penstock.spark.failures import ClusterNotReady
from penstock.spark.jobs.failures import JobRefused
from penstock.spark.source.offset_json import format_partitions, nest_by_topic
from penstock.spark.source.plan import OffsetRange

_TIMEOUT_MS = 15_000


class EdgeKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"  # the first record that is not older


class Edge(NamedTuple):
    kind: EdgeKind
    value: int = 0


class JobScope(NamedTuple):
    topics: tuple[str, ...]
    partitions: tuple[int, ...] | None = None  # None: all
    start: Edge = Edge(EdgeKind.EARLIEST)
    end: Edge = Edge(EdgeKind.LATEST)


class ResolvedScope(NamedTuple):
    """A scope as the cluster has it."""

    ranges: list[OffsetRange]  # by partition; may be empty ranges
    log_starts: Mapping[TopicPartition, int]
    log_ends: Mapping[TopicPartition, int]

    @property
    def offsets(self) -> int:
        return sum(each.size for each in self.ranges)


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
        raise JobRefused(f"--partitions {text!r}: write numbers with commas between: 0,3,4")
    return tuple(sorted({int(part) for part in parts}))


def connect(bootstrap: str) -> BlockingClient:
    """In half a second instead of half a minute a user knows of a wrong address."""
    client = shared_client(ClientSettings(bootstrap, request_timeout_ms=_TIMEOUT_MS))
    try:
        client.run(lambda each: each.connect())
    except ClientError as error:
        raise ClusterNotReady(
            f"{error}; is the broker running? `penstock up` starts one here, --bootstrap says "
            "where it is"
        ) from None
    return client


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
    ranges = [OffsetRange(each, starts[each], max(starts[each], ends[each])) for each in partitions]
    return ResolvedScope(ranges, earliest, latest)


def source_options(bootstrap: str, found: ResolvedScope) -> dict[str, str]:
    """For `format("penstock")`: just these ranges."""
    ranges = [each for each in found.ranges if each.size]
    numbers: dict[str, list[int]] = {}
    for each in ranges:
        numbers.setdefault(each.tp.topic, []).append(each.tp.partition)
    return {
        "kafka.bootstrap.servers": bootstrap,
        "assign": json.dumps(numbers),
        "startingOffsets": json.dumps(nest_by_topic({each.tp: each.start for each in ranges})),
        "endingOffsets": json.dumps(nest_by_topic({each.tp: each.end for each in ranges})),
    }


def _find_partitions(client: BlockingClient, scope: JobScope) -> list[TopicPartition]:
    found = client.metadata(scope.topics).topics
    for topic in scope.topics:
        found[topic].check()
    existing = [
        TopicPartition(topic, each.partition)
        for topic in sorted(scope.topics)
        for each in found[topic].partitions
    ]
    if scope.partitions is None:
        return existing
    wanted = [TopicPartition(topic, each) for topic in scope.topics for each in scope.partitions]
    missing = set(wanted) - set(existing)
    if missing:
        raise ClusterNotReady(
            f"the cluster does not have {format_partitions(missing)}: correct --partitions"
        )
    return [each for each in existing if each.partition in scope.partitions]


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
            found = dict.fromkeys(earliest, edge.value)
        case EdgeKind.TIME:
            found = _listed(client, dict.fromkeys(earliest, edge.value), isolation)
            found = {each: latest[each] if at < 0 else at for each, at in found.items()}
    return {each: min(max(at, earliest[each]), latest[each]) for each, at in found.items()}


def _listed(
    client: BlockingClient, wanted: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    listed = client.list_offsets(wanted, isolation=isolation)
    return {each: found.offset for each, found in listed.items()}


def topics_of(found: ResolvedScope) -> list[str]:
    return sorted({each.tp.topic for each in found.ranges})
