"""Selects the replica a consumer should read from: one in its rack, if any (KIP-392). Pure."""

from collections.abc import Mapping

from penstock.model.cluster import BrokerId, BrokerNode, PartitionState
from penstock.model.ids import Offset
from penstock.replication.follower_progress import FollowerProgress

RACK_AWARE = "RackAwareReplicaSelector"  # the simple name of Kafka's class


def is_rack_aware(selector: str | None) -> bool:
    """Whether replica.selector.class names it; no other class is supported."""
    return selector is not None and selector.rpartition(".")[2] == RACK_AWARE


def find_read_replica(
    state: PartitionState,
    followers: Mapping[BrokerId, FollowerProgress],
    brokers: Mapping[BrokerId, BrokerNode],
    *,
    rack: str,
    offset: Offset,
) -> BrokerId | None:
    """The in-sync follower in the consumer's rack with the largest end offset that has the offset;
    None: the consumer stays with the leader."""
    leader = brokers.get(state.leader)
    if not rack or (leader is not None and leader.rack == rack):
        return None
    near = [
        (progress.end_offset, broker)
        for broker, progress in followers.items()
        if broker in state.in_sync
        and broker in brokers
        and brokers[broker].rack == rack
        and progress.end_offset >= offset
    ]
    return max(near)[1] if near else None
