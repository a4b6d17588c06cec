"""Resets a group's committed offsets: plans the new ones, and commits them if asked to.

Only a group without members is reset. Invariant: a planned offset lies between the partition's log
start offset and its end offset.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import NamedTuple

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import EARLIEST, LATEST
from penstock.client.errors import GroupNotFound, RefusedByBroker
from penstock.client.group_values import CommittedOffset
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

_CLOCK = r"(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?"
_DAYS = r"(?:(?P<days>\d+)D)?"
# With a P in front it is ISO 8601, where an M before the T would be months.
_ISO_SPAN = re.compile(rf"P{_DAYS}(?:T{_CLOCK})?", re.IGNORECASE)
_SHORT_SPAN = re.compile(rf"{_DAYS}{_CLOCK}", re.IGNORECASE)


class InvalidReset(ValueError):
    """A malformed option; the message says how to write it."""


class ResetKind(Enum):
    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    TIME = auto()  # in milliseconds
    SHIFT = auto()  # from the committed offset


class ResetTarget(NamedTuple):
    kind: ResetKind
    value: int = 0


class ResetScope(NamedTuple):
    """Partitions of a topic; None: all of them."""

    topic: str
    partitions: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class PlannedReset:
    tp: TopicPartition
    committed: int | None  # before
    offset: int  # after

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "committed_offset": self.committed,
            "new_offset": self.offset,
        }


# Parsing options.


def parse_scope(text: str) -> ResetScope:
    topic, colon, numbers = text.partition(":")
    if not colon:
        return ResetScope(topic)
    if not topic or not re.fullmatch(r"\d+(,\d+)*", numbers):
        raise InvalidReset(f"{text!r}: write TOPIC or TOPIC:0,1,2")
    return ResetScope(topic, tuple(int(number) for number in numbers.split(",")))


def parse_time_ms(text: str) -> int:
    """Parse a timestamp; UTC unless it has a zone, as in Kafka's tools."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidReset(
            f"{text!r}: write 2026-01-31T13:45:00, with Z or +02:00 if you like"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """Parse an ISO 8601 duration up to days (P1DT2H30M), or a short one (90m, 1d12h)."""
    match = _ISO_SPAN.fullmatch(text) or _SHORT_SPAN.fullmatch(text)
    units = {} if match is None else {k: v for k, v in match.groupdict().items() if v is not None}
    if not units:
        raise InvalidReset(f"{text!r}: write P1DT2H30M, or 90m, 1d12h, 45s")
    span = timedelta(**{unit: float(value) for unit, value in units.items()})
    return round(span.total_seconds() * 1000)


async def reset_offsets(
    client: ClusterClient,
    group: str,
    scopes: Sequence[ResetScope] | None,
    target: ResetTarget,
    *,
    execute: bool,
    timeout_ms: int | None = None,
) -> list[PlannedReset]:
    """What is committed, or without `execute` would be. scopes None: every partition with a
    committed offset. A group that does not exist is accepted: the reset creates it."""
    await _check_empty(client, group, timeout_ms)
    planned = await plan_reset(client, group, scopes, target, timeout_ms=timeout_ms)
    if execute:
        offsets = {reset.tp: CommittedOffset(reset.offset) for reset in planned}
        await commit_offsets(client, group, offsets, timeout_ms=timeout_ms)
    return planned


async def commit_offsets(
    client: ClusterClient,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    timeout_ms: int | None = None,
) -> None:
    """GroupNotEmpty while the group has members."""
    try:
        await client.groups.commit_offsets(group, offsets, timeout_ms=timeout_ms)
    except RefusedByBroker as error:
        if error.code in _MEMBERS_CAME:
            raise _still_read(group, "members") from error
        raise


async def _check_empty(client: ClusterClient, group: str, timeout_ms: int | None) -> None:
    try:
        description = await client.groups.describe(group, timeout_ms=timeout_ms)
    except GroupNotFound:
        return
    if description.members:
        who = ", ".join(
            sorted({f"{member.client_id} on {member.host}" for member in description.members})
        )
        count = len(description.members)
        raise _still_read(group, f"{count} member{'s' if count > 1 else ''} ({who})")


