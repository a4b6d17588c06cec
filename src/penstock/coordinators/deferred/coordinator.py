"""The coordinator of deferred messages of a broker: defers and cancels, by the shard of a name.

A message with a delay id belongs to the shard of its id, so that a cancel finds it whichever
partition it is sent to; any other belongs to the shard of its target. Owned by the event loop.
"""

from collections.abc import Awaitable, Callable, Sequence

from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.config import DeferredConfig
from penstock.coordinators.deferred.counts import (
    DeferredCoordinatorStatistics,
    DeferredCounts,
    HalfStatistics,
)
from penstock.coordinators.deferred.defer import DeferReply, SentBy
from penstock.coordinators.deferred.dependencies import DeliveryChannel, HalfCluster
from penstock.coordinators.deferred.due_index import RunStore
from penstock.coordinators.deferred.half_values import HalfIntake, IntakeReply
from penstock.coordinators.deferred.shard import (
    DeferredDependencies,
    DeferredShard,
    FindRefusal,
)
from penstock.coordinators.deferred.values import DeferredMessage, DelayKey, Target
from penstock.coordinators.runtime.coordinator_runtime import CoordinatorRuntime
from penstock.coordinators.runtime.coordinator_shard import Status
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers
from penstock.coordinators.runtime.pending_replies import Failed, MarkerReply
from penstock.logs.event_logger import EventLogger
from penstock.model.errors import ErrorCode
from penstock.model.markers import TransactionMarker
from penstock.model.producer_ids import ProducerIds


def shard_name(target: Target, delay_id: str | None) -> str:
    """What the shard of a message is chosen by."""
    return f"{target.topic_id}/{target.partition if delay_id is None else f'id:{delay_id}'}"


class DeferredCoordinator(CoordinatorRuntime[DeferredShard]):
    NAME = "coordinator of deferred messages"

    def __init__(
        self,
        *,
        log: CoordinatorLog,
        channel: DeliveryChannel,
        cluster: HalfCluster,
        producer_ids: ProducerIds,
        new_runs: Callable[[int], RunStore],
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        config: Callable[[], DeferredConfig],
        logger: EventLogger,
    ) -> None:
        super().__init__(log=log, timers=timers, wall_ms=wall_ms, logger=logger)
        self._wall_ms = wall_ms
        self._config = config
        self._counts = DeferredCounts()
        self._dependencies = DeferredDependencies(
            log=log,
            timers=timers,
            channel=channel,
            cluster=cluster,
            producer_ids=producer_ids,
            new_runs=new_runs,
            wall_ms=wall_ms,
            config=config,
            logger=logger,
            notes=self._notes,
            load_again=self._load_again,
            on_unexpected_error=self._on_unexpected_error,
            start=self._start,
            counts=self._counts,
        )

    def _new_shard(self, partition: int) -> DeferredShard:
        return DeferredShard(partition, self._dependencies)

    def _planned_partitions(self) -> int:
        return self._config().topic_partitions

    def statistics(self) -> DeferredCoordinatorStatistics:
        shards = self._shards.values()
        due_ms = [shard.state.find_oldest_due_ms() for shard in shards if shard.is_active]
        oldest_ms = min((due for due in due_ms if due is not None), default=None)
        return DeferredCoordinatorStatistics(
            shards=len(shards),
            loading=sum(shard.status is Status.LOADING for shard in shards),
            pending=sum(len(shard.state.pending) for shard in shards),
            due_lag_ms=0 if oldest_ms is None else max(0, self._wall_ms() - oldest_ms),
            unconfirmed=sum(len(shard.state.unconfirmed_targets()) for shard in shards),
            delivered=self._counts.delivered,
            cancelled=self._counts.cancelled,
            halves=self._half_statistics(),
            unexpected_errors=self._unexpected_errors,
            loads=self._loads,
        )

    def _half_statistics(self) -> HalfStatistics:
        pending = [
            shard.state.halves.pending_since_ms
            for shard in self._shards.values()
            if shard.is_active
        ]
        oldest_ms = min((min(since.values()) for since in pending if since), default=None)
        counts = self._counts
        return HalfStatistics(
            pending=sum(len(since) for since in pending),
            oldest_ms=0 if oldest_ms is None else max(0, self._wall_ms() - oldest_ms),
            committed=counts.committed,
            rolled_back=counts.rolled_back,
            expired=counts.expired,
            ignored=counts.ignored,
        )

    @property
    def is_loading(self) -> bool:
        return any(shard.status is Status.LOADING for shard in self._shards.values())

    async def defer(
        self,
        partition: int,
        messages: Sequence[DeferredMessage],
        sent_by: SentBy | None,
        find_refusal: FindRefusal | None = None,
    ) -> DeferReply:
        """Messages of one batch and one shard, all or none of them."""
        shard = self._find_active_shard(partition)
        if isinstance(shard, ErrorCode):
            return DeferReply(shard)
        reply = await shard.defer(messages, sent_by, find_refusal)
        return DeferReply(reply.code) if isinstance(reply, Failed) else reply

    def end_transaction(self, partition: int, marker: TransactionMarker) -> Awaitable[ErrorCode]:
        """The marker is written when this returns, and committed when the awaited code is NONE."""
        shard = self._find_active_shard(partition)
        return MarkerReply(shard if isinstance(shard, ErrorCode) else shard.end_transaction(marker))

    async def cancel(
        self, partition: int, delay_keys: Sequence[DelayKey]
    ) -> tuple[CancelReply, ...] | Failed:
        """Cancels different messages of one shard."""
        shard = self._find_active_shard(partition)
        return Failed(shard) if isinstance(shard, ErrorCode) else await shard.cancel(delay_keys)

    async def deliver_now(self, partition: int, delay_key: DelayKey) -> CancelReply | Failed:
        """Makes the message due. May raise Refusal."""
        shard = self._find_active_shard(partition)
        return Failed(shard) if isinstance(shard, ErrorCode) else await shard.deliver_now(delay_key)

    async def take_intake(self, intake: HalfIntake) -> IntakeReply:
        """What was read for a group whose shard is led here."""
        shard = self._find_active_shard(self.partition_of_group(intake.group))
        return (
            IntakeReply(shard) if isinstance(shard, ErrorCode) else await shard.take_intake(intake)
        )

    def partition_of_group(self, group: str) -> int:
        """All half ids of a group belong to one shard."""
        return self.partition_of(f"half:{group}")

    def partition_of_message(self, message: DeferredMessage) -> int:
        return self.partition_of(shard_name(message.target, message.delay_id))

    def partition_of_key(self, delay_key: DelayKey) -> int:
        return self.partition_of(shard_name(Target(delay_key.topic_id, 0), delay_key.delay_id))
