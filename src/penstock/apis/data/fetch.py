"""Fetch (key 1), versions 4-16: whole batches of many partitions, now or as soon as there are.

Version 7 added sessions, 9 leader epochs, 12 divergence, 13 topic ids instead of names, 16 the
leader to go to instead. Followers fetch like everybody, but to the end of the log.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.apis.access import allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.data.delayed_fetch import DelayedFetch, FetchTarget
from penstock.apis.data.fetch_response import FIRST_WITH_TOPIC_ID
from penstock.apis.data.fetch_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchContext,
    Key,
    RequestedPartition,
    Topic,
)
from penstock.apis.data.follower_fetch import find_replica_targets, replica_of
from penstock.model.cluster import NO_BROKER
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.values import new_tuple
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import decode_request
from penstock.purgatory.delayed_operations import PurgatoryFull
from penstock.replication.partition import FetchIsolation
from penstock.replication.replica_selector import is_rack_aware
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.FETCH
_MILLISECOND = timedelta(milliseconds=1)
_NO_TOPIC_ID = UUID(int=0)
_NONE = ErrorCode.NONE


def fetch(request: Request, services: "Services") -> None:
    message = decode_request(KEY, request.version, request.message)
    request.message = None  # a view of the receive buffer, which is not ours while we wait
    settings: Mapping[str, Any] = services.effective_config()
    max_bytes = max(0, min(message.max_bytes, settings["fetch.max.bytes"]))
    context = _begin(request, services, message)
    follower, broker_epoch = replica_of(request.version, message)
    rack: str | None = None
    if follower >= 0:
        isolation = FetchIsolation.LOG_END
        targets = find_replica_targets(request, services, context, follower, broker_epoch)
    else:
        isolation = _isolation(message.isolation_level)
        targets = _find_targets(request, services, context)
        if is_rack_aware(settings["replica.selector.class"]):
            rack = getattr(message, "rack_id", None)  # a version that has it knows replicas, too
    operation = DelayedFetch(
        request,
        services,
        context,
        targets,
        isolation=isolation,
        min_bytes=min(message.min_bytes, max_bytes),
        max_bytes=max_bytes,
        follower=follower if follower >= 0 else NO_BROKER,
        rack=rack,
    )
    max_wait_ms = message.max_wait // _MILLISECOND
    if max_wait_ms <= 0 or not context.partitions:
        operation.complete()
    else:
        _wait(request, services, operation, max_wait_ms)


def _wait(
    request: Request, services: "Services", operation: DelayedFetch, max_wait_ms: int
) -> None:
    """Until there is enough to answer with; whoever hangs up meanwhile is forgotten."""
    fetches = services.replicas.fetch_purgatory
    try:
        waiting = fetches.try_complete_else_watch(
            operation, operation.watched(), services.timers.now_ms() + max_wait_ms
        )
    except PurgatoryFull:
        operation.complete()
        return
    if waiting.ending is None:

        def give_up() -> None:
            fetches.cancel(waiting)

        request.in_flight.on_close(give_up)


# -- what is asked -------------------------------------------------------------------------


def _begin(request: Request, services: "Services", message: Any) -> FetchContext:
    return services.fetch_sessions.begin(
        session_id=getattr(message, "session_id", NO_SESSION),
        epoch=getattr(message, "session_epoch", FINAL_EPOCH),
        asked=_list_asked(request.version, message.topics),
        forgotten=_list_forgotten(getattr(message, "forgotten_topics_data", ())),
        by_id=request.version >= FIRST_WITH_TOPIC_ID,
    )


def _list_asked(version: int, topics: Any) -> Iterator[RequestedPartition]:
    has_epoch, has_fetched_epoch = version >= 9, version >= 12
    for topic in topics:
        name = _topic_of(topic)
        for each in topic.partitions:
            yield RequestedPartition(
                name,
                each.partition,
                offset=each.fetch_offset,
                max_bytes=each.partition_max_bytes,
                leader_epoch=each.current_leader_epoch if has_epoch else -1,
                last_fetched_epoch=each.last_fetched_epoch if has_fetched_epoch else -1,
            )


def _list_forgotten(topics: Any) -> Iterator[Key]:
    for topic in topics:
        name = _topic_of(topic)
        for index in topic.partitions:
            yield name, index


def _topic_of(topic: Any) -> Topic:
    name: Topic | None = getattr(topic, "topic", None)
    if name is not None:
        return name
    return topic.topic_id or _NO_TOPIC_ID


def _isolation(level: int) -> FetchIsolation:
    if level == FetchIsolation.READ_COMMITTED:
        return FetchIsolation.READ_COMMITTED
    return FetchIsolation.READ_UNCOMMITTED


# -- what may be read of it ----------------------------------------------------------------


def _find_targets(
    request: Request, services: "Services", context: FetchContext
) -> list[FetchTarget]:
    """Every partition with its name, or with the reason for which it is not looked at."""
    targets: list[FetchTarget] = []
    topics: dict[Topic, str | ErrorCode] = {}
    topic: Topic | None = None
    found: str | ErrorCode | None = None
    for asked in context.partitions:
        if asked.topic is not topic:  # mostly it is the one before: a UUID's hash is dear
            topic = asked.topic
            found = topics.get(topic)
            if found is None:
                found = topics[topic] = _find_topic(request, services, topic)
        if type(found) is str:
            name = new_tuple(TopicPartition, (found, asked.index))
            targets.append(new_tuple(FetchTarget, (asked, name, _NONE)))
        else:
            assert isinstance(found, ErrorCode)
            targets.append(FetchTarget(asked, None, found))
    return targets


def _find_topic(request: Request, services: "Services", topic: Topic) -> str | ErrorCode:
    name = topic if isinstance(topic, str) else services.metadata.find_name(TopicId(topic))
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not allows_topic(request, services, AclOperation.READ, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name


API = Api(key=KEY, versions=range(4, 17), direct=fetch, max_frame_bytes=1 << 20)