def _still_read(group: str, by: str) -> RefusedByBroker:
    return RefusedByBroker(
        f"reset offsets of group {group!r}",
        ErrorCode.NON_EMPTY_GROUP,
        f"it has {by}; stop its consumers first, or they continue from their positions",
    )


_MEMBERS_CAME = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS))


# Planning.


async def plan_reset(
    client: ClusterClient,
    group: str,
    scopes: Sequence[ResetScope] | None,
    target: ResetTarget,
    *,
    timeout_ms: int | None = None,
) -> list[PlannedReset]:
    """Plan the reset; scopes None: every partition with a committed offset."""
    committed = await client.groups.fetch_offsets(group, timeout_ms=timeout_ms)
    partitions = await _choose(client, scopes, committed, timeout_ms)
    if not partitions:
        raise RefusedByBroker(
            f"reset offsets of group {group!r}",
            ErrorCode.GROUP_ID_NOT_FOUND,
            "it has committed nothing; name the topics with --topic",
        )
    starts = await client.list_offsets(dict.fromkeys(partitions, EARLIEST), timeout_ms=timeout_ms)
    ends = await client.list_offsets(dict.fromkeys(partitions, LATEST), timeout_ms=timeout_ms)
    wanted = await _find_wanted(client, group, partitions, target, committed, timeout_ms)
    return [
        PlannedReset(
            partition,
            committed[partition].offset if partition in committed else None,
            min(
                max(_or_end(wanted[partition], ends[partition].offset), starts[partition].offset),
                ends[partition].offset,
            ),
        )
        for partition in partitions
    ]


async def _choose(
    client: ClusterClient,
    scopes: Sequence[ResetScope] | None,
    committed: Mapping[TopicPartition, CommittedOffset],
    timeout_ms: int | None,
) -> list[TopicPartition]:
    topics = {tp.topic for tp in committed} if scopes is None else {s.topic for s in scopes}
    metadata = await client.metadata(topics, timeout_ms=timeout_ms)
    if scopes is None:  # a deleted topic does not keep the others from being reset
        return sorted(tp for tp in committed if metadata.find_partition(*tp) is not None)
    chosen: set[TopicPartition] = set()
    for scope in scopes:
        topic = metadata.topics[scope.topic]
        topic.check()
        count = len(topic.partitions)
        numbers = range(count) if scope.partitions is None else scope.partitions
        if max(numbers) >= count:
            raise RefusedByBroker(
                f"partition {max(numbers)} of topic {scope.topic!r}",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"it does not exist: the topic has {count}, numbered from 0",
            )
        chosen.update(TopicPartition(scope.topic, number) for number in numbers)
    return sorted(chosen)


async def _find_wanted(
    client: ClusterClient,
    group: str,
    partitions: Sequence[TopicPartition],
    target: ResetTarget,
    committed: Mapping[TopicPartition, CommittedOffset],
    timeout_ms: int | None,
) -> dict[TopicPartition, int | None]:
    """None: the end."""
    match target.kind:
        case ResetKind.EARLIEST:
            return dict.fromkeys(partitions, 0)
        case ResetKind.LATEST:
            return dict.fromkeys(partitions, None)
        case ResetKind.OFFSET:
            return dict.fromkeys(partitions, target.value)
        case ResetKind.TIME:
            offsets = await client.list_offsets(
                dict.fromkeys(partitions, target.value), timeout_ms=timeout_ms
            )
            return {tp: None if at.offset < 0 else at.offset for tp, at in offsets.items()}
        case ResetKind.SHIFT:
            for partition in partitions:
                if partition not in committed:
                    raise RefusedByBroker(
                        f"shift offsets of group {group!r}",
                        ErrorCode.INVALID_REQUEST,
                        f"it has committed nothing in {partition}; leave it out, or name an offset",
                    )
            return {
                partition: committed[partition].offset + target.value for partition in partitions
            }


def _or_end(offset: int | None, end: int) -> int:
    return end if offset is None else offset
