"""Fetches of followers: who may call itself one, and what its fetch tells of how far it is.

Not the answer, which is that of every fetch. A client that calls itself a broker would move high
watermarks (CVE-2018-1288): only who may act for the cluster gets here, over the brokers' listener.
"""

from typing import TYPE_CHECKING, Any

from penstock.apis.api import Request
from penstock.apis.data.delayed_fetch import FetchTarget
from penstock.apis.data.fetch_sessions import FetchContext, RequestedPartition
from penstock.apis.inter_broker_access import check_broker
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import Offset, TopicId, TopicPartition
from penstock.replication.replica_manager import FollowerFetch

if TYPE_CHECKING:
    from penstock.apis.services import Services

FIRST_WITH_REPLICA_STATE = 15
_NO_EPOCH = BrokerEpoch(-1)


def replica_of(version: int, message: Any) -> tuple[BrokerId, BrokerEpoch]:
    """Which follower fetches, in which of its lives; -1: it is a client."""
    if version >= FIRST_WITH_REPLICA_STATE:
        state = message.replica_state
        return BrokerId(state.replica_id), BrokerEpoch(state.replica_epoch)
    return BrokerId(message.replica_id), _NO_EPOCH


def find_replica_targets(
    request: Request,
    services: "Services",
    context: FetchContext,
    follower: BrokerId,
    epoch: BrokerEpoch,
) -> list[FetchTarget]:
    """Every partition with its name, once its follower's progress is noted, or with what is wrong
    with the follower."""
    error = _find_refusal(request, services, follower, epoch)
    if error is not None:
        return [FetchTarget(asked, None, error) for asked in context.partitions]
    return [_note(services, asked, follower, epoch) for asked in context.partitions]


def _find_refusal(
    request: Request, services: "Services", follower: BrokerId, epoch: BrokerEpoch
) -> ErrorCode | None:
    try:
        check_broker(request, services)
    except Refusal:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED  # as a fetch says it
    node = services.metadata.brokers.get(follower)
    if node is not None and _NO_EPOCH < epoch < node.epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return None


def _note(
    services: "Services", asked: RequestedPartition, follower: BrokerId, epoch: BrokerEpoch
) -> FetchTarget:
    topic = asked.topic
    name = topic if isinstance(topic, str) else services.metadata.find_name(TopicId(topic))
    if name is None:
        return FetchTarget(asked, None, ErrorCode.UNKNOWN_TOPIC_ID)
    if asked.leader_epoch < 0:
        return FetchTarget(asked, None, ErrorCode.INVALID_REQUEST)
    partition = TopicPartition(name, asked.index)
    fetch = FollowerFetch(
        follower, epoch, asked.leader_epoch, Offset(asked.offset), asked.last_fetched_epoch
    )
    try:
        _check_topic_id(services, asked, partition)
        services.replicas.update_follower_fetch_state(partition, fetch)
    except Refusal as refusal:
        return FetchTarget(asked, None, refusal.code)
    return FetchTarget(asked, partition, ErrorCode.NONE)


def _check_topic_id(services: "Services", asked: RequestedPartition, name: TopicPartition) -> None:
    if not isinstance(asked.topic, str) and services.replicas.get(name).topic_id != asked.topic:
        raise Refusal(ErrorCode.INCONSISTENT_TOPIC_ID)
