"""OffsetFetch (key 9), versions 1-10: the committed offsets of groups.

Version 2 added all partitions of a group and a top-level error, 5 the leader epoch, 7 stable
offsets only, 8 several groups, 9 the member (KIP-848), 10 topics by id. A caller that may not
describe a topic does not see its offsets.
"""

from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.apis.access import allows_group, allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.groups.per_group import for_each_group
from penstock.apis.requested_topics import find_requested_name, refuse_topic
from penstock.apis.response_shapes import Shape, response_shape
from penstock.coordinators.group.requests import FetchedOffset, FetchedOffsets, FetchOffsets
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_LEADER_EPOCH, TopicId, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.OFFSET_FETCH
FIRST_WITH_TOP_LEVEL_ERROR = 2
FIRST_WITH_SEVERAL_GROUPS = 8
FIRST_WITH_TOPIC_IDS = 10
NO_MEMBER_EPOCH = -1
NO_OFFSET = -1


class _PartitionResult(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    code: ErrorCode


class _Topic(NamedTuple):
    name: str | None
    topic_id: TopicId | None
    partitions: list[_PartitionResult]


class _Group(NamedTuple):
    group: str
    code: ErrorCode
    topics: list[_Topic]


def answer(request: Request, services: "Services") -> Coroutine[Any, Any, Any]:
    return _answer(request, services)


async def _answer(request: Request, services: "Services") -> Any:
    message = request.message
    has_several = request.version >= FIRST_WITH_SEVERAL_GROUPS
    entries = message.groups if has_several else (message,)
    by_group = {entry.group_id: entry for entry in entries}

    async def fetch(group: str) -> _Group:
        return await _fetch_group(request, services, by_group[group])

    groups = await for_each_group(by_group, fetch)
    shape = response_shape(KEY, request.version)
    if has_several:
        built = tuple(_build_group(shape["groups"], group) for group in groups)
        return shape(throttle_time=timedelta(), groups=built)
    return _build_group(shape, groups[0])


async def _fetch_group(request: Request, services: "Services", entry: Any) -> _Group:
    group = entry.group_id
    if not allows_group(request, services, AclOperation.DESCRIBE, group):
        return _refuse(request.version, entry, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = [find_requested_name(services, topic) for topic in entry.topics or ()]
    refused = [refuse_topic(request, services, AclOperation.DESCRIBE, name) for name in names]
    fetched = await services.groups.fetch(_read(request, entry, names, refused))
    if fetched.error is not ErrorCode.NONE:
        return _refuse(request.version, entry, fetched.error)
    if entry.topics is None:
        return _Group(group, ErrorCode.NONE, _all_topics(request, services, fetched))
    return _Group(group, ErrorCode.NONE, _requested_topics(entry.topics, names, refused, fetched))


def _read(
    request: Request, entry: Any, names: Sequence[str | None], refused: Sequence[ErrorCode]
) -> FetchOffsets:
    partitions = None
    if entry.topics is not None:
        partitions = tuple(
            TopicPartition(name, index)
            for topic, name, code in zip(entry.topics, names, refused, strict=True)
            if name is not None and code is ErrorCode.NONE
            for index in topic.partition_indexes
        )
    return FetchOffsets(
        group=entry.group_id,
        member=getattr(entry, "member_id", None),
        member_epoch=getattr(entry, "member_epoch", NO_MEMBER_EPOCH),
        partitions=partitions,
        require_stable=getattr(request.message, "require_stable", False),
    )


# -- results -------------------------------------------------------------------------------


def _requested_topics(
    topics: Sequence[Any],
    names: Sequence[str | None],
    refused: Sequence[ErrorCode],
    fetched: FetchedOffsets,
) -> list[_Topic]:
    by_partition = {offset.tp: offset for offset in fetched.offsets}
    results = []
    for topic, name, code in zip(topics, names, refused, strict=True):
        if name is None or code is not ErrorCode.NONE:
            results.append(_refuse_topic(topic, code))
            continue
        partitions = [
            _result(by_partition[TopicPartition(name, index)], fetched)
            for index in topic.partition_indexes
        ]
        results.append(_Topic(name, getattr(topic, "topic_id", None), partitions))
    return results


def _all_topics(request: Request, services: "Services", fetched: FetchedOffsets) -> list[_Topic]:
    by_name: dict[str, _Topic] = {}
    for offset in fetched.offsets:
        name = offset.tp.topic
        if name not in by_name:
            state = services.metadata.find_topic(name)
            by_name[name] = _Topic(name, None if state is None else state.topic_id, [])
        by_name[name].partitions.append(_result(offset, fetched))
    needs_id = request.version >= FIRST_WITH_TOPIC_IDS
    return [
        topic
        for name, topic in by_name.items()
        if allows_topic(request, services, AclOperation.DESCRIBE, name, shows=True)
        and (topic.topic_id is not None or not needs_id)
    ]


def _result(committed: FetchedOffset, fetched: FetchedOffsets) -> _PartitionResult:
    tp, offset, leader_epoch, metadata = committed
    is_unstable = tp in fetched.unstable
    code = ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE
    return _PartitionResult(tp.partition, offset, leader_epoch, metadata, code)


def _refuse(version: int, entry: Any, code: ErrorCode) -> _Group:
    """Version 1 has no top-level error, so every requested partition gets it."""
    if version >= FIRST_WITH_TOP_LEVEL_ERROR:
        return _Group(entry.group_id, code, [])
    return _Group(entry.group_id, code, [_refuse_topic(topic, code) for topic in entry.topics])


def _refuse_topic(topic: Any, code: ErrorCode) -> _Topic:
    partitions = [
        _PartitionResult(index, NO_OFFSET, NO_LEADER_EPOCH, "", code)
        for index in topic.partition_indexes
    ]
    return _Topic(getattr(topic, "name", None), getattr(topic, "topic_id", None), partitions)


def _build_group(shape: Shape, group: _Group) -> Any:
    topic_shape = shape["topics"]
    partition_shape = topic_shape["partitions"]
    return shape(
        throttle_time=timedelta(),
        group_id=group.group,
        error_code=group.code,
        topics=tuple(
            topic_shape(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    partition_shape(
                        partition_index=result.partition,
                        committed_offset=result.offset,
                        committed_leader_epoch=result.leader_epoch,
                        metadata=result.metadata,
                        error_code=result.code,
                    )
                    for result in topic.partitions
                ),
            )
            for topic in group.topics
        ),
    )


API = Api(
    key=KEY,
    versions=range(1, 11),
    answer=answer,
    elements_share=0.55,  # 10,000 topics with a partition each, and more
)
