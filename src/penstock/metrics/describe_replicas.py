"""DescribeReplicas (private key 31007), version 0: this broker's replicas of some partitions.

Served on every listener, for commands and consoles. Partitions that this broker does not have are
left out, and so are topics that the caller may not describe: nobody learns whether they exist.
"""

from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.private_responses import respond_payload, respond_refusal, respond_unsupported
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.protocol.describe_replicas import (
    DESCRIBE_REPLICAS_VERSIONS,
    MAX_PARTITIONS,
    UNKNOWN,
    DescribedFollower,
    DescribedReplica,
    ReplicaRole,
    decode_describe_replicas,
    encode_replicas,
)
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget
from penstock.replication.follower_progress import NEVER_MS
from penstock.replication.partition import Partition, Role
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

_ROLES = {
    Role.NONE: ReplicaRole.NONE,
    Role.LEADER: ReplicaRole.LEADER,
    Role.FOLLOWER: ReplicaRole.FOLLOWER,
}


def describe_replica(partition: Partition, now_ms: int) -> DescribedReplica:
    statistics = partition.statistics()
    return DescribedReplica(
        partition.tp,
        _ROLES[statistics.role],
        statistics.leader_epoch,
        statistics.log_start_offset,
        statistics.last_stable_offset,
        statistics.high_watermark,
        statistics.log_end_offset,
        statistics.size_bytes,
        statistics.failure,
        _describe_followers(partition, statistics.log_end_offset, now_ms),
    )


def _describe_followers(
    partition: Partition, log_end_offset: int, now_ms: int
) -> tuple[DescribedFollower, ...]:
    """A follower at the leader's log end offset is not behind, however long nobody writes."""
    described = []
    for follower, progress in sorted(partition.followers.items()):
        if progress.end_offset >= log_end_offset:
            behind_ms = 0
        elif progress.caught_up_ms == NEVER_MS:
            behind_ms = UNKNOWN
        else:
            behind_ms = now_ms - progress.caught_up_ms
        described.append(
            DescribedFollower(
                follower, max(progress.end_offset, UNKNOWN), behind_ms, now_ms - progress.fetched_ms
            )
        )
    return tuple(described)


def _answer(request: Request, services: "Services") -> Any:
    wanted: list[TopicPartition] = request.message
    if len(wanted) > MAX_PARTITIONS:
        message = f"at most {MAX_PARTITIONS} partitions in a request, not {len(wanted)}"
        refusal = Refusal(ErrorCode.INVALID_REQUEST, message)
        return respond_refusal(refusal, DESCRIBE_REPLICAS_VERSIONS)
    topics = {tp.topic for tp in wanted}
    allowed = {
        topic
        for topic in topics
        if allows_topic(request, services, AclOperation.DESCRIBE, topic, shows=True)
    }
    partitions = (services.replicas.find(tp) for tp in dict.fromkeys(wanted) if tp.topic in allowed)
    now_ms = services.timers.now_ms()
    replicas = [
        describe_replica(partition, now_ms) for partition in partitions if partition is not None
    ]
    return respond_payload([encode_replicas(replicas)], DESCRIBE_REPLICAS_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> list[TopicPartition]:
    return decode_describe_replicas(body, budget)


API = Api(
    key=PrivateKey.DESCRIBE_REPLICAS,
    versions=DESCRIBE_REPLICAS_VERSIONS,
    answer=_answer,
    read=_read,
    unsupported=respond_unsupported(DESCRIBE_REPLICAS_VERSIONS),
)
