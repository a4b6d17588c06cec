"""Replication quotas of one broker: what it does not send as leader nor fetch as follower for now.

Only replicas that a topic's config names or that a reassignment adds (KIP-542), and only while they
are behind: an in-sync replica is never throttled, because that would remove it from the ISR.
"""

from collections.abc import Callable

from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.ids import TopicPartition
from penstock.replication.config import ReplicationConfig
from penstock.replication.partition import Partition
from penstock.replication.throttle import ReplicationThrottle
from penstock.replication.topic_config import TopicConfig

TopicConfigOf = Callable[[str], TopicConfig | None]


class ReplicationQuota:
    """Owned by the event loop, through `ReplicaManager`."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        config: Callable[[], ReplicationConfig],
        topic_config_of: TopicConfigOf,
        now_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._topic_config_of = topic_config_of
        self._sending = ReplicationThrottle(lambda: config().leader_throttled_rate, now_ms)
        self._fetching = ReplicationThrottle(lambda: config().follower_throttled_rate, now_ms)
        # Of replicas that reassignments add.
        self._copying_out = ReplicationThrottle(lambda: config().leader_reassignment_rate, now_ms)
        self._copying_in = ReplicationThrottle(lambda: config().follower_reassignment_rate, now_ms)

    # -- leading ---------------------------------------------------------------------------

    def holds_back(self, partition: Partition, follower: BrokerId) -> bool:
        """Whether the throttle keeps this partition's records from the follower for now."""
        if follower in partition.state.in_sync:
            return False
        if _is_added(partition, follower) and self._copying_out.is_spent:
            return True
        return self._is_sending(partition.tp) and self._sending.is_spent

    def note_sent(
        self, partition: Partition, size_bytes: int, follower: BrokerId = NO_BROKER
    ) -> None:
        if self._is_sending(partition.tp):
            self._sending.spend(size_bytes)
        if _is_added(partition, follower):
            self._copying_out.spend(size_bytes)

    def _is_sending(self, tp: TopicPartition) -> bool:
        config = self._topic_config_of(tp.topic)
        return config is not None and config.throttled_sending.has(tp.partition, self._broker_id)

    # -- following -------------------------------------------------------------------------

    def fetch_ready_at_ms(self, partition: Partition) -> int:
        """When this broker's replica, if it is behind, may fetch again; in the past: now."""
        ready_ms = 0
        if self._is_fetching(partition.tp):
            ready_ms = self._fetching.ready_at_ms
        if _is_added(partition, self._broker_id):
            ready_ms = max(ready_ms, self._copying_in.ready_at_ms)
        return ready_ms

    def note_fetched(self, partition: Partition, size_bytes: int) -> None:
        if self._is_fetching(partition.tp):
            self._fetching.spend(size_bytes)
        if _is_added(partition, self._broker_id):
            self._copying_in.spend(size_bytes)

    def _is_fetching(self, tp: TopicPartition) -> bool:
        config = self._topic_config_of(tp.topic)
        return config is not None and config.throttled_fetching.has(tp.partition, self._broker_id)


def _is_added(partition: Partition, follower: BrokerId) -> bool:
    """By a reassignment in progress, and not in sync yet."""
    state = partition.state
    return follower in state.adding and follower not in state.in_sync
