"""Produce, Fetch, ListOffsets and OffsetForLeaderEpoch as plain values. No connections here.

Followers use `fetch_call` and `read_fetched` on their own connections.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from penstock.client.call import Call
from penstock.client.metadata import read_error
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import (
    NO_LEADER_EPOCH,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicId,
    TopicPartition,
)
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import Buffer

NO_REPLICA = BrokerId(-1)  # an ordinary client

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3

_NOTHING = memoryview(b"")
_FIRST_FETCH_BY_ID = 13


class IsolationLevel(enum.IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Produced(NamedTuple):
    base_offset: Offset  # -1 with acks 0
    log_append_time_ms: int = -1  # -1: records keep their own timestamps
    log_start_offset: Offset = Offset(-1)


def produce_call(
    tp: TopicPartition,
    batches: Buffer,
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> Call:
    """Up to version 11: 12 changes what a transactional produce means, 13 names topics by id."""
    data = {"index": tp.partition, "records": memoryview(batches)}
    fields = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": timedelta(milliseconds=timeout_ms),
        "topic_data": [{"name": tp.topic, "partition_data": [data]}],
    }
    return Call(ApiKey.PRODUCE, range(3, 12), fields)


def read_produced(answer: Any) -> tuple[ErrorCode, str | None, Produced]:
    ((only,),) = ([*topic.partition_responses] for topic in answer.responses)
    produced = Produced(only.base_offset, _ms(only.log_append_time), _log_start(only))
    return read_error(only.error_code), getattr(only, "error_message", None), produced


class FetchFrom(NamedTuple):
    tp: TopicPartition
    offset: Offset
    max_bytes: int = 1024 * 1024  # a larger first batch is returned whole
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH  # -1: not checked
    last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH  # followers: detects diverging logs
    log_start_offset: Offset = Offset(-1)  # followers


class FetchOptions(NamedTuple):
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    replica_id: BrokerId = NO_REPLICA
    rack: str = ""
    broker_epoch: int = -1  # followers


class AbortedTransactionStart(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset


class FetchedPartition(NamedTuple):
    """The result for one partition. `batches` is a view of the response, which it keeps alive."""

    tp: TopicPartition
    error: ErrorCode
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: tuple[AbortedTransactionStart, ...]
    batches: memoryview  # the last batch may be incomplete, the first may start earlier
    diverging: tuple[LeaderEpoch, Offset] | None = None  # followers: truncate to this


def fetch_call(
    wanted: Sequence[FetchFrom], options: FetchOptions, topic_ids: Mapping[str, TopicId | None]
) -> Call:
    """A Fetch without a session (KIP-227): each request lists all its partitions. Topics are named
    by id where every id is known, as required from version 13 on."""
    by_topic: dict[str, list[Mapping[str, Any]]] = {}
    for fetch_from in wanted:
        by_topic.setdefault(fetch_from.tp.topic, []).append(_fetch_partition(fetch_from))
    topics = [
        {"topic": name, "topic_id": topic_ids.get(name), "partitions": partitions}
        for name, partitions in by_topic.items()
    ]
    fields = {
        "replica_id": options.replica_id,
        "replica_state": {
            "replica_id": options.replica_id,
            "replica_epoch": options.broker_epoch,
        },
        "max_wait": timedelta(milliseconds=options.max_wait_ms),
        "min_bytes": options.min_bytes,
        "max_bytes": options.max_bytes,
        "isolation_level": options.isolation,
        "topics": topics,
        "rack_id": options.rack,
    }
    are_ids_known = all(topic_ids.get(name) is not None for name in by_topic)
    versions = range(4, 18) if are_ids_known else range(4, _FIRST_FETCH_BY_ID)
    return Call(ApiKey.FETCH, versions, fields)


def _fetch_partition(wanted: FetchFrom) -> Mapping[str, Any]:
    return {
        "partition": wanted.tp.partition,
        "current_leader_epoch": wanted.leader_epoch,
        "fetch_offset": wanted.offset,
        "last_fetched_epoch": wanted.last_fetched_epoch,
        "log_start_offset": wanted.log_start_offset,
        "partition_max_bytes": wanted.max_bytes,
    }


def read_fetched(
    answer: Any, names: Mapping[TopicId, str]
) -> tuple[ErrorCode, list[FetchedPartition]]:
    """The error of the whole request (none before version 7), and the result of each partition."""
    fetched = []
    for topic in answer.responses:
        name = names.get(topic.topic_id) if hasattr(topic, "topic_id") else topic.topic
        if name is not None:
            fetched += [_read_fetched(name, partition) for partition in topic.partitions]
    return read_error(getattr(answer, "error_code", 0)), fetched


def _read_fetched(topic: str, data: Any) -> FetchedPartition:
    aborted = [
        AbortedTransactionStart(transaction.producer_id, transaction.first_offset)
        for transaction in data.aborted_transactions or ()
    ]
    diverging: Any = getattr(data, "diverging_epoch", None)
    if diverging is not None:
        diverging = (diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None
    return FetchedPartition(
        tp=TopicPartition(topic, data.partition_index),
        error=read_error(data.error_code),
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=_log_start(data),
        aborted=tuple(aborted),
        batches=_NOTHING if data.records is None else data.records,
        diverging=diverging,
    )


class ListedOffset(NamedTuple):
    offset: Offset  # -1: no record at or after this time
    timestamp_ms: int  # -1 for EARLIEST and LATEST
    leader_epoch: LeaderEpoch


def list_offsets_call(wanted: Mapping[TopicPartition, int], *, isolation: IsolationLevel) -> Call:
    """Times in milliseconds, or EARLIEST, LATEST, MAX_TIMESTAMP (which needs version 7)."""
    by_topic = group_by_topic(
        (tp, {"partition_index": tp.partition, "timestamp": time}) for tp, time in wanted.items()
    )
    fields = {
        "replica_id": NO_REPLICA,
        "isolation_level": isolation,
        "topics": [
            {"name": name, "partitions": partitions} for name, partitions in by_topic.items()
        ],
    }
    lowest = 7 if MAX_TIMESTAMP in wanted.values() else 2
    return Call(ApiKey.LIST_OFFSETS, range(lowest, 10), fields)


def read_listed(answer: Any) -> dict[TopicPartition, tuple[ErrorCode, ListedOffset]]:
    return {
        TopicPartition(topic.name, partition.partition_index): (
            read_error(partition.error_code),
            ListedOffset(
                partition.offset,
                partition.timestamp,
                getattr(partition, "leader_epoch", NO_LEADER_EPOCH),
            ),
        )
        for topic in answer.topics
        for partition in topic.partitions
    }


class LeaderEpochEnd(NamedTuple):
    epoch: LeaderEpoch  # the largest at or below the requested one; -1: none in the log
    end_offset: Offset  # the epoch's end; for the leader's own epoch, the log end offset


def epoch_ends_call(wanted: Mapping[TopicPartition, LeaderEpoch]) -> Call:
    """Only the leader in its current epoch answers; others reject the request."""
    by_topic = group_by_topic(
        (
            tp,
            {
                "partition": tp.partition,
                "current_leader_epoch": epoch,
                "leader_epoch": epoch,
            },
        )
        for tp, epoch in wanted.items()
    )
    topics = [{"topic": name, "partitions": partitions} for name, partitions in by_topic.items()]
    fields = {"replica_id": NO_REPLICA, "topics": topics}
    return Call(ApiKey.OFFSET_FOR_LEADER_EPOCH, range(2, 5), fields)


def read_epoch_ends(answer: Any) -> dict[TopicPartition, tuple[ErrorCode, LeaderEpochEnd]]:
    return {
        TopicPartition(topic.topic, partition.partition): (
            read_error(partition.error_code),
            LeaderEpochEnd(partition.leader_epoch, partition.end_offset),
        )
        for topic in answer.topics
        for partition in topic.partitions
    }


def group_by_topic(
    items: Iterable[tuple[TopicPartition, Mapping[str, Any]]],
) -> dict[str, list[Mapping[str, Any]]]:
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for partition, fields in items:
        grouped.setdefault(partition.topic, []).append(fields)
    return grouped


def group_numbers(
    partitions: Iterable[TopicPartition], field: str
) -> list[Mapping[str, str | list[int]]]:
    """Topics by name, with their partition numbers in `field`."""
    grouped: dict[str, list[int]] = {}
    for tp in partitions:
        grouped.setdefault(tp.topic, []).append(tp.partition)
    return [{"name": name, field: numbers} for name, numbers in grouped.items()]


def _ms(time: datetime | None) -> int:
    return -1 if time is None else round(time.timestamp() * 1000)


def _log_start(data: Any) -> Offset:
    return Offset(getattr(data, "log_start_offset", -1))
