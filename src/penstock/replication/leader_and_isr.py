"""Which partitions live on this broker and in which role: the controller's orders carried out.

Not their reading and writing. An order of an older controller, or to an earlier life of this
broker, changes nothing; an order that repeats the last one is harmless.
"""

from collections.abc import Callable, Iterable

from penstock.config.effective_config import EffectiveConfig
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.replication.metadata_cache import MetadataCache, refuse_stale_controller
from penstock.replication.partition import Partition
from penstock.replication.storage_errors import code_of
from penstock.replication.topic_config import Report, TopicConfig, TopicConfigs
from penstock.storage.engine import NO_TOPIC_ID, Engine, PartitionLog
from penstock.storage.errors import StorageError


class LeaderAndIsrHandler:
    """Owned by the event loop, through `Replicas`."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        engine: Engine,
        metadata: MetadataCache,
        effective_config: Callable[[], EffectiveConfig],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        report: Report,
        on_changed: Callable[[Partition], None],
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = BrokerEpoch(-1)  # -1: not registered yet
        self.partitions: dict[TopicPartition, Partition] = {}
        self.offline: set[TopicPartition] = set()  # ordered, and in no directory that works
        self._by_topic: dict[str, dict[TopicPartition, Partition]] = {}  # no empty entries
        self._rules: dict[str, TopicConfig] = {}  # of the same topics
        self._controller_epoch = ControllerEpoch(-1)  # never moves back
        self._engine = engine
        self._metadata = metadata
        self._rule_book = TopicConfigs(effective_config, report)
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._report = report
        self._on_changed = on_changed
        # Called with each whose log has failed, and again when an order meets it.
        self.on_failed: Callable[[TopicPartition], None] = lambda partition: None
        metadata.listen(self._on_update)

    # -- which there are -------------------------------------------------------------------

    def adopt(self, logs: Iterable[PartitionLog]) -> None:
        for log in logs:
            assert log.tp not in self.partitions, f"{log.tp} is adopted twice"
            topic = log.tp.topic
            if topic not in self._rules:
                self._rules[topic] = self._find_rules(topic) or self._rule_book.keep(log.config)
            self._host(log)

    def _host(self, log: PartitionLog) -> Partition:
        name, rules = log.tp, self._rules[log.tp.topic]
        partition = Partition(self.broker_id, log, rules)
        partition.apply_config(rules)
        self.partitions[name] = self._by_topic.setdefault(name.topic, {})[name] = partition
        self.offline.discard(name)
        return partition

    def _remove(self, partition: Partition) -> None:
        """With its data. Whoever waits for it is told, also if the disk fails over it."""
        name = partition.tp
        partition.stop()
        del self.partitions[name]
        of_topic = self._by_topic[name.topic]
        del of_topic[name]
        if not of_topic:
            del self._by_topic[name.topic], self._rules[name.topic]
        try:
            self._engine.delete(name)
        finally:
            self._on_changed(partition)

    # -- orders ----------------------------------------------------------------------------

    def become_leader_or_follower(
        self, order: LeaderAndIsrRequest
    ) -> dict[TopicPartition, ErrorCode]:
        self._check_order(order)
        answers = {each.tp: self._apply_one(each) for each in order.partitions}
        for name, code in answers.items():
            if code is ErrorCode.KAFKA_STORAGE_ERROR:
                self.on_failed(name)
        return answers

    def stop_replicas(self, order: StopReplicaRequest) -> dict[TopicPartition, ErrorCode]:
        self._check_order(order)
        return {name: self._stop_one(name, delete=order.delete) for name in order.partitions}

    def _check_order(self, order: LeaderAndIsrRequest | StopReplicaRequest) -> None:
        if order.broker_epoch < self.broker_epoch:
            raise Refusal(
                ErrorCode.STALE_BROKER_EPOCH,
                f"the order is for broker {self.broker_id} of epoch {order.broker_epoch}, which "
                f"has registered anew as {self.broker_epoch}; read its registration again",
            )
        refuse_stale_controller(order.controller_epoch, self._controller_epoch)
        self._controller_epoch = order.controller_epoch

    def _apply_one(self, order: LeaderAndIsrPartition) -> ErrorCode:
        name, _, state, _ = order
        if self.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            partition = self._find_current(order) or self._create(order)
        except StorageError as error:
            self._report(f"{name} cannot be served: {error}")
            self.offline.add(name)
            return code_of(error)
        if _is_stale(order, partition):
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

    def _find_current(self, order: LeaderAndIsrPartition) -> Partition | None:
        """The replica that the order is about. One of a deleted topic of that name goes now."""
        partition = self.partitions.get(order.tp)
        if partition is None:
            return None
        if partition.topic_id == NO_TOPIC_ID:
            partition.topic_id = partition.log.topic_id = order.topic_id
        if order.topic_id in (partition.topic_id, NO_TOPIC_ID):
            return partition
        self._report(
            f"{order.tp} of topic id {partition.topic_id} is deleted: its topic was made "
            f"anew as {order.topic_id}"
        )
        self._remove(partition)
        return None

    def _create(self, order: LeaderAndIsrPartition) -> Partition:
        topic = order.tp.topic
        known = self._rules.get(topic)
        rules = known or self._find_rules(topic) or self._rule_book.resolve(topic, {})
        log = self._engine.create(
            order.tp, order.topic_id, rules.served, self._wall_ms(), is_new=order.is_new
        )
        self._rules[topic] = rules
        return self._host(log)

    def _stop_one(self, name: TopicPartition, *, delete: bool) -> ErrorCode:
        partition = self.partitions.get(name)
        if partition is None:
            # Its records are on the disk that failed: nobody can say that they are deleted.
            is_lost = delete and name in self.offline
            return ErrorCode.KAFKA_STORAGE_ERROR if is_lost else ErrorCode.NONE
        if not delete:
            partition.stop()
            self._on_changed(partition)
            return ErrorCode.NONE
        try:
            self._remove(partition)
        except StorageError as error:
            self._report(f"{name} could not be deleted: {error}")
            self.offline.add(name)
            return code_of(error)
        return ErrorCode.NONE

    # -- settings --------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return list(self._by_topic)

    def find_topic_config(self, topic: str) -> TopicConfig | None:
        """None where no partition of it lives here."""
        return self._rules.get(topic)

    def reconfigure(self, topic: str) -> None:
        rules = self._find_rules(topic) if topic in self._by_topic else None
        if rules is None or rules == self._rules[topic]:
            return
        self._rules[topic] = rules
        for partition in list(self._by_topic[topic].values()):
            partition.apply_config(rules)
            self._on_changed(partition)

    def _find_rules(self, topic: str) -> TopicConfig | None:
        """None while the cluster's view does not know the topic: its orders come first."""
        state = self._metadata.find_topic(topic)
        return None if state is None else self._rule_book.resolve(topic, state.configs)

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


def _is_stale(order: LeaderAndIsrPartition, partition: Partition) -> bool:
    """Whether a later order has come, or the log has records of a later leader."""
    given = order.state
    known_epoch = max(partition.leader_epoch, partition.log.latest_epoch)
    if given.leader_epoch != known_epoch:
        return given.leader_epoch < known_epoch
    return given.partition_epoch < partition.state.partition_epoch
