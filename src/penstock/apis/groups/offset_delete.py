"""OffsetDelete (key 47), version 0: deletes committed offsets of a group.

Partitions of a topic that a member subscribes to are refused.
"""

from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_group
from penstock.apis.api import Api, Request
from penstock.apis.requested_topics import refuse_topic
from penstock.apis.response_shapes import response_shape
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.OFFSET_DELETE


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    if not allows_group(request, services, AclOperation.DELETE, request.message.group_id):
        return _refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return _delete(request, services)


async def _delete(request: Request, services: "Services") -> Any:
    refused = _find_refusals(request, services)
    wanted = [tp for tp, code in refused.items() if code is ErrorCode.NONE]
    code, deleted = await services.groups.delete_offsets(request.message.group_id, wanted)
    if code is not ErrorCode.NONE:
        return _refuse(request, code)
    return _build(request, refused | dict(deleted))


def _find_refusals(request: Request, services: "Services") -> dict[TopicPartition, ErrorCode]:
    """The error of each partition; NONE: it may be deleted."""
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in request.message.topics:
        code = refuse_topic(request, services, AclOperation.READ, topic.name)
        for entry in topic.partitions:
            tp = TopicPartition(topic.name, entry.partition_index)
            if code is ErrorCode.NONE and not services.metadata.has_partition(tp):
                refused[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                refused[tp] = code
    return refused


def _refuse(request: Request, code: ErrorCode) -> Any:
    shape = response_shape(KEY, request.version)
    return shape(error_code=code, throttle_time=timedelta(), topics=())


def _build(request: Request, codes: Mapping[TopicPartition, ErrorCode]) -> Any:
    shape = response_shape(KEY, request.version)
    topics = tuple(
        shape["topics"](
            name=topic.name,
            partitions=tuple(
                shape["topics"]["partitions"](
                    partition_index=entry.partition_index,
                    error_code=codes[TopicPartition(topic.name, entry.partition_index)],
                )
                for entry in topic.partitions
            ),
        )
        for topic in request.message.topics
    )
    return shape(error_code=ErrorCode.NONE, throttle_time=timedelta(), topics=topics)


API = Api(key=KEY, versions=range(1), answer=answer)
