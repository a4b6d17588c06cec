"""Replication quotas of one broker: what it does not send as leader nor fetch as follower for now.

Only replicas that a topic's config names, and only while they are behind: an in-sync replica is
never throttled, because that would remove it from the ISR.
"""

from collections.abc import Callable

from penstock.model.cluster import BrokerId
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
        self.fetching = ReplicationThrottle(lambda: config().follower_throttled_rate, now_ms)

    # -- leading ---------------------------------------------------------------------------

    def holds_back(self, partition: Partition, follower: BrokerId) -> bool:
        """Whether the throttle keeps this partition's records from the follower for now."""
        if follower in partition.state.in_sync or not self._is_sending(partition.tp):
            return False
        return self._sending.is_spent

    def note_sent(self, partition: Partition, size_bytes: int) -> None:
        if self._is_sending(partition.tp):
            self._sending.spend(size_bytes)

    def _is_sending(self, tp: TopicPartition) -> bool:
        config = self._topic_config_of(tp.topic)
        return config is not None and config.throttled_sending.has(tp.partition, self._broker_id)

    # -- following -------------------------------------------------------------------------

    def is_fetching(self, tp: TopicPartition) -> bool:
        """Whether this broker's replica is throttled as a follower."""
        config = self._topic_config_of(tp.topic)
        return config is not None and config.throttled_fetching.has(tp.partition, self._broker_id)

    def note_fetched(self, tp: TopicPartition, size_bytes: int) -> None:
        if self.is_fetching(tp):
            self.fetching.spend(size_bytes)
