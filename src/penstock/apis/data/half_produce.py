"""Produce on half topics: records that are no halves, or no decisions, are refused at once.

A half needs WRITE on the topic that it is for, because its commit is written there in nobody's
name. Later, nobody could be told. Batches stay as they are: half topics are ordinary logs.
"""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from penstock.apis.access import allows_topic
from penstock.apis.api import Request
from penstock.model.cluster import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TIMESTAMP, Offset, TopicPartition
from penstock.protocol.batch import BatchHeader, CorruptBatch
from penstock.protocol.half_headers import (
    DECISIONS_SUFFIX,
    HALF_SUFFIX,
    InvalidHalf,
    read_decision,
    read_half,
)
from penstock.protocol.records import iter_records
from penstock.replication.delayed_produce import PartitionAppended
from penstock.security.authorizer import AclOperation
from penstock.storage.engine import AppendOrigin
from penstock.storage.errors import StorageError
from penstock.storage.log_validator import validate_batch

if TYPE_CHECKING:
    from penstock.apis.services import Services

MAX_REQUEST_BYTES = 64 * 1024 * 1024  # of the batches that are looked into
_UNKNOWN = Offset(-1)

Batches = list[tuple[TopicPartition, memoryview]]
Refusals = dict[int, PartitionAppended]  # by the partition's position in the request


def refuse_what_is_no_half(
    request: Request, services: "Services", batches: Batches, refused: Refusals
) -> tuple[Batches, Refusals]:
    left: Batches = []
    refused = dict(refused)
    budget = MAX_REQUEST_BYTES
    every_position = range(len(batches) + len(refused))
    positions = [position for position in every_position if position not in refused]
    for position, batch in zip(positions, batches, strict=True):
        groups = services.replicas.half_topics.get(batch[0].topic)
        refusal = None
        if groups is not None:
            budget -= len(batch[1])
            refusal = _TOO_MUCH if budget < 0 else _check(request, services, batch, groups)
        if refusal is None:
            left.append(batch)
        else:
            refused[position] = refusal
    return left, refused


def _check(
    request: Request,
    services: "Services",
    batch: tuple[TopicPartition, memoryview],
    groups: Collection[str],
) -> PartitionAppended | None:
    tp, records = batch
    is_decisions = tp.topic.endswith(DECISIONS_SUFFIX)
    topic = tp.topic.removesuffix(DECISIONS_SUFFIX if is_decisions else HALF_SUFFIX)
    if not allows_topic(request, services, AclOperation.WRITE, topic):
        return _refuse(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{tp.topic} needs WRITE on topic {topic!r}"
        )
    if topic in INTERNAL_TOPICS:
        return _refuse(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r} is written by brokers, not by clients"
        )
    if services.metadata.find_topic(topic) is None:
        return _refuse(
            ErrorCode.INVALID_RECORD,
            f"the topic {topic!r} of this half topic does not exist; create it first",
        )
    partition = services.replicas.find(tp)
    if partition is None:
        return None  # its append says why it is refused
    limit = partition.log.config.decompression_limit_bytes
    if is_decisions:
        return _check_records(tp, records, _find_no_decisions(records, limit))
    full_groups = services.full_half_groups
    return _check_records(tp, records, _find_no_halves(records, groups, full_groups, limit))


def _check_records(
    tp: TopicPartition, records: memoryview, invalid: Iterator[tuple[int, InvalidHalf]]
) -> PartitionAppended | None:
    """`invalid` is looked for once the batch is known to be sound."""
    try:
        BatchHeader._make(validate_batch(records, AppendOrigin.CLIENT, tp))
        for index, error in invalid:
            text = f"{tp}: record {index}: {error}"
            return _refuse(ErrorCode.INVALID_RECORD, text)._replace(record_errors=((index, text),))
    except _GroupIsFull as full:
        return _refuse(ErrorCode.POLICY_VIOLATION, f"{tp}: {full}")
    except (StorageError, CorruptBatch):
        return None  # its append says why it is refused
    return None


class _GroupIsFull(Exception):
    """The group's shard holds as many halves as it may."""


def _find_no_halves(
    records: memoryview, groups: Collection[str], full_groups: Collection[str], limit: int
) -> Iterator[tuple[int, InvalidHalf]]:
    for index, record in enumerate(iter_records(records, limit=limit)):
        try:
            half = read_half(record, groups)
        except InvalidHalf as error:
            yield index, error
        else:
            if half.group in full_groups:
                raise _GroupIsFull(
                    f"as many halves of group {half.group!r} are undecided or expired as are "
                    "allowed (penstock.half.max.pending); decide some, then send this again"
                )


def _find_no_decisions(records: memoryview, limit: int) -> Iterator[tuple[int, InvalidHalf]]:
    for index, record in enumerate(iter_records(records, limit=limit)):
        try:
            read_decision(record)
        except InvalidHalf as error:
            yield index, error


def _refuse(code: ErrorCode, message: str) -> PartitionAppended:
    return PartitionAppended(code, _UNKNOWN, NO_TIMESTAMP, _UNKNOWN, message)


_TOO_MUCH = _refuse(
    ErrorCode.REQUEST_TIMED_OUT,  # retriable, because the batch may be valid
    "earlier batches of the request are as much as is looked into at once; send this one again",
)
