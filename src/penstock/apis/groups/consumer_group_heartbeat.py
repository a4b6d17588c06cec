"""ConsumerGroupHeartbeat (key 68), versions 0-1: join, stay in and leave a consumer group.

The response carries the assignment (KIP-848). Version 1 added subscriptions by pattern, and member
ids that the client generates. A member may subscribe by name only to topics that it may describe.
"""

from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_group, allows_topic
from penstock.apis.api import Api, EntryBounds, Request
from penstock.apis.config import ApiConfig
from penstock.apis.error_text import clip
from penstock.apis.groups.client_identity import client_host, client_id
from penstock.apis.response_shapes import response_shape
from penstock.coordinators.group.consumer.requests import ConsumerHeartbeat, ConsumerHeartbeatReply
from penstock.coordinators.group.records import TopicPartitions
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.entry_counts import Excess
from penstock.protocol.wire_types import ms_of_delta
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
FIRST_WITH_OWN_MEMBER_IDS = 1


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    owned = sum(len(topic.partitions) for topic in request.message.topic_partitions or ())
    if owned > services.config().max_owned_partitions:
        limit = services.config().max_owned_partitions
        return _refuse(request.version, Excess("topic_partitions", owned, limit))
    denied = _find_denial(request, services)
    if denied is not None:
        refused = ConsumerHeartbeatReply(error=denied, message=denied.message)
        return _build(request.version, refused)
    return _heartbeat(request, services)


def _find_denial(request: Request, services: "Services") -> ErrorCode | None:
    message = request.message
    if not allows_group(request, services, AclOperation.READ, message.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    topics = dict.fromkeys(message.subscribed_topic_names or ())
    if not all(allows_topic(request, services, AclOperation.DESCRIBE, topic) for topic in topics):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return None


async def _heartbeat(request: Request, services: "Services") -> Any:
    return _build(request.version, await services.groups.consumer_heartbeat(_read(request)))


def _read(request: Request) -> ConsumerHeartbeat:
    message = request.message
    timeout_ms = ms_of_delta(message.rebalance_timeout)
    names, owned = message.subscribed_topic_names, message.topic_partitions
    return ConsumerHeartbeat(
        group=message.group_id,
        member=message.member_id,
        member_epoch=message.member_epoch,
        client_id=client_id(request),
        client_host=client_host(request),
        instance=message.instance_id,
        rack=message.rack_id,
        rebalance_timeout_ms=None if timeout_ms == -1 else timeout_ms,
        topics=None if names is None else tuple(names),
        topic_regex=getattr(message, "subscribed_topic_regex", None),
        assignor=message.server_assignor,
        owned=None if owned is None else _read_owned(owned),
        requires_member=request.version >= FIRST_WITH_OWN_MEMBER_IDS,
    )


def _read_owned(owned: tuple[Any, ...]) -> tuple[TopicPartitions, ...]:
    """The owned partitions, without the zero id, which no topic has."""
    return tuple(
        TopicPartitions(topic.topic_id, tuple(topic.partitions))
        for topic in owned
        if topic.topic_id is not None
    )


def _build(version: int, reply: ConsumerHeartbeatReply) -> Any:
    shape = response_shape(KEY, version)
    assignment = None
    if reply.assignment is not None:
        entry = shape["assignment"]["topic_partitions"]
        assignment = shape["assignment"](
            topic_partitions=tuple(
                entry(topic_id=topic.topic_id, partitions=topic.partitions)
                for topic in reply.assignment
            )
        )
    return shape(
        throttle_time=timedelta(),
        error_code=reply.error,
        error_message=clip(reply.message),
        member_id=reply.member,
        member_epoch=reply.member_epoch,
        heartbeat_interval=timedelta(milliseconds=reply.heartbeat_interval_ms),
        assignment=assignment,
    )


def _limits(config: ApiConfig) -> Mapping[str, int]:
    return {
        "subscribed_topic_names": config.max_group_entries,
        "topic_partitions": config.max_group_entries,
    }


def _refuse(version: int, excess: Excess) -> Any:
    refused = ConsumerHeartbeatReply(error=ErrorCode.INVALID_REQUEST, message=str(excess))
    return _build(version, refused)


API = Api(
    key=KEY,
    versions=range(2),
    answer=answer,
    bounds=EntryBounds(limits=_limits, refuse=_refuse),
    max_elements=300_000,  # more than the bounds allow, so that they refuse with a response
)
