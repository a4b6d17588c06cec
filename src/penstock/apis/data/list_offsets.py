"""ListOffsets (key 2), versions 0-9: the offset at a time, at the start or at the end of a log.

Version 0 lists base offsets of segments (`list_offsets_v0`). Version 2 added the isolation level, 4
leader epochs, 7 the largest timestamp (-3), 8 the earliest offset on this broker's own disk (-4),
which is the log start offset, 9 the latest tiered offset (-5), which is -1 because there is no
tiered storage. No caller gets an offset above the high watermark, or above the visible end of a
topic with a delay; replicas do not ask.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.data.list_offsets_v0 import EARLIEST, LATEST, find_old_style_offsets
from penstock.apis.response_shapes import Shape, response_shape
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicPartition,
)
from penstock.protocol.api_keys import ApiKey
from penstock.replication.partition import FetchIsolation, Partition
from penstock.replication.storage_errors import as_refusal
from penstock.security.authorizer import AclOperation
from penstock.storage.engine import TimestampAndOffset
from penstock.storage.errors import StorageError

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.LIST_OFFSETS
LARGEST_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
_FIRST_VERSIONS = {
    LATEST: 0,
    EARLIEST: 0,
    LARGEST_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
}
_FIRST_WITH_NOT_AVAILABLE = 5
UNKNOWN = TimestampAndOffset(Offset(-1), NO_TIMESTAMP, NO_LEADER_EPOCH)


def answer(request: Request, services: "Services") -> Any:
    message = request.message
    shape = response_shape(KEY, request.version)
    named = Counter(
        TopicPartition(topic.name, partition.partition_index)
        for topic in message.topics
        for partition in topic.partitions
    )
    twice = {partition for partition, count in named.items() if count > 1}
    topics = tuple(
        shape["topics"](
            name=topic.name,
            partitions=_answer_topic(
                request, services, shape["topics"]["partitions"], topic, twice
            ),
        )
        for topic in message.topics
    )
    return shape(throttle_time=timedelta(), topics=topics)


def _answer_topic(
    request: Request,
    services: "Services",
    shape: Shape,
    topic: Any,
    twice: set[TopicPartition],
) -> tuple[Any, ...]:
    allowed = allows_topic(request, services, AclOperation.DESCRIBE, topic.name)
    answers = []
    for requested in topic.partitions:
        tp = TopicPartition(topic.name, requested.partition_index)
        try:
            if not allowed:
                raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if tp in twice:
                raise Refusal(ErrorCode.INVALID_REQUEST)
            code, fields = ErrorCode.NONE, _find_fields(request, services, tp, requested)
        except Refusal as refusal:
            code, fields = refusal.code, _NOT_FOUND
        answers.append(shape(partition_index=requested.partition_index, error_code=code, **fields))
    return tuple(answers)


def _find_fields(
    request: Request, services: "Services", tp: TopicPartition, requested: Any
) -> Mapping[str, Any]:
    if requested.timestamp < 0 and request.version < _FIRST_VERSIONS.get(requested.timestamp, 99):
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    partition = services.replicas.get(tp)
    partition.check_leader(getattr(requested, "current_leader_epoch", NO_LEADER_EPOCH))
    try:
        if request.version == 0:
            offsets = find_old_style_offsets(
                partition,
                timestamp=requested.timestamp,
                max_num_offsets=requested.max_num_offsets,
                now_ms=services.wall_ms(),
            )
            return {"old_style_offsets": offsets}
        return _as_fields(_find(request, partition, requested))
    except StorageError as error:
        raise as_refusal(error) from error


def _find(request: Request, partition: Partition, requested: Any) -> TimestampAndOffset:
    isolation = _isolation(request)
    if requested.timestamp == LATEST:
        _refuse_lagging(request, partition)
        end = partition.readable_end(isolation)
        return TimestampAndOffset(end, NO_TIMESTAMP, partition.leader_epoch)
    if requested.timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampAndOffset(partition.log_start_offset, NO_TIMESTAMP, NO_LEADER_EPOCH)
    if requested.timestamp == LATEST_TIERED:
        return UNKNOWN
    if requested.timestamp == LARGEST_TIMESTAMP:
        find = partition.log.find_max_timestamp
        if partition.visible_end is not None:
            find = partial(_find_max_visible, partition, isolation)
        return _below(request, partition, isolation, find)
    time_ms = TimestampMs(requested.timestamp)
    return _below(request, partition, isolation, lambda: partition.log.find_by_time(time_ms))


def _as_fields(result: TimestampAndOffset) -> Mapping[str, Any]:
    return {
        "timestamp": result.timestamp_ms,
        "offset": result.offset,
        "leader_epoch": result.leader_epoch,
    }


_NOT_FOUND = {**_as_fields(UNKNOWN), "old_style_offsets": ()}


def _isolation(request: Request) -> FetchIsolation:
    if getattr(request.message, "isolation_level", 0) == FetchIsolation.READ_COMMITTED:
        return FetchIsolation.READ_COMMITTED
    return FetchIsolation.READ_UNCOMMITTED


def _below(
    request: Request,
    partition: Partition,
    isolation: FetchIsolation,
    find: Callable[[], TimestampAndOffset | None],
) -> TimestampAndOffset:
    """The found offset, if this reader may see it already."""
    result = find()
    if result is not None and result.offset < partition.readable_end(isolation):
        return result
    _refuse_lagging(request, partition)
    return UNKNOWN


def _find_max_visible(partition: Partition, isolation: FetchIsolation) -> TimestampAndOffset | None:
    """The first record with the largest timestamp before the visible end, by bisection: the first
    record that is not older than a time lies the later, the later the time."""
    end, largest = partition.readable_end(isolation), partition.log.find_max_timestamp()
    best: TimestampAndOffset | None = None
    low, high = 0, -1 if largest is None else largest.timestamp_ms
    while low <= high:
        middle = (low + high) // 2
        result = partition.log.find_by_time(TimestampMs(middle))
        if result is not None and result.offset < end:
            best, low = result, result.timestamp_ms + 1
        else:
            high = middle - 1
    return best


def _refuse_lagging(request: Request, partition: Partition) -> None:
    """A new leader whose high watermark is below the start of its epoch would return an offset
    below one that an earlier leader has returned (KIP-207)."""
    before = partition.log.find_epoch_end(LeaderEpoch(partition.leader_epoch - 1))
    if before is not None and before.end_offset > partition.high_watermark:
        if request.version >= _FIRST_WITH_NOT_AVAILABLE:
            raise Refusal(ErrorCode.OFFSET_NOT_AVAILABLE)
        raise Refusal(ErrorCode.LEADER_NOT_AVAILABLE)


API = Api(
    key=KEY,
    versions=range(10),
    answer=answer,
    elements_share=0.7,  # 10,000 topics with a partition each, and more
)
