"""The cluster's metadata as this broker knows it: the sum of UpdateMetadata requests.

Owned by the event loop; decides nothing. A stale controller's update is rejected. `version` rises
with every applied update, so a value derived from the cache is valid while it stays the same.
"""

from collections.abc import Callable, Iterable, Mapping

from penstock.model.cluster import (
    NO_BROKER,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    FailedReplicas,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.ids import TopicId, TopicPartition

Listener = Callable[[UpdateMetadataRequest], None]


class MetadataCache:
    """Empty until the first update."""

    def __init__(self) -> None:
        self.version = 0  # 0: no update yet
        self.controller_id: BrokerId = NO_BROKER
        self.controller_epoch = ControllerEpoch(-1)  # never moves back
        self.brokers: Mapping[BrokerId, BrokerNode] = {}  # alive, by id
        self.broker_configs: Mapping[str, Mapping[str, str]] = {}  # "": the cluster-wide default
        self.group_configs: Mapping[str, Mapping[str, str]] = {}  # of groups that have some
        self.failed: FailedReplicas = {}
        self._topics: dict[str, TopicState] = {}
        self._names: dict[TopicId, str] = {}  # of exactly the topics above
        self._listeners: list[Listener] = []

    @property
    def topics(self) -> Mapping[str, TopicState]:
        return self._topics

    def apply(self, update: UpdateMetadataRequest) -> None:
        """ControllerRequestHandler has rejected updates of replaced controllers before."""
        self.controller_id, self.controller_epoch = update.controller_id, update.controller_epoch
        if update.is_full:
            self._clear()
        if update.brokers is not None:
            self.brokers = {node.id: node for node in update.brokers}
        if update.broker_configs is not None:
            self.broker_configs = update.broker_configs
        if update.group_configs is not None:
            self.group_configs = update.group_configs
        if update.failed is not None:
            self.failed = update.failed
        self._remove(update.deleted_topics)
        for topic in update.topics:
            self._put(topic)
        self.version += 1
        for listener in self._listeners:
            listener(update)

    def find_topic(self, name: str) -> TopicState | None:
        return self._topics.get(name)

    def find_name(self, topic_id: TopicId) -> str | None:
        return self._names.get(topic_id)

    def has_partition(self, tp: TopicPartition) -> bool:
        topic = self._topics.get(tp.topic)
        return topic is not None and 0 <= tp.partition < len(topic.partitions)

    def listen(self, listener: Listener) -> None:
        """Call it with every applied update, in order of registration."""
        self._listeners.append(listener)

    def _clear(self) -> None:
        self.brokers = {}
        self.broker_configs = {}
        self.group_configs = {}
        self.failed = {}
        self._topics.clear()
        self._names.clear()

    def _put(self, topic: TopicState) -> None:
        self._remove((topic.name,))  # a topic that was created again has another id
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            gone = self._topics.pop(name, None)
            if gone is not None:
                del self._names[gone.topic_id]
