"""Throttles of one broker: what it holds back as a leader, and does not ask for as a follower.

Only replicas that a topic's settings name, and only while they are behind: who is in sync is never
held back, or throttling would take it out of the in-sync set.
"""

from collections.abc import Callable

from penstock.config.effective_config import EffectiveConfig
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition
from penstock.replication.partition import Partition
from penstock.replication.throttle import ReplicationThrottle
from penstock.replication.topic_config import TopicConfig

TopicConfigOf = Callable[[str], TopicConfig | None]


class ReplicationQuota:
    """Owned by the event loop, through `Replicas`."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        effective_config: Callable[[], EffectiveConfig],
        topic_config_of: TopicConfigOf,
        now_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._effective_config = effective_config
        self._rules_of = topic_config_of
        self._sending = ReplicationThrottle(self._rate("leader.replication.throttled.rate"), now_ms)
        self.fetching = ReplicationThrottle(
            self._rate("follower.replication.throttled.rate"), now_ms
        )

    def _rate(self, name: str) -> Callable[[], int]:
        return lambda: int(str(self._effective_config()[name]))

    # -- leading ---------------------------------------------------------------------------

    def holds_back(self, partition: Partition, follower: BrokerId) -> bool:
        """Whether this follower gets nothing of the partition for now."""
        if follower in partition.state.in_sync or not self._is_sending(partition.tp):
            return False
        return self._sending.is_spent

    def note_sent(self, partition: Partition, size_bytes: int) -> None:
        if self._is_sending(partition.tp):
            self._sending.spend(size_bytes)

    def _is_sending(self, name: TopicPartition) -> bool:
        rules = self._rules_of(name.topic)
        return rules is not None and rules.throttled_sending.has(name.partition, self._broker_id)

    # -- following -------------------------------------------------------------------------

    def is_fetching(self, name: TopicPartition) -> bool:
        """Whether this broker's replica counts as one that is throttled."""
        rules = self._rules_of(name.topic)
        return rules is not None and rules.throttled_fetching.has(name.partition, self._broker_id)

    def note_fetched(self, name: TopicPartition, size_bytes: int) -> None:
        if self.is_fetching(name):
            self.fetching.spend(size_bytes)
