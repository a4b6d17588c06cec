"""Fetch (key 1), versions 4-17: whole batches of many partitions, at once or when there are enough.

Version 7 added sessions, 9 leader epochs, 12 diverging epochs, 13 topic ids instead of names, 16
the current leader as a hint, 17 the directory id of a KRaft voter, which is not used. Followers
fetch like consumers, but up to the log end offset.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from penstock.apis.access import allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.data.delayed_fetch import DelayedFetch
from penstock.apis.data.fetch_response import FIRST_WITH_TOPIC_ID
from penstock.apis.data.fetch_target import FetchTarget, find_target
from penstock.apis.data.follower_fetch import find_replica_targets, replica_of
from penstock.apis.fetch_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchContext,
    Key,
    RequestedPartition,
    Topic,
)
from penstock.apis.throttling import find_throttle
from penstock.model.cluster import NO_BROKER
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.values import new_tuple
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import decode_request
from penstock.purgatory.delayed_operations import PurgatoryFull
from penstock.replication.partition import FetchIsolation
from penstock.security.authorizer import AclOperation, AllowAll

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY: Final = ApiKey.FETCH
_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_TOPIC_ID: Final = UUID(int=0)
# A partition of a fetch that waits: what it asks for, its log, its watch.
_WAITING_BYTES: Final = 400
_FREE_PARTITIONS: Final = 10  # of a fetch that waits without being counted


def fetch(request: Request, services: "Services") -> None:
    message = decode_request(KEY, request.version, request.message, request.budget)
    request.message = None  # a view of the receive buffer, which is reused while we wait
    config = services.config()
    max_bytes = max(0, min(message.max_bytes, config.fetch_max_bytes))
    context = _begin(request, services, message)
    follower, broker_epoch = replica_of(request.version, message)
    rack: str | None = None
    if follower >= 0:
        request.count_as_follower()
        isolation = FetchIsolation.LOG_END
        targets = find_replica_targets(request, services, context, follower, broker_epoch)
    else:
        if services.quotas.is_active:
            max_bytes = _limit_by_quota(request, max_bytes)
        isolation = _isolation(message.isolation_level)
        if config.is_rack_aware:
            rack = getattr(message, "rack_id", None)  # versions with a rack know read replicas
        targets = _find_targets(request, services, context, may_be_follower=rack is not None)
    delayed_fetch = DelayedFetch(
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
        delayed_fetch.complete()
    else:
        count = len(targets)
        if count > _FREE_PARTITIONS and not request.in_flight.try_hold(_WAITING_BYTES * count):
            delayed_fetch.complete()  # without memory for waiting it is answered at once
        else:
            _complete_or_delay(request, services, delayed_fetch, max_wait_ms)


def _limit_by_quota(request: Request, max_bytes: int) -> int:
    """A response above it would not be sent before its window has passed."""
    throttle = find_throttle(request)
    limit_bytes = None if throttle is None else throttle.find_fetch_limit()
    return max_bytes if limit_bytes is None else min(max_bytes, limit_bytes)


def _complete_or_delay(
    request: Request, services: "Services", delayed_fetch: DelayedFetch, max_wait_ms: int
) -> None:
    """Wait until there is enough to answer with. A closed connection cancels the wait."""
    purgatory = services.replicas.fetch_purgatory
    try:
        watched = purgatory.try_complete_else_watch(
            delayed_fetch, delayed_fetch.watched(), services.timers.now_ms() + max_wait_ms
        )
    except PurgatoryFull:
        delayed_fetch.complete()
        return
    if watched.ending is None:

        def cancel() -> None:
            purgatory.cancel(watched)

        request.in_flight.on_close(cancel)


# -- the request ---------------------------------------------------------------------------


def _begin(request: Request, services: "Services", message: Any) -> FetchContext:
    return services.fetch_sessions.begin(
        session_id=getattr(message, "session_id", NO_SESSION),
        epoch=getattr(message, "session_epoch", FINAL_EPOCH),
        requested=_requested_partitions(request.version, message.topics),
        forgotten=_forgotten_partitions(getattr(message, "forgotten_topics_data", ())),
        by_id=request.version >= FIRST_WITH_TOPIC_ID,
    )


def _requested_partitions(version: int, topics: Any) -> Iterator[RequestedPartition]:
    has_epoch, has_fetched_epoch = version >= 9, version >= 12
    for topic in topics:
        name = _topic_of(topic)
        for partition in topic.partitions:
            yield RequestedPartition(
                name,
                partition.partition,
                offset=partition.fetch_offset,
                max_bytes=partition.partition_max_bytes,
                leader_epoch=partition.current_leader_epoch if has_epoch else -1,
                last_fetched_epoch=partition.last_fetched_epoch if has_fetched_epoch else -1,
            )


def _forgotten_partitions(topics: Any) -> Iterator[Key]:
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
    request: Request, services: "Services", context: FetchContext, *, may_be_follower: bool
) -> list[FetchTarget]:
    """Every requested partition, or why it is not read."""
    targets: list[FetchTarget] = []
    topics: dict[Topic, str | ErrorCode] = {}
    topic: Topic | None = None
    name: str | ErrorCode | None = None
    for requested in context.partitions:
        if requested.topic is not topic:  # mostly the one before: a UUID is slow to hash
            topic = requested.topic
            name = topics.get(topic)
            if name is None:
                name = topics[topic] = _find_topic(request, services, topic)
        if type(name) is str:
            tp = new_tuple(TopicPartition, (name, requested.index))
            targets.append(find_target(services, requested, tp, may_be_follower=may_be_follower))
        else:
            assert isinstance(name, ErrorCode)
            targets.append(FetchTarget(requested, None, name))
    return targets


def _find_topic(request: Request, services: "Services", topic: Topic) -> str | ErrorCode:
    name = topic if isinstance(topic, str) else services.metadata.find_name(TopicId(topic))
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if isinstance(services.authorizer, AllowAll):
        return name
    if not allows_topic(request, services, AclOperation.READ, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name


API: Final = Api(key=KEY, versions=range(4, 18), direct=fetch)
