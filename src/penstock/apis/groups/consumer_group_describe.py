"""ConsumerGroupDescribe (key 69), versions 0-1: state, epochs and members of consumer groups.

KIP-848; version 1 added the protocol of each member. A caller that may not describe one of the
group's topics does not see its members.
"""

from collections.abc import Coroutine, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import (
    OPERATIONS_NOT_ASKED,
    allows_group,
    allows_topic,
    authorized_operations,
)
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.groups.per_group import for_each_group
from penstock.apis.response_shapes import Shape, response_shape
from penstock.coordinators.group.consumer.requests import (
    DescribedConsumerGroup,
    DescribedConsumerMember,
    NamedPartitions,
)
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.CONSUMER_GROUP_DESCRIBE


def answer(request: Request, services: "Services") -> Coroutine[Any, Any, Any]:
    return _answer(request, services)


async def _answer(request: Request, services: "Services") -> Any:
    shape = response_shape(KEY, request.version)

    async def describe(group: str) -> Any:
        described = await _describe(request, services, group)
        return _build(request, services, shape["groups"], described)

    groups = await for_each_group(request.message.group_ids, describe)
    return shape(throttle_time=timedelta(), groups=tuple(groups))


async def _describe(request: Request, services: "Services", group: str) -> DescribedConsumerGroup:
    if not allows_group(request, services, AclOperation.DESCRIBE, group):
        return DescribedConsumerGroup(group=group, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    described = await services.groups.consumer_describe(group)
    topics = dict.fromkeys(_topics(described.members))
    if all(allows_topic(request, services, AclOperation.DESCRIBE, topic) for topic in topics):
        return described
    return DescribedConsumerGroup(
        group=group,
        error=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        message="the group uses topics that you are not authorized to describe",
    )


def _topics(members: Iterable[DescribedConsumerMember]) -> Iterable[str]:
    for member in members:
        yield from member.topics
        for partitions in (*member.assignment, *member.target):
            yield partitions.topic


def _build(
    request: Request, services: "Services", shape: Shape, group: DescribedConsumerGroup
) -> Any:
    return shape(
        error_code=group.error,
        error_message=clip(group.message),
        group_id=group.group,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=tuple(_build_member(shape["members"], member) for member in group.members),
        authorized_operations=_operations(request, services, group),
    )


def _build_member(shape: Shape, member: DescribedConsumerMember) -> Any:
    return shape(
        member_id=member.member,
        instance_id=member.instance,
        rack_id=member.rack,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.topic_regex,
        assignment=_build_assignment(shape["assignment"], member.assignment),
        target_assignment=_build_assignment(shape["target_assignment"], member.target),
        member_type=int(member.kind),
    )


def _build_assignment(shape: Shape, assigned: tuple[NamedPartitions, ...]) -> Any:
    entry = shape["topic_partitions"]
    return shape(
        topic_partitions=tuple(
            entry(topic_id=topic_id, topic_name=name, partitions=partitions)
            for topic_id, name, partitions in assigned
        )
    )


def _operations(request: Request, services: "Services", group: DescribedConsumerGroup) -> int:
    is_requested = request.message.include_authorized_operations
    if not is_requested or group.error is not ErrorCode.NONE:
        return OPERATIONS_NOT_ASKED
    return authorized_operations(request, services, ResourceType.GROUP, group.group)


API = Api(key=KEY, versions=range(2), answer=answer)
