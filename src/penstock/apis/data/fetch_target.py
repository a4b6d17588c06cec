"""One partition of a fetch, looked up and checked once, when the request arrives.

Topic id, leader epoch and history are compared here and nowhere else. Invariant: while
`is_current` holds, the checks still hold: a leader's log only grows within one leader epoch.
"""

from typing import TYPE_CHECKING, NamedTuple

from penstock.apis.fetch_sessions import RequestedPartition
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch, TopicPartition
from penstock.model.values import new_tuple
from penstock.replication.partition import Partition, PartitionLeadership
from penstock.storage.leader_epoch_cache import OffsetAndEpoch

if TYPE_CHECKING:
    from penstock.apis.services import Services

_NONE = ErrorCode.NONE


class FetchTarget(NamedTuple):
    requested: RequestedPartition
    tp: TopicPartition | None  # None: the topic is unknown, or must not be revealed
    error: ErrorCode
    partition: Partition | None = None  # None: not read, because of `error`
    leadership: PartitionLeadership | None = None  # None: a follower is read (KIP-392)
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    diverging: OffsetAndEpoch | None = None  # where the reader's log diverges from this one


def find_target(
    services: "Services",
    requested: RequestedPartition,
    tp: TopicPartition,
    *,
    may_be_follower: bool,
) -> FetchTarget:
    """The target of a client's fetch."""
    diverging = None
    try:
        partition = get_partition(services, requested, tp)
        if may_be_follower:
            partition.check_reader(requested.leader_epoch)
        else:
            partition.check_leader(requested.leader_epoch)
        if requested.last_fetched_epoch >= 0:
            diverging = partition.find_divergence(requested.offset, requested.last_fetched_epoch)
    except Refusal as refusal:
        return FetchTarget(requested, tp, refusal.code)
    return make_target(requested, partition, diverging)


def get_partition(
    services: "Services", requested: RequestedPartition, tp: TopicPartition
) -> Partition:
    """The one look-up of a fetch. Refuses a topic that was created again under the same name."""
    partition = services.replicas.get(tp)
    topic = requested.topic
    if topic is not tp.topic and topic not in (partition.topic_id, tp.topic):
        raise Refusal(ErrorCode.INCONSISTENT_TOPIC_ID)
    return partition


def make_target(
    requested: RequestedPartition, partition: Partition, diverging: OffsetAndEpoch | None
) -> FetchTarget:
    leadership, leader_epoch = partition.leadership, partition.leader_epoch
    values = (requested, partition.tp, _NONE, partition, leadership, leader_epoch, diverging)
    return new_tuple(FetchTarget, values)


def is_current(target: FetchTarget) -> bool:
    """False: check it again, because another leader epoch has begun or a follower may have
    truncated its log meanwhile."""
    _, _, _, partition, leadership, leader_epoch, _ = target
    return (
        leadership is not None
        and partition is not None
        and partition.leadership is leadership
        and partition.leader_epoch == leader_epoch
    )
