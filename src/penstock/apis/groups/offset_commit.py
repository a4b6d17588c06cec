"""OffsetCommit (key 8), versions 2-10: commits offsets of a group.

Versions 2-4 may set a retention, 6 added the leader epoch, 7 static members, 9 STALE_MEMBER_EPOCH
(KIP-848), 10 topics by id. Every partition has its own error code, in the order of the request; if
a partition occurs twice, the later offset counts.
"""

from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_group
from penstock.apis.api import Api, Request
from penstock.apis.groups.offset_commit_response import encode_commit_response
from penstock.apis.requested_topics import find_requested_name, refuse_topic
from penstock.coordinators.group.requests import CommitOffsets, OffsetCommit
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_LEADER_EPOCH, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.wire_types import ms_of_delta
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.OFFSET_COMMIT
FIRST_WITH_STALE_MEMBER_EPOCH = 9

_Codes = list[list[ErrorCode]]  # per topic and partition, in the order of the request


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    message = request.message
    if not allows_group(request, services, AclOperation.READ, message.group_id):
        denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return _build(request, [[denied] * len(topic.partitions) for topic in message.topics])
    names = [find_requested_name(services, topic) for topic in message.topics]
    codes, commits = _authorize(request, services, names)
    if not commits:
        return _build(request, codes)
    return _commit(request, services, names, codes, commits)


def _authorize(
    request: Request, services: "Services", names: list[str | None]
) -> tuple[_Codes, dict[TopicPartition, OffsetCommit]]:
    """The codes of refused partitions, and the offsets to commit."""
    expires_ms = _expires_ms(request, services)
    codes: _Codes = []
    commits: dict[TopicPartition, OffsetCommit] = {}
    for topic, name in zip(request.message.topics, names, strict=True):
        refused = refuse_topic(request, services, AclOperation.READ, name)
        codes.append([refused] * len(topic.partitions))
        if name is None or refused is not ErrorCode.NONE:
            continue
        for index, entry in enumerate(topic.partitions):
            tp = TopicPartition(name, entry.partition_index)
            if services.metadata.has_partition(tp):
                topic_id = getattr(topic, "topic_id", None)
                commits[tp] = _read_commit(tp, entry, topic_id, expires_ms)
            else:
                codes[-1][index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return codes, commits


def _expires_ms(request: Request, services: "Services") -> int | None:
    """-1: the broker's own retention applies; newer versions have no field for it."""
    retention = getattr(request.message, "retention_time", None)
    if retention is None or retention < timedelta():
        return None
    return services.wall_ms() + ms_of_delta(retention)


def _read_commit(
    tp: TopicPartition, entry: Any, topic_id: Any, expires_ms: int | None
) -> OffsetCommit:
    return OffsetCommit(
        tp=tp,
        offset=entry.committed_offset,
        leader_epoch=getattr(entry, "committed_leader_epoch", NO_LEADER_EPOCH),
        metadata=entry.committed_metadata or "",
        topic_id=topic_id,
        expires_ms=expires_ms,
    )


async def _commit(
    request: Request,
    services: "Services",
    names: list[str | None],
    codes: _Codes,
    commits: Mapping[TopicPartition, OffsetCommit],
) -> Any:
    message = request.message
    committed = await services.groups.commit(
        CommitOffsets(
            group=message.group_id,
            member=message.member_id,
            instance=getattr(message, "group_instance_id", None),
            generation=message.generation_id_or_member_epoch,
            offsets=tuple(commits.values()),
            is_consumer_protocol=request.version >= FIRST_WITH_STALE_MEMBER_EPOCH,
        )
    )
    for topic, name, topic_codes in zip(message.topics, names, codes, strict=True):
        for index, entry in enumerate(topic.partitions):
            if topic_codes[index] is ErrorCode.NONE:
                assert name is not None
                topic_codes[index] = committed[TopicPartition(name, entry.partition_index)]
    return _build(request, codes)


def _build(request: Request, codes: _Codes) -> bytes:
    return encode_commit_response(request.version, request.message.topics, codes)


API = Api(key=KEY, versions=range(2, 11), answer=answer)
