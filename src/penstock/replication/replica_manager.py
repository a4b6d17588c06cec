"""All partitions of this broker: appends, commits, and the controller's requests.

Not the connections to leaders, and no clock but the timers' and the caller's. Owned by the event
loop: nothing here awaits, so every request and every append is atomic to all others. Invariant:
`done` of an append is called exactly once, unless the delayed operation is cancelled.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol

from penstock.config.cached_config import CachedConfig
from penstock.config.effective_config import EffectiveConfig
from penstock.config.log_config import LogConfig
from penstock.logs.event_logger import EventLogger
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
from penstock.replication.record_validator import RecordValidator
from penstock.replication.refused_batches import DamageVerdict, describe_damage, judge_damage
from penstock.replication.replication_quota import ReplicationQuota
from penstock.replication.storage_errors import as_refusal, code_of, message_of
from penstock.replication.topic_traffic import TrafficStatistics
from penstock.replication.visible_end import VisibleEnds
from penstock.storage.engine import AppendItem, AppendOrigin, Engine, PartitionLog
from penstock.storage.errors import LogFenced, RecordTooLarge, StorageError
from penstock.storage.leader_epoch_cache import OffsetAndEpoch

# More than the connections that fit in memory can have in flight; a bound nevertheless.
MAX_DELAYED_OPERATIONS: Final = 200_000
MAX_WATCHES: Final = 4_000_000

UNTIL_HIGH_WATERMARK: Final = Offset(-1)  # for delete_records
_UNKNOWN: Final = Offset(-1)
_ALL: Final = -1
_NONE: Final = ErrorCode.NONE


class Clock(PurgatoryTimers, Protocol):
    """`purgatory.LoopTimers`, or a timing wheel under a virtual clock."""

    def now_ms(self) -> int: ...


class FollowerFetch(NamedTuple):
    """One partition of a follower's fetch, as far as it shows the follower's progress."""

    follower: BrokerId
    broker_epoch: BrokerEpoch
    leader_epoch: int  # that the follower is in
    offset: Offset
    last_fetched_epoch: int  # of its last record; -1: its log is empty


class ReplicaManagerStatistics(NamedTuple):
    partitions: tuple[PartitionStatistics, ...]
    traffic: Mapping[str, TrafficStatistics]  # by topic, without current leaderships' appends
    other_traffic: TrafficStatistics  # of topics that have no partition here (any more)
    isr_shrinks: int
    isr_expands: int
    max_lag: int  # records that the followers here are behind, as of their last fetch
    offline: tuple[TopicPartition, ...]  # assigned here, but in a failed log directory
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
        logger: EventLogger,
        max_delayed_operations: int = MAX_DELAYED_OPERATIONS,
    ) -> None:
        self._engine = engine
        self._metadata = metadata
        self._config = CachedConfig(effective_config, ReplicationConfig.from_broker)
        self._timers = timers
        self._wall_ms = wall_ms
        self._validator = RecordValidator()
        self._logger = logger
        self._on_damaged: Callable[[TopicPartition], None] = lambda tp: None
        self._handler = LeaderAndIsrHandler(
            broker_id=broker_id,
            engine=engine,
            metadata=metadata,
            effective_config=effective_config,
            now_ms=timers.now_ms,
            wall_ms=wall_ms,
            logger=logger,
            on_changed=self._on_changed,
            visible_ends=VisibleEnds(
                wall_ms=wall_ms,
                timers=timers,
                on_moved=lambda tp: self.fetch_purgatory.check_and_complete(tp),
            ),
        )
        self._partitions = self._handler.partitions
        self.traffic = self._handler.traffic
        # Topics whose records may ask to wait: nearly always none, and Produce looks no further.
        self.delayed_topics: AbstractSet[str] = self._handler.delayed_topics
        self.half_topics: Mapping[str, tuple[str, ...]] = self._handler.half_topics
        self.looked_into: AbstractSet[str] = self._handler.looked_into  # both
        self.isr_manager = IsrManager(
            metadata=metadata,
            timers=timers,
            now_ms=timers.now_ms,
            limits=lambda: self._config().lag_limits,
            on_changed=self._on_changed,
            logger=logger,
        )
        self.quota = ReplicationQuota(
            broker_id,
            config=self._config,
            topic_config_of=self._handler.find_topic_config,
            now_ms=timers.now_ms,
        )
        self.follower_state = FollowerState(
            engine=engine,
            quota=self.quota,
            dependencies=self,
            now_ms=timers.now_ms,
            wall_ms=wall_ms,
            config=self.follower_config,
            logger=logger,
        )
        self.produce_purgatory: Purgatory[TopicPartition] = Purgatory(
            "produce", timers, max_operations=max_delayed_operations, max_watches=MAX_WATCHES
        )
        # Watched by readers; checked here when there may be more, or less, to read.
        self.fetch_purgatory: Purgatory[TopicPartition] = Purgatory(
            "fetch", timers, max_operations=max_delayed_operations, max_watches=MAX_WATCHES
        )

    # -- requests of the controller --------------------------------------------------------

    def adopt(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Host the logs that the engine recovered, without a role until a LeaderAndIsr request."""
        self._handler.adopt(logs.values())

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest
    ) -> dict[TopicPartition, ErrorCode]:
        """A code per partition. ControllerRequestHandler has checked the request's epochs."""
        return self._handler.become_leader_or_follower(request)

    def stop_replicas(self, request: StopReplicaRequest) -> dict[TopicPartition, ErrorCode]:
        return self._handler.stop_replicas(request)

    def reconfigure(self, topic: str) -> None:
        """Apply the topic's current config. An UpdateMetadata request with the topic does so
        itself."""
        self._handler.reconfigure(topic)

    def reconfigure_all(self) -> None:
        """Called after a change of the broker's settings, which are the topics' defaults."""
        for topic in self._handler.topics():
            self._handler.reconfigure(topic)

    def _on_changed(self, partition: Partition) -> None:
        """Role, replicas or config have changed: update high watermark, ISR and delayed
        operations."""
        if partition.leadership is not None:
            partition.advance_high_watermark()
            self.keep_durable(partition)
        self.isr_manager.on_role(partition)
        self.follower_state.on_role(partition)
        self._complete_delayed(partition.tp)

    def follower_config(self) -> FollowerConfig:
        return self._config().follower

    def _complete_delayed(self, tp: TopicPartition) -> None:
        self.produce_purgatory.check_and_complete(tp)
        self.fetch_purgatory.check_and_complete(tp)

    # -- looking up ------------------------------------------------------------------------

    def find(self, tp: TopicPartition) -> Partition | None:
        return self._partitions.get(tp)

    def get(self, tp: TopicPartition) -> Partition:
        """A partition of this broker, whatever its role; a Refusal with the client's error else."""
        partition = self._partitions.get(tp)
        if partition is None:
            raise Refusal(self._absence_of(tp))
        return partition

    def _absence_of(self, tp: TopicPartition) -> ErrorCode:
        if tp in self._handler.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._metadata.has_partition(tp):
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
        """Append in one call of the engine. `done` gets a result per batch, in order: at once, when
        the writes satisfy `acks`, or after `timeout_ms`.

        The returned operation, if any, is for `produce_purgatory.cancel`: then `done` is never
        called. Batches are stamped in place and no longer needed when this returns.
        """
        now_ms = self._wall_ms()
        items, accepted, refused = self._accept(batches, acks, origin, now_ms)
        appended = self._engine.append(items, now_ms)
        results, indexes = _lay_out(len(accepted), refused)
        writes: list[ProducePartitionStatus] = []
        moved: list[TopicPartition] = []
        has_failed = False
        for position, written in enumerate(appended):
            index, partition = indexes[position], accepted[position]
            if isinstance(written, StorageError):
                has_failed = has_failed or type(written) is LogFenced
                self._count_failure(partition, written, items[position])
                # With the log start offset: Java's producer reads from it why its id is unknown.
                results[index] = _refuse(code_of(written), message_of(written))._replace(
                    log_start_offset=partition.log.log_start_offset
                )
                continue
            log = partition.log
            base_offset, end_offset, append_time_ms, _ = written
            results[index] = new_tuple(
                PartitionAppended,
                (_NONE, base_offset, append_time_ms, log.log_start_offset, None, ()),
            )
            if partition.is_single_replica:  # the only end offset: 1 µs less than the rule
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
                    ProducePartitionStatus(index, partition, partition.leadership, end_offset)
                )
        watched = self._finish(results, writes, acks, timeout_ms, done)
        if has_failed:
            self.handle_log_failures()
        self.fetch_purgatory.check_and_complete_all(moved)
        return watched

    def _accept(
        self,
        batches: Sequence[tuple[TopicPartition, memoryview]],
        acks: int,
        origin: AppendOrigin,
        now_ms: int,
    ) -> tuple[list[AppendItem], list[Partition], list[tuple[int, PartitionAppended]]]:
        """What the engine may append, the partitions of it, and the refusals by position."""
        items: list[AppendItem] = []
        accepted: list[Partition] = []
        refused: list[tuple[int, PartitionAppended]] = []
        self._validator.begin_request()
        is_from_client = origin is AppendOrigin.CLIENT
        find, find_invalid = self._partitions.get, self._validator.find_refusal
        # The hot path: no call for a partition but for its records and the item.
        for tp, records in batches:
            partition = find(tp)
            if partition is None or not partition.accepts_writes or acks < _ALL or acks > 1:
                code = self._find_refusal(tp, partition, acks, origin)
                if code is not None:
                    self.traffic.find(tp.topic).failed_produces += 1
                    refused.append((len(items) + len(refused), _refuse(code)))
                    continue
                assert partition is not None
            log = partition.log
            config = log.config
            if is_from_client and config.penstock_validate_records:
                invalid = find_invalid(records, config, tp, now_ms)
                if invalid is not None:
                    partition.traffic.failed_produces += 1
                    invalid = invalid._replace(log_start_offset=log.log_start_offset)
                    refused.append((len(items) + len(refused), invalid))
                    continue
            items.append(new_tuple(AppendItem, (log, records, partition.leader_epoch, origin)))
            accepted.append(partition)
        return items, accepted, refused

    def find_invalid(
        self, records: memoryview, config: LogConfig, tp: TopicPartition, now_ms: int
    ) -> PartitionAppended | None:
        """The refusal of a client's batch that is looked into before its append."""
        self._validator.begin_request()
        if not config.penstock_validate_records:
            return None
        return self._validator.find_refusal(records, config, tp, now_ms)

    def _count_failure(self, partition: Partition, error: StorageError, item: AppendItem) -> None:
        partition.traffic.failed_produces += 1
        if isinstance(error, RecordTooLarge):
            partition.traffic.bytes_rejected += len(item.batches)

    def _find_refusal(
        self, tp: TopicPartition, partition: Partition | None, acks: int, origin: AppendOrigin
    ) -> ErrorCode | None:
        if not _ALL <= acks <= 1:
            return ErrorCode.INVALID_REQUIRED_ACKS
        if tp.topic in INTERNAL_TOPICS and origin is AppendOrigin.CLIENT:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if partition is None:
            return self._absence_of(tp)
        if partition.leadership is None:
            failed = partition.failure is not None
            return ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition.under_min_isr and acks == _ALL:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return None

    def _finish(
        self,
        results: list[PartitionAppended],
        writes: list[ProducePartitionStatus],
        acks: int,
        timeout_ms: int,
        done: Done,
    ) -> WatchedOperation[TopicPartition] | None:
        if not writes:
            done(results)
            return None
        for write in writes:
            self.keep_durable(write.partition)
        tps = [write.partition.tp for write in writes]
        operation = DelayedProduce(results, writes, for_all=acks == _ALL, done=done)
        try:
            watched = self.produce_purgatory.try_complete_else_watch(
                operation, tps, self._timers.now_ms() + timeout_ms
            )
        except PurgatoryFull:
            operation.expire()
            return None
        return watched if watched.ending is None else None

    # -- committing ------------------------------------------------------------------------

    def keep_durable(self, partition: Partition) -> None:
        """Flush a synchronous topic's log, one flush at a time: appends made meanwhile go with the
        next flush, which starts when this one has ended."""
        if partition.is_flushing or not partition.is_synchronous or partition.role is Role.NONE:
            return
        log = partition.log
        if log.durable_offset < log.log_end_offset:
            partition.is_flushing = True
            self._engine.flush(log, log.log_end_offset, partial(self._on_flushed, partition))

    def _on_flushed(self, partition: Partition, error: StorageError | None) -> None:
        partition.is_flushing = False
        if self._partitions.get(partition.tp) is not partition:
            return  # deleted meanwhile: its delayed operations have ended
        if type(error) is LogFenced:
            self.handle_log_failures()
        # Otherwise it is durable, or was truncated as a follower and may lead again by now.
        if partition.leadership is not None:
            partition.advance_high_watermark()
        if partition.failure is None:
            self.keep_durable(partition)
        self.follower_state.on_flushed(partition)
        self._complete_delayed(partition.tp)

    def update_follower_fetch_state(
        self, partition: Partition, fetch: FollowerFetch
    ) -> OffsetAndEpoch | None:
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
            self._complete_delayed(partition.tp)

    def on_fetched(self, partition: Partition) -> None:
        """A follower's log has grown or was truncated."""
        self.keep_durable(partition)
        self.fetch_purgatory.check_and_complete(partition.tp)

    def listen_for_log_failures(self, on_failed: Callable[[TopicPartition], None]) -> None:
        """Call it for every replica whose log has failed, perhaps more than once."""
        self._handler.on_failed = on_failed

    def listen_for_damage(self, on_damaged: Callable[[TopicPartition], None]) -> None:
        """Call it for every partition that another in-sync replica should lead, perhaps more than
        once."""
        self._on_damaged = on_damaged

    def check_refused(
        self, tp: TopicPartition, leader_epoch: int, offset: Offset, *, follower: BrokerId
    ) -> None:
        """A follower refuses what this broker sent it from `offset` on. Refusal: CORRUPT_MESSAGE
        if the log is damaged there; another code if it cannot be checked."""
        partition = self.get(tp)
        partition.check_leader()
        if leader_epoch != partition.leader_epoch:
            raise Refusal(ErrorCode.FENCED_LEADER_EPOCH)
        max_bytes = self.follower_config().partition_max_bytes
        try:
            damaged = partition.log.find_damage(offset, max_bytes)
        except StorageError as error:
            raise as_refusal(error) from error
        except OSError as error:
            self._logger.error(
                "log_not_checked", f"{tp} cannot be checked for damage at offset {offset}: {error}"
            )
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if damaged is None:
            return
        verdict = judge_damage(partition.state, partition.broker_id)
        if damaged.offset != partition.damaged_at:
            partition.damaged_at = damaged.offset
            self._logger.error("log_damage_found", describe_damage(tp, damaged, verdict, follower))
        if verdict is DamageVerdict.MOVES:
            self._on_damaged(tp)
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"{tp} is damaged at offset {damaged.offset}")

    def handle_log_failures(self) -> None:
        """Take partitions whose log has failed offline and end their delayed operations. Appends
        and flushes call it themselves; call it after a failed background job."""
        self._handler.handle_log_failures()

    # -- deleting --------------------------------------------------------------------------

    def delete_records(self, tp: TopicPartition, before: Offset) -> Offset:
        """Delete everything below `before` (-1: all that consumers see); the new log start
        offset."""
        if tp.topic in INTERNAL_TOPICS:
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = self.get(tp)
        partition.check_leader()
        log = partition.log
        if not log.config.delete:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"{tp} is compacted and not deleted from; add delete to its cleanup.policy",
            )
        try:
            is_all = before == UNTIL_HIGH_WATERMARK
            log.delete_before(partition.visible_high_watermark() if is_all else before)
        except StorageError as error:
            raise as_refusal(error) from error
        self.fetch_purgatory.check_and_complete(tp)
        return log.log_start_offset

    def statistics(self) -> ReplicaManagerStatistics:
        partitions = tuple(chain.from_iterable(self.slices_of_partitions(len(self._partitions))))
        return self.statistics_of(partitions)

    def slices_of_partitions(self, size: int) -> Iterator[list[PartitionStatistics]]:
        """So many partitions at a time: a caller with many can let others run between slices.
        Partitions that come or go meanwhile may be missing."""
        pending = iter(list(self._partitions.values()))
        while batch := list(islice(pending, size)):
            yield [partition.statistics() for partition in batch]

    def statistics_of(
        self, partitions: tuple[PartitionStatistics, ...]
    ) -> ReplicaManagerStatistics:
        traffic = self.traffic
        return ReplicaManagerStatistics(
            partitions=partitions,
            traffic={topic: counts.snapshot() for topic, counts in traffic.topics.items()},
            other_traffic=traffic.without_topic,
            isr_shrinks=self.isr_manager.shrinks,
            isr_expands=self.isr_manager.expands,
            max_lag=self.follower_state.max_lag,
            offline=tuple(sorted(self._handler.offline)),
            produces=self.produce_purgatory.statistics(),
            fetches=self.fetch_purgatory.statistics(),
        )


def _refuse(code: ErrorCode, message: str | None = None) -> PartitionAppended:
    return PartitionAppended(code, _UNKNOWN, NO_TIMESTAMP, _UNKNOWN, message)


def _lay_out(
    accepted: int, refused: list[tuple[int, PartitionAppended]]
) -> tuple[list[PartitionAppended], Sequence[int]]:
    """A list for all results with the refusals filled in, and the indexes of the others."""
    results = [_NO_RESULT] * (accepted + len(refused))
    if not refused:
        return results, range(accepted)
    for index, refusal in refused:
        results[index] = refusal
    taken = {index for index, _ in refused}
    return results, [index for index in range(len(results)) if index not in taken]


_NO_RESULT: Final = _refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
