"""Fetches of followers: who may fetch as one, and the follower's progress taken from its fetch.

The response is built like any other (`delayed_fetch`). A client that claims to be a broker could
move high watermarks (CVE-2018-1288), so a follower needs CLUSTER_ACTION and the inter-broker
listener.
"""

from typing import TYPE_CHECKING, Any

from penstock.apis.api import Request
from penstock.apis.data.fetch_target import FetchTarget, get_partition, make_target
from penstock.apis.fetch_sessions import FetchContext, RequestedPartition
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
    """The follower that fetches and its broker epoch; -1: a client fetches."""
    if version >= FIRST_WITH_REPLICA_STATE:
        state = message.replica_state
        return BrokerId(state.replica_id), BrokerEpoch(state.replica_epoch)
    return BrokerId(message.replica_id), _NO_EPOCH


def find_replica_targets(
    request: Request,
    services: "Services",
    context: FetchContext,
    follower: BrokerId,
    broker_epoch: BrokerEpoch,
) -> list[FetchTarget]:
    """Check every requested partition once and update the follower's progress in it."""
    error = _find_refusal(request, services, follower, broker_epoch)
    if error is not None:
        return [FetchTarget(requested, None, error) for requested in context.partitions]
    return [
        _find_target(services, requested, follower, broker_epoch)
        for requested in context.partitions
    ]


def _find_refusal(
    request: Request, services: "Services", follower: BrokerId, broker_epoch: BrokerEpoch
) -> ErrorCode | None:
    try:
        check_broker(request, services)
    except Refusal:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED  # Fetch has no cluster error per partition
    node = services.metadata.brokers.get(follower)
    if node is not None and _NO_EPOCH < broker_epoch < node.epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return None


def _find_target(
    services: "Services",
    requested: RequestedPartition,
    follower: BrokerId,
    broker_epoch: BrokerEpoch,
) -> FetchTarget:
    topic = requested.topic
    name = topic if isinstance(topic, str) else services.metadata.find_name(TopicId(topic))
    if name is None:
        return FetchTarget(requested, None, ErrorCode.UNKNOWN_TOPIC_ID)
    if requested.leader_epoch < 0:
        return FetchTarget(requested, None, ErrorCode.INVALID_REQUEST)
    fetch = FollowerFetch(
        follower,
        broker_epoch,
        requested.leader_epoch,
        Offset(requested.offset),
        requested.last_fetched_epoch,
    )
    try:
        partition = get_partition(services, requested, TopicPartition(name, requested.index))
        diverging = services.replicas.update_follower_fetch_state(partition, fetch)
    except Refusal as refusal:
        return FetchTarget(requested, None, refusal.code)
    return make_target(requested, partition, diverging)
