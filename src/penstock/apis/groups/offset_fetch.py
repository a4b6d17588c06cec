"""OffsetFetch (key 9), versions 1-10: how far groups have read.

Version 2 added all partitions there are and an error of the whole answer, 5 the leader's epoch, 7
offsets that no open transaction may change, 8 several groups, 9 the member that asks (KIP-848), 10
gives topics by id. Who may not describe a topic does not see its offsets.
"""

from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.apis.access import allows_group, allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.groups.per_group import ask_each
from penstock.apis.requested_topics import find_asked_name, refuse_topic
from penstock.apis.response_shapes import Shape, response_shape
from penstock.coordinators.group.requests import FetchedOffset, FetchedOffsets, FetchOffsets
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_LEADER_EPOCH, TopicId, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.OFFSET_FETCH
FIRST_WITH_ANSWER_ERROR = 2
FIRST_WITH_SEVERAL_GROUPS = 8
FIRST_WITH_TOPIC_IDS = 10
NO_MEMBER_EPOCH = -1
NO_OFFSET = -1


class _Told(NamedTuple):
    """Of one partition."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    code: ErrorCode


class _Topic(NamedTuple):
    name: str | None
    topic_id: TopicId | None
    partitions: list[_Told]


class _Group(NamedTuple):
    group: str
    code: ErrorCode
    topics: list[_Topic]


def answer(request: Request, services: "Services") -> Coroutine[Any, Any, Any]:
    return _answer(request, services)


async def _answer(request: Request, services: "Services") -> Any:
    message = request.message
    has_several = request.version >= FIRST_WITH_SEVERAL_GROUPS
    asked = {each.group_id: each for each in (message.groups if has_several else (message,))}

    async def ask(group: str) -> _Group:
        return await _answer_group(request, services, asked[group])

    groups = await ask_each(asked, ask)
    shape = response_shape(KEY, request.version)
    if has_several:
        told = tuple(_build_group(shape["groups"], each) for each in groups)
        return shape(throttle_time=timedelta(), groups=told)
    return _build_group(shape, groups[0])


async def _answer_group(request: Request, services: "Services", asked: Any) -> _Group:
    group = asked.group_id
    if not allows_group(request, services, AclOperation.DESCRIBE, group):
        return _refuse(request.version, asked, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = [find_asked_name(services, topic) for topic in asked.topics or ()]
    refused = [refuse_topic(request, services, AclOperation.DESCRIBE, name) for name in names]
    fetched = await services.groups.fetch(_read(request, asked, names, refused))
    if fetched.error is not ErrorCode.NONE:
        return _refuse(request.version, asked, fetched.error)
    if asked.topics is None:
        return _Group(group, ErrorCode.NONE, _tell_all(request, services, fetched))
    return _Group(group, ErrorCode.NONE, _tell_asked(asked.topics, names, refused, fetched))


def _read(
    request: Request, asked: Any, names: Sequence[str | None], refused: Sequence[ErrorCode]
) -> FetchOffsets:
    partitions = None
    if asked.topics is not None:
        partitions = tuple(
            TopicPartition(name, index)
            for topic, name, code in zip(asked.topics, names, refused, strict=True)
            if name is not None and code is ErrorCode.NONE
            for index in topic.partition_indexes
        )
    return FetchOffsets(
        group=asked.group_id,
        member=getattr(asked, "member_id", None),
        member_epoch=getattr(asked, "member_epoch", NO_MEMBER_EPOCH),
        partitions=partitions,
        require_stable=getattr(request.message, "require_stable", False),
    )


# -- what is told --------------------------------------------------------------------------


def _tell_asked(
    topics: Sequence[Any],
    names: Sequence[str | None],
    refused: Sequence[ErrorCode],
    fetched: FetchedOffsets,
) -> list[_Topic]:
    found = {offset.tp: offset for offset in fetched.offsets}
    told = []
    for topic, name, code in zip(topics, names, refused, strict=True):
        if name is None or code is not ErrorCode.NONE:
            told.append(_refuse_topic(topic, code))
            continue
        partitions = [
            _tell(found[TopicPartition(name, index)], fetched) for index in topic.partition_indexes
        ]
        told.append(_Topic(name, getattr(topic, "topic_id", None), partitions))
    return told


def _tell_all(request: Request, services: "Services", fetched: FetchedOffsets) -> list[_Topic]:
    told: dict[str, _Topic] = {}
    for each in fetched.offsets:
        name = each.tp.topic
        if name not in told:
            known = services.metadata.find_topic(name)
            told[name] = _Topic(name, None if known is None else known.topic_id, [])
        told[name].partitions.append(_tell(each, fetched))
    needs_id = request.version >= FIRST_WITH_TOPIC_IDS
    return [
        topic
        for name, topic in told.items()
        if allows_topic(request, services, AclOperation.DESCRIBE, name)
        and (topic.topic_id is not None or not needs_id)
    ]


def _tell(committed: FetchedOffset, fetched: FetchedOffsets) -> _Told:
    partition, offset, leader_epoch, metadata = committed
    is_unstable = partition in fetched.unstable
    code = ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE
    return _Told(partition.partition, offset, leader_epoch, metadata, code)


def _refuse(version: int, asked: Any, code: ErrorCode) -> _Group:
    """Version 1 has no place for it but the partitions that were asked for."""
    if version >= FIRST_WITH_ANSWER_ERROR:
        return _Group(asked.group_id, code, [])
    return _Group(asked.group_id, code, [_refuse_topic(topic, code) for topic in asked.topics])


def _refuse_topic(topic: Any, code: ErrorCode) -> _Topic:
    partitions = [
        _Told(index, NO_OFFSET, NO_LEADER_EPOCH, "", code) for index in topic.partition_indexes
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
                        partition_index=each.partition,
                        committed_offset=each.offset,
                        committed_leader_epoch=each.leader_epoch,
                        metadata=each.metadata,
                        error_code=each.code,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in group.topics
        ),
    )


API = Api(key=KEY, versions=range(1, 11), answer=answer, max_frame_bytes=1 << 20)
