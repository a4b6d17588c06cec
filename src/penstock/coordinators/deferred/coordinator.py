"""The coordinator of deferred messages of a broker: defers and cancels, by the shard of a name.

A message with a delay id belongs to the shard of its id, so that a cancel finds it whichever
partition it is sent to; any other belongs to the shard of its target. Owned by the event loop.
"""

from collections.abc import Callable, Sequence

from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.config import DeferredConfig
from penstock.coordinators.deferred.defer import DeferReply, SentBy
from penstock.coordinators.deferred.dependencies import DeliveryChannel
from penstock.coordinators.deferred.due_index import RunStore
from penstock.coordinators.deferred.shard import DeferredDependencies, DeferredShard
from penstock.coordinators.deferred.values import DeferredMessage, DelayKey, Target
from penstock.coordinators.runtime.coordinator_runtime import CoordinatorRuntime
from penstock.coordinators.runtime.coordinator_shard import Status
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.logs.event_logger import EventLogger
from penstock.model.errors import ErrorCode
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
        producer_ids: ProducerIds,
        new_runs: Callable[[int], RunStore],
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        config: Callable[[], DeferredConfig],
        logger: EventLogger,
    ) -> None:
        super().__init__(log=log, timers=timers, wall_ms=wall_ms, logger=logger)
        self._config = config
        self._dependencies = DeferredDependencies(
            log=log,
            timers=timers,
            channel=channel,
            producer_ids=producer_ids,
            new_runs=new_runs,
            wall_ms=wall_ms,
            config=config,
            logger=logger,
            notes=self._notes,
            load_again=self._load_again,
            on_unexpected_error=self._on_unexpected_error,
            start=self._start,
        )

    def _new_shard(self, partition: int) -> DeferredShard:
        return DeferredShard(partition, self._dependencies)

    def _planned_partitions(self) -> int:
        return self._config().topic_partitions

    @property
    def is_loading(self) -> bool:
        return any(shard.status is Status.LOADING for shard in self._shards.values())

    async def defer(
        self, partition: int, messages: Sequence[DeferredMessage], sent_by: SentBy | None
    ) -> DeferReply:
        """Messages of one batch and one shard, all or none of them."""
        shard = self._find_active_shard(partition)
        if isinstance(shard, ErrorCode):
            return DeferReply(shard)
        reply = await shard.defer(messages, sent_by)
        return DeferReply(reply.code) if isinstance(reply, Failed) else reply

    async def cancel(self, delay_key: DelayKey) -> CancelReply | Failed:
        shard = self._find_shard(shard_name(Target(delay_key.topic_id, 0), delay_key.delay_id))
        return Failed(shard) if isinstance(shard, ErrorCode) else await shard.cancel(delay_key)
