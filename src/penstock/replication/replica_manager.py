"""Every partition that lives on this broker: takes writes, commits them, and obeys the controller.

Not the connections to leaders, and no clock but the timers' and the caller's. Owned by the event
loop: nothing here awaits, so each order and each append is one step for everybody else.
Invariant: `done` of an append is called exactly once, unless its waiting is cancelled.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from penstock.config.cached_config import CachedConfig
from penstock.config.effective_config import EffectiveConfig
from penstock.model.cluster import (
    INTERNAL_TOPICS,
    BrokerEpoch,
    BrokerId,
    LeaderAndIsrRequest,
    StopReplicaRequest,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import NO_TIMESTAMP, Offset, TopicPartition
from penstock.model.values import new_tuple
from penstock.purgatory.delayed_operations import (
    Purgatory,
    PurgatoryFull,
    PurgatoryStatistics,
    PurgatoryTimers,
    WatchedOperation,
)
from penstock.replication.config import FollowerConfig, ReplicationConfig
from penstock.replication.delayed_produce import (
    DelayedProduce,
    Done,
    PartitionAppended,
    ProducePartitionStatus,
)
from penstock.replication.follower_progress import NO_BROKER_EPOCH
from penstock.replication.follower_state import FollowerState
from penstock.replication.isr_manager import IsrManager
from penstock.replication.leader_and_isr import LeaderAndIsrHandler
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.partition import Partition, PartitionStatistics, Role
from penstock.replication.replication_quota import ReplicationQuota
from penstock.replication.storage_errors import as_refusal, code_of, message_of
from penstock.replication.topic_config import Report
from penstock.storage.engine import AppendItem, AppendOrigin, Engine, PartitionLog
from penstock.storage.errors import LogFenced, StorageError
from penstock.storage.leader_epoch_cache import EpochEndOffset

# Beyond what any number of connections that fit in memory leaves waiting; a bound all the same.
MAX_DELAYED_OPERATIONS = 200_000
MAX_WATCHES = 4_000_000

UNTIL_HIGH_WATERMARK = Offset(-1)  # of delete_records
_UNKNOWN = Offset(-1)
_ALL = -1
_NONE = ErrorCode.NONE


class Clock(PurgatoryTimers, Protocol):
    """`waiting.LoopTimers`, or a wheel under a virtual clock."""

    def now_ms(self) -> int: ...


class FollowerFetch(NamedTuple):
    """What a follower asks its leader for, as far as it tells how far the follower is."""

    follower: BrokerId
    broker_epoch: BrokerEpoch
    leader_epoch: int  # in which it follows
    offset: Offset
    last_fetched_epoch: int  # of its last record; -1: it has none


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaManagerStatistics:
    partitions: tuple[PartitionStatistics, ...]
    offline: tuple[TopicPartition, ...]  # ordered, but no directory that works holds a log of them
    produces: PurgatoryStatistics
    fetches: PurgatoryStatistics


class ReplicaManager:
    def __init__(
        self,
        *,
        broker_id: BrokerId,
        engine: Engine,
        metadata: MetadataCache,
        effective_config: Callable[[], EffectiveConfig],
        timers: Clock,
        wall_ms: Callable[[], int],
        report: Report,
        max_delayed_operations: int = MAX_DELAYED_OPERATIONS,
    ) -> None:
        self._engine = engine
        self._metadata = metadata
        self._config = CachedConfig(effective_config, ReplicationConfig.from_broker)
        self._timers = timers
        self._wall_ms = wall_ms
        self._hosted = LeaderAndIsrHandler(
            broker_id=broker_id,
            engine=engine,
            metadata=metadata,
            effective_config=effective_config,
            now_ms=timers.now_ms,
            wall_ms=wall_ms,
            report=report,
            on_changed=self._on_changed,
        )
        self._partitions = self._hosted.partitions
        self.isr_manager = IsrManager(
            metadata=metadata,
            timers=timers,
            now_ms=timers.now_ms,
            limits=lambda: self._config().lag_limits,
            on_changed=self._on_changed,
        )
        self.quota = ReplicationQuota(
            broker_id,
            config=self._config,
            topic_config_of=self._hosted.find_topic_config,
            now_ms=timers.now_ms,
        )
        self.follower_state = FollowerState(
            engine=engine,
            quota=self.quota,
            dependencies=self,
            now_ms=timers.now_ms,
            wall_ms=wall_ms,
            config=self.follower_config,
            report=report,
        )
        self.produce_purgatory: Purgatory[TopicPartition] = Purgatory(
            "produce", timers, max_operations=max_delayed_operations, max_watches=MAX_WATCHES
        )
        # Parked by those who read; checked here when there may be more, or less, to read.
        self.fetch_purgatory: Purgatory[TopicPartition] = Purgatory(
            "fetch", timers, max_operations=max_delayed_operations, max_watches=MAX_WATCHES
        )

    # -- the controller's orders -----------------------------------------------------------

    def adopt(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """What the engine has found at the start: here, without a role until it is ordered."""
        self._hosted.adopt(logs.values())

    def set_broker_epoch(self, epoch: BrokerEpoch) -> None:
        """Of the present registration: orders to an earlier life of this broker are refused."""
        self._hosted.broker_epoch = epoch

    def become_leader_or_follower(
        self, order: LeaderAndIsrRequest
    ) -> dict[TopicPartition, ErrorCode]:
        """Refusal where the whole order comes too late; else an answer for each partition."""
        return self._hosted.become_leader_or_follower(order)

    def stop_replicas(self, order: StopReplicaRequest) -> dict[TopicPartition, ErrorCode]:
        return self._hosted.stop_replicas(order)

    def reconfigure(self, topic: str) -> None:
        """Take its settings as they are now. Called by itself when the cluster's view changes."""
        self._hosted.reconfigure(topic)

    def reconfigure_all(self) -> None:
        """After a change of the broker's own settings, which are the topics' defaults."""
        for topic in self._hosted.topics():
            self._hosted.reconfigure(topic)

    def _on_changed(self, partition: Partition) -> None:
        """Its role, its replicas or its settings: what is committed and who may wait follow."""
        if partition.leadership is not None:
            partition.advance_high_watermark()
            self.keep_durable(partition)
        self.isr_manager.on_role(partition)
        self.follower_state.on_role(partition)
        self._wake(partition.tp)

    def follower_config(self) -> FollowerConfig:
        return self._config().follower

    def _wake(self, name: TopicPartition) -> None:
        self.produce_purgatory.check_and_complete(name)
        self.fetch_purgatory.check_and_complete(name)

    # -- looking up ------------------------------------------------------------------------

    def find(self, partition: TopicPartition) -> Partition | None:
        return self._partitions.get(partition)

    def get(self, partition: TopicPartition) -> Partition:
        """One that lives here, whatever its role, or a Refusal that says where the client errs."""
        found = self._partitions.get(partition)
        if found is None:
            raise Refusal(self._absence_of(partition))
        return found

    def _absence_of(self, partition: TopicPartition) -> ErrorCode:
        if partition in self._hosted.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._metadata.has_partition(partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # -- writing ---------------------------------------------------------------------------

    def append(
        self,
        batches: Sequence[tuple[TopicPartition, memoryview]],
        *,
        acks: int,
        timeout_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        done: Done,
    ) -> WatchedOperation[TopicPartition] | None:
        """Write in one call of the engine. `done` gets an answer per batch, in order: at once, or
        when the writes are as safe as `acks` asks, or after `timeout_ms`.

        What comes back, if anything, is for `produces.cancel`: then `done` is never called. Batches
        are stamped where they are, and not needed any more when this returns.
        """
        items: list[AppendItem] = []
        taken: list[Partition] = []
        refused: list[tuple[int, PartitionAppended]] = []
        find = self._partitions.get
        # The hot path: one attribute per partition, no call but what makes the item.
        for name, records in batches:
            found = find(name)
            if found is None or not found.accepts_writes or acks < _ALL or acks > 1:
                code = self._find_refusal(name, found, acks, origin)
                if code is not None:
                    refused.append((len(items) + len(refused), _refuse(code)))
                    continue
                assert found is not None
            items.append(new_tuple(AppendItem, (found.log, records, found.leader_epoch, origin)))
            taken.append(found)
        results = self._engine.append(items, self._wall_ms())
        answers, places = _lay_out(len(taken), refused)
        writes: list[ProducePartitionStatus] = []
        moved: list[TopicPartition] = []
        has_failed = False
        for place, partition, result in zip(places, taken, results, strict=True):
            if isinstance(result, StorageError):
                has_failed = has_failed or type(result) is LogFenced
                # With the log's start: Java looks there for why its producer is not known.
                answers[place] = _refuse(code_of(result), message_of(result))._replace(
                    log_start_offset=partition.log.log_start_offset
                )
                continue
            log = partition.log
            base_offset, end_offset, append_time_ms, _ = result
            answers[place] = new_tuple(
                PartitionAppended, (_NONE, base_offset, append_time_ms, log.log_start_offset, None)
            )
            if (
                partition.is_single_replica
            ):  # its end is the rule's only end: 1 µs less than to ask the rule
                log.advance_high_watermark(end_offset)
                moved.append(partition.tp)
                continue
            if partition.advance_high_watermark() or partition.followers:
                moved.append(partition.tp)  # a follower reads ahead of the high watermark
            if acks == _ALL:
                reached = log.high_watermark
            else:
                reached = log.durable_offset if partition.is_synchronous else end_offset
            if reached < end_offset:
                assert partition.leadership is not None
                writes.append(
                    ProducePartitionStatus(place, partition, partition.leadership, end_offset)
                )
        waiting = self._finish(answers, writes, acks, timeout_ms, done)
        if has_failed:
            self.handle_log_failures()
        self.fetch_purgatory.check_and_complete_all(moved)
        return waiting

    def _find_refusal(
        self, name: TopicPartition, partition: Partition | None, acks: int, origin: AppendOrigin
    ) -> ErrorCode | None:
        if not _ALL <= acks <= 1:
            return ErrorCode.INVALID_REQUIRED_ACKS
        if name.topic in INTERNAL_TOPICS and origin is AppendOrigin.CLIENT:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if partition is None:
            return self._absence_of(name)
        if partition.leadership is None:
            failed = partition.failure is not None
            return ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition.under_min_isr and acks == _ALL:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return None

    def _finish(
        self,
        answers: list[PartitionAppended],
        writes: list[ProducePartitionStatus],
        acks: int,
        timeout_ms: int,
        done: Done,
    ) -> WatchedOperation[TopicPartition] | None:
        if not writes:
            done(answers)
            return None
        for write in writes:
            self.keep_durable(write.partition)
        names = [write.partition.tp for write in writes]
        operation = DelayedProduce(answers, writes, for_all=acks == _ALL, done=done)
        try:
            waiting = self.produce_purgatory.try_complete_else_watch(
                operation, names, self._timers.now_ms() + timeout_ms
            )
        except PurgatoryFull:
            operation.expire()
            return None
        return waiting if waiting.ending is None else None

    # -- committing ------------------------------------------------------------------------

    def keep_durable(self, partition: Partition) -> None:
        """A synchronous topic's log is brought to disk, by one flush at a time: what is appended
        meanwhile goes with the next, which begins when this one has ended."""
        if partition.is_flushing or not partition.is_synchronous or partition.role is Role.NONE:
            return
        log = partition.log
        if log.durable_offset < log.log_end_offset:
            partition.is_flushing = True
            self._engine.flush(log, log.log_end_offset, partial(self._on_flushed, partition))

    def _on_flushed(self, partition: Partition, error: StorageError | None) -> None:
        partition.is_flushing = False
        if self._partitions.get(partition.tp) is not partition:
            return  # deleted meanwhile: those who waited know
        if type(error) is LogFenced:
            self.handle_log_failures()
        # Else it is durable, or it was cut while it followed and may lead again by now.
        if partition.leadership is not None:
            partition.advance_high_watermark()
        if partition.failure is None:
            self.keep_durable(partition)
        self.follower_state.on_flushed(partition)
        self._wake(partition.tp)

    def update_follower_fetch_state(
        self, partition: Partition, fetch: FollowerFetch
    ) -> EpochEndOffset | None:
        """Check a follower's fetch and take its progress from it; where its history diverges, if
        it does. The follower has everything below its fetch offset, provided that its last record
        is in this log, too. A refusal is the fetch's own error.
        """
        follower, broker_epoch, leader_epoch, offset, last_fetched_epoch = fetch
        partition.check_leader(leader_epoch)
        partition.check_follower(follower)
        if last_fetched_epoch >= 0:
            diverging = partition.find_divergence(offset, last_fetched_epoch)
            if diverging is not None:
                return diverging
        log = partition.log
        if log.log_start_offset <= offset <= log.log_end_offset:
            self.update_follower_end_offset(partition, follower, offset, broker_epoch)
        return None

    def update_follower_end_offset(
        self,
        partition: Partition,
        follower: BrokerId,
        end_offset: Offset,
        broker_epoch: BrokerEpoch = NO_BROKER_EPOCH,
    ) -> None:
        """The follower has everything below, flushed if the topic is synchronous. Call it only
        while this broker leads."""
        partition.update_follower_end_offset(
            follower,
            end_offset,
            broker_epoch=broker_epoch,
            limits=self._config().lag_limits,
            now_ms=self._timers.now_ms(),
        )
        self.isr_manager.on_fetch(partition, follower)
        if partition.advance_high_watermark():
            self._wake(partition.tp)

    def on_fetched(self, partition: Partition) -> None:
        """As a follower it has more than before, or less."""
        self.keep_durable(partition)
        self.fetch_purgatory.check_and_complete(partition.tp)

    def listen_for_log_failures(self, on_failed: Callable[[TopicPartition], None]) -> None:
        """Call it with each replica whose log has failed, perhaps more than once."""
        self._hosted.on_failed = on_failed

    def handle_log_failures(self) -> None:
        """Partitions whose log has failed lose their role, and those who wait for them are told.
        Appends and flushes see to it by themselves; call it after upkeep that failed."""
        self._hosted.handle_log_failures()

    # -- deleting --------------------------------------------------------------------------

    def delete_records(self, partition: TopicPartition, before: Offset) -> Offset:
        """Everything below `before` (-1: all that is committed) is gone; the log's new start."""
        if partition.topic in INTERNAL_TOPICS:
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION)
        found = self.get(partition)
        found.check_leader()
        log = found.log
        if not log.config.delete:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"{partition} is compacted and not deleted from; add delete to its cleanup.policy",
            )
        try:
            log.delete_before(log.high_watermark if before == UNTIL_HIGH_WATERMARK else before)
        except StorageError as error:
            raise as_refusal(error) from error
        self.fetch_purgatory.check_and_complete(partition)
        return log.log_start_offset

    def statistics(self) -> ReplicaManagerStatistics:
        return ReplicaManagerStatistics(
            partitions=tuple(each.statistics() for each in self._partitions.values()),
            offline=tuple(sorted(self._hosted.offline)),
            produces=self.produce_purgatory.statistics(),
            fetches=self.fetch_purgatory.statistics(),
        )


def _refuse(code: ErrorCode, message: str | None = None) -> PartitionAppended:
    return PartitionAppended(code, _UNKNOWN, NO_TIMESTAMP, _UNKNOWN, message)


def _lay_out(
    taken: int, refused: list[tuple[int, PartitionAppended]]
) -> tuple[list[PartitionAppended], Sequence[int]]:
    """Room for all answers, the refusals in place already, and the places of the others."""
    answers = [_UNANSWERED] * (taken + len(refused))
    if not refused:
        return answers, range(taken)
    for place, answer in refused:
        answers[place] = answer
    gone = {place for place, _ in refused}
    return answers, [place for place in range(len(answers)) if place not in gone]


_UNANSWERED = _refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
