"""Applies LeaderAndIsr and StopReplica requests: the partitions of this broker and their roles.

Not reading or writing them. `ControllerRequestHandler` has checked the controller and broker epochs
before; a repeated request changes nothing.
"""

from collections.abc import Callable, Iterable

from penstock.config.effective_config import EffectiveConfig
from penstock.config.log_config import LogConfig
from penstock.logs.event_logger import EventLogger
from penstock.model.cluster import (
    BrokerId,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.partition import Partition
from penstock.replication.storage_errors import code_of
from penstock.replication.topic_config import TopicConfig, TopicConfigs
from penstock.replication.topic_traffic import Traffic
from penstock.replication.visible_end import VisibleEnds
from penstock.storage.engine import NO_TOPIC_ID, Engine, PartitionLog
from penstock.storage.errors import StorageError


class LeaderAndIsrHandler:
    """Owned by the event loop, through `ReplicaManager`."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        engine: Engine,
        metadata: MetadataCache,
        effective_config: Callable[[], EffectiveConfig],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        logger: EventLogger,
        on_changed: Callable[[Partition], None],
        visible_ends: VisibleEnds,
    ) -> None:
        self.broker_id = broker_id
        self.partitions: dict[TopicPartition, Partition] = {}
        self.offline: set[TopicPartition] = set()  # assigned here, but in a failed log directory
        self.traffic = Traffic()
        self._by_topic: dict[str, dict[TopicPartition, Partition]] = {}  # no empty entries
        self._topic_configs: dict[str, TopicConfig] = {}  # of the same topics
        self.delayed_topics: set[str] = set()  # those of them with penstock.delayed.messages
        self.half_topics: dict[str, tuple[str, ...]] = {}  # those with penstock.half.groups
        self.looked_into: set[str] = set()  # both of these: one look-up for each produced topic
        self._engine = engine
        self._metadata = metadata
        self._config_cache = TopicConfigs(effective_config, logger)
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._logger = logger
        self._on_changed = on_changed
        self._visible_ends = visible_ends
        # Called for each partition whose log has failed, again if a request names it.
        self.on_failed: Callable[[TopicPartition], None] = lambda tp: None
        metadata.listen(self._on_update)

    # -- the partitions --------------------------------------------------------------------

    def adopt(self, logs: Iterable[PartitionLog]) -> None:
        for log in logs:
            assert log.tp not in self.partitions, f"{log.tp} is adopted twice"
            topic = log.tp.topic
            if topic not in self._topic_configs:
                self._topic_configs[topic] = self._find_config(topic) or self._config_cache.keep(
                    log.config
                )
            self._host(log)

    def _host(self, log: PartitionLog) -> Partition:
        tp, config = log.tp, self._topic_configs[log.tp.topic]
        partition = Partition(self.broker_id, log, config, self.traffic.add(tp.topic))
        self._apply_config(partition, config)
        self.partitions[tp] = self._by_topic.setdefault(tp.topic, {})[tp] = partition
        self.offline.discard(tp)
        return partition

    def _remove(self, partition: Partition) -> None:
        """Remove the replica with its data. Its delayed operations end even if that fails."""
        tp = partition.tp
        partition.stop()
        partition.on_truncated()  # to nothing
        del self.partitions[tp]
        of_topic = self._by_topic[tp.topic]
        del of_topic[tp]
        if not of_topic:
            del self._by_topic[tp.topic], self._topic_configs[tp.topic]
            self.delayed_topics.discard(tp.topic)
            self.half_topics.pop(tp.topic, None)
            self.looked_into.discard(tp.topic)
            self.traffic.remove(tp.topic)
        try:
            self._engine.delete(tp)
        finally:
            self._on_changed(partition)

    # -- requests of the controller --------------------------------------------------------

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest
    ) -> dict[TopicPartition, ErrorCode]:
        codes = {assigned.tp: self._apply(assigned) for assigned in request.partitions}
        for tp, code in codes.items():
            if code is ErrorCode.KAFKA_STORAGE_ERROR:
                self.on_failed(tp)
        return codes

    def stop_replicas(self, request: StopReplicaRequest) -> dict[TopicPartition, ErrorCode]:
        return {tp: self._stop(tp, delete=request.delete) for tp in request.partitions}

    def _apply(self, assigned: LeaderAndIsrPartition) -> ErrorCode:
        tp, _, state, _ = assigned
        if self.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            partition = self._find_current(assigned) or self._create(assigned)
        except StorageError as error:
            self._logger.error("replica_offline", f"{tp} cannot be served: {error}")
            self.offline.add(tp)
            return code_of(error)
        if partition.has_overtaken(state) and not self._has_failed(partition):
            return self._apply_overtaken(partition, state)
        if _is_stale(assigned, partition):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._has_failed(partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if state != partition.state:
            if state.leader == self.broker_id:
                partition.lead(state, self._now_ms())
            else:
                partition.follow(state)
            self._on_changed(partition)
        return ErrorCode.NONE

    def _apply_overtaken(self, partition: Partition, state: PartitionState) -> ErrorCode:
        """The leader's ISR stays, and so does its proposal: the high watermark waits for those whom
        the controller may have added meanwhile."""
        if partition.try_take_replicas(state, self._now_ms()):
            self._on_changed(partition)
        elif state.partition_epoch < partition.state.partition_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    def _find_current(self, assigned: LeaderAndIsrPartition) -> Partition | None:
        """The assigned replica. One of a deleted topic of the same name is removed."""
        partition = self.partitions.get(assigned.tp)
        if partition is None:
            return None
        if partition.topic_id == NO_TOPIC_ID:
            partition.topic_id = partition.log.topic_id = assigned.topic_id
        if assigned.topic_id in (partition.topic_id, NO_TOPIC_ID):
            return partition
        self._logger.info(
            "replica_deleted",
            f"{assigned.tp} of topic id {partition.topic_id} is deleted: the topic was "
            f"created again as {assigned.topic_id}",
        )
        self._remove(partition)
        return None

    def _create(self, assigned: LeaderAndIsrPartition) -> Partition:
        topic = assigned.tp.topic
        config = (
            self._topic_configs.get(topic)
            or self._find_config(topic)
            or self._config_cache.resolve(topic, {})
        )
        log = self._engine.create(
            assigned.tp, assigned.topic_id, config.served, self._wall_ms(), is_new=assigned.is_new
        )
        self._topic_configs[topic] = config
        return self._host(log)

    def _stop(self, tp: TopicPartition, *, delete: bool) -> ErrorCode:
        partition = self.partitions.get(tp)
        if partition is None:
            # Its records are in a failed log directory: they cannot be said to be deleted.
            is_lost = delete and tp in self.offline
            return ErrorCode.KAFKA_STORAGE_ERROR if is_lost else ErrorCode.NONE
        if not delete:
            partition.stop()
            self._on_changed(partition)
            return ErrorCode.NONE
        try:
            self._remove(partition)
        except StorageError as error:
            self._logger.error("replica_not_deleted", f"{tp} could not be deleted: {error}")
            self.offline.add(tp)
            return code_of(error)
        return ErrorCode.NONE

    # -- topic configs ---------------------------------------------------------------------

    def topics(self) -> list[str]:
        return list(self._by_topic)

    def find_topic_config(self, topic: str) -> TopicConfig | None:
        """None if no partition of the topic is on this broker."""
        return self._topic_configs.get(topic)

    def reconfigure(self, topic: str) -> None:
        config = self._find_config(topic) if topic in self._by_topic else None
        if config is None or config == self._topic_configs[topic]:
            return
        self._topic_configs[topic] = config
        for partition in list(self._by_topic[topic].values()):
            self._apply_config(partition, config)
            self._on_changed(partition)

    def _apply_config(self, partition: Partition, config: TopicConfig) -> None:
        if partition.visible_end is not None:
            partition.visible_end.stop()
        partition.apply_config(config)
        self._note_waiting(partition.tp.topic, config.log)
        partition.visible_end = self._visible_ends.create(partition.log)

    def _note_waiting(self, topic: str, config: LogConfig) -> None:
        """Whether records of the topic may ask to wait."""
        self.looked_into.discard(topic)
        if config.penstock_delayed_messages:
            self.delayed_topics.add(topic)
            self.looked_into.add(topic)
        else:
            self.delayed_topics.discard(topic)
        if config.penstock_half_groups:
            self.half_topics[topic] = config.penstock_half_groups
            self.looked_into.add(topic)
        else:
            self.half_topics.pop(topic, None)

    def _find_config(self, topic: str) -> TopicConfig | None:
        """None until UpdateMetadata brings the topic: LeaderAndIsr requests come first."""
        state = self._metadata.find_topic(topic)
        return None if state is None else self._config_cache.resolve(topic, state.configs)

    def _on_update(self, update: UpdateMetadataRequest) -> None:
        for topic in update.topics:
            self.reconfigure(topic.name)

    # -- failures --------------------------------------------------------------------------

    def handle_log_failures(self) -> None:
        for partition in list(self.partitions.values()):
            if partition.failure is None and self._has_failed(partition):
                self._on_changed(partition)
                self.on_failed(partition.tp)

    def _has_failed(self, partition: Partition) -> bool:
        failure = partition.log.failure
        if failure is not None and partition.failure is None:
            partition.fail(str(failure))
        return failure is not None


def _is_stale(assigned: LeaderAndIsrPartition, partition: Partition) -> bool:
    """Whether a later request was applied, or the log has records of a later leader epoch."""
    state = assigned.state
    current_epoch = max(partition.leader_epoch, partition.log.latest_epoch)
    if state.leader_epoch != current_epoch:
        return state.leader_epoch < current_epoch
    return state.partition_epoch < partition.state.partition_epoch
