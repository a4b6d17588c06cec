"""Expands and shrinks the ISR of the partitions that this broker leads, through AlterPartition.

The rules are in `isr`; the controller decides. Owned by the event loop, through `ReplicaManager`.
Invariant: a partition has at most one proposal in flight, and a response counts only while its
proposal is current.
"""

from collections.abc import Callable
from functools import partial

from penstock.logs.event_logger import EventLogger
from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult
from penstock.model.cluster import BrokerId, UpdateMetadataRequest
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.purgatory.delayed_operations import Call, PurgatoryTimers
from penstock.purgatory.timing_wheel import Timer
from penstock.replication.alter_partition import AlterPartitionSender
from penstock.replication.follower_progress import NO_BROKER_EPOCH, LagLimits
from penstock.replication.isr import Members, with_joiner, without_laggards
from penstock.replication.isr_log import IsrLog
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.partition import Partition

RETRY_MS = 50  # while the result is unknown
SUM_UP_MS = 100  # the changes of so much time are logged as one
REFUSED_MS = 500  # pause after a refused proposal
MIN_CHECK_MS = 10

# The controller has elected another leader or deleted the topic. Its LeaderAndIsr or StopReplica
# request is on the way; until then the stored ISR is unknown.
_OUTDATED = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
)
_REFUSED = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST))


class IsrManager:
    def __init__(
        self,
        *,
        metadata: MetadataCache,
        timers: PurgatoryTimers,
        now_ms: Callable[[], int],
        limits: Callable[[], LagLimits],
        on_changed: Callable[[Partition], None],
        logger: EventLogger,
    ) -> None:
        self.sender: AlterPartitionSender | None = None  # None: a single node

        self._metadata = metadata
        self._timers = timers
        self._now_ms = now_ms
        self._limits = limits
        self._on_changed = on_changed
        self._log = IsrLog(logger, lambda call: timers.add(now_ms() + SUM_UP_MS, call))
        self._led: dict[TopicPartition, Partition] = {}  # with followers
        self._not_before_ms: dict[TopicPartition, int] = {}  # after a refused proposal
        self._timer: Timer[Call] | None = None  # of the next check; None: nothing to check
        self.shrinks = self.expands = 0  # of the ISRs of partitions that this broker leads
        metadata.listen(self._on_update)

    def on_role(self, partition: Partition) -> None:
        """The partition's role or replicas have changed."""
        if partition.followers:
            self._led[partition.tp] = partition
        else:
            self._led.pop(partition.tp, None)
            self._not_before_ms.pop(partition.tp, None)
        self._set_timer()

    # -- expanding -------------------------------------------------------------------------

    def on_fetch(self, partition: Partition, follower: BrokerId) -> None:
        """Called right after the follower's progress was updated."""
        progress = partition.followers.get(follower)
        if progress is None or self._must_wait(partition):
            return
        wanted = with_joiner(
            partition.state,
            follower,
            progress,
            high_watermark=partition.high_watermark,
            epoch_start_offset=partition.epoch_start_offset,
        )
        if wanted != partition.state.in_sync and self._is_alive(partition, follower):
            self._propose(partition, wanted)

    def _must_wait(self, partition: Partition) -> bool:
        if self.sender is None or partition.proposal is not None:
            return True
        return self._now_ms() < self._not_before_ms.get(partition.tp, 0)

    def _is_alive(self, partition: Partition, follower: BrokerId) -> bool:
        """Whether the broker epoch that fetched is still registered: after a restart the follower
        may have lost what it had (KIP-903)."""
        node = self._metadata.brokers.get(follower)
        fetch_epoch = partition.followers[follower].broker_epoch
        return node is not None and fetch_epoch in (NO_BROKER_EPOCH, node.epoch)

    # -- shrinking -------------------------------------------------------------------------

    def _on_update(self, update: UpdateMetadataRequest) -> None:
        """A broker in controlled shutdown fetches until it has stopped, so it seems to keep up for
        a while after it is gone: acks=all would wait for it."""
        if update.brokers is None:
            return
        for partition in list(self._led.values()):
            gone = [
                follower
                for follower in partition.followers
                if follower not in partition.state.in_sync
                and not self._is_alive(partition, follower)
            ]
            if gone:
                partition.forget_progress(gone, self._now_ms())
                self._on_changed(partition)

    def _set_timer(self) -> None:
        if self._led and self._timer is None:
            pause_ms = max(MIN_CHECK_MS, self._limits().max_ms // 2)
            self._timer = self._timers.add(self._now_ms() + pause_ms, self._check_all)

    def _check_all(self) -> None:
        self._timer = None
        limits, now_ms = self._limits(), self._now_ms()
        for partition in list(self._led.values()):
            partition.update_catching_up(limits, now_ms)
            if not self._must_wait(partition):
                self._shrink(partition, limits, now_ms)
            self._on_changed(partition)
        self._set_timer()

    def _shrink(self, partition: Partition, limits: LagLimits, now_ms: int) -> None:
        wanted = without_laggards(
            partition.state,
            partition.followers,
            leader_end_offset=partition.log_end_offset,
            limits=limits,
            now_ms=now_ms,
        )
        if wanted != partition.state.in_sync:
            self._propose(partition, wanted)

    # -- AlterPartition --------------------------------------------------------------------

    def _propose(self, partition: Partition, wanted: Members) -> None:
        self._send(partition, partition.propose(wanted))

    def _send(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        if partition.proposal is proposal and self.sender is not None:
            self.sender.propose(proposal, partial(self._on_result, partition, proposal))

    def _on_result(
        self, partition: Partition, proposal: AlterPartitionProposal, result: AlterPartitionResult
    ) -> None:
        if partition.proposal is not proposal:
            return  # a LeaderAndIsr request came first and supersedes it
        code, stored = result
        before = partition.state.in_sync
        if stored is not None and partition.try_adopt(stored):
            after = partition.state.in_sync
            self.shrinks += len(after) < len(before)
            self.expands += len(after) > len(before)
            self._log.add(partition, before, limits=self._limits(), now_ms=self._now_ms())
            self._on_changed(partition)
        elif code in _REFUSED:
            self._not_before_ms[partition.tp] = self._now_ms() + REFUSED_MS
            partition.withdraw()
            self._on_changed(partition)
        elif code not in _OUTDATED:
            retry = partial(self._send, partition, proposal)
            self._timers.add(self._now_ms() + RETRY_MS, retry)
