"""Keeps the in-sync sets of the partitions that this broker leads: asks for those who caught up,
and against those who lag. The rules are `in_sync`'s, the decision is the controller's.

Owned by the event loop, through `Replicas`. Invariant: a partition has one proposal at a time, and
an answer counts only while its proposal stands.
"""

from collections.abc import Callable
from functools import partial

from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult
from penstock.model.cluster import BrokerId, UpdateMetadataRequest
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.purgatory.delayed_operations import Call, PurgatoryTimers
from penstock.purgatory.timing_wheel import Timer
from penstock.replication.alter_partition import AlterPartitionSender
from penstock.replication.follower_progress import NO_BROKER_EPOCH, LagLimits
from penstock.replication.isr import Members, with_joiner, without_laggards
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.partition import Partition

RETRY_MS = 50  # until an answer comes that decides it
REFUSED_MS = 500  # before another proposal, after one that was refused
MIN_CHECK_MS = 10

# This broker does not lead any more, as the controller sees it: its order is on the way, and until
# it comes nobody knows who is in sync.
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
    ) -> None:
        self.changes: AlterPartitionSender | None = (
            None  # None: a single node, which has nobody to ask
        )
        self._metadata = metadata
        self._timers = timers
        self._now_ms = now_ms
        self._limits = limits
        self._on_changed = on_changed
        self._led: dict[TopicPartition, Partition] = {}  # those that have followers
        self._not_before_ms: dict[TopicPartition, int] = {}  # of those whose proposal was refused
        self._timer: Timer[Call] | None = None  # of the next look; None: there is nothing to see
        metadata.listen(self._on_update)

    def on_role(self, partition: Partition) -> None:
        """It leads, or does not, or with other replicas."""
        if partition.followers:
            self._led[partition.tp] = partition
        else:
            self._led.pop(partition.tp, None)
            self._not_before_ms.pop(partition.tp, None)
        self._set_timer()

    # -- joining ---------------------------------------------------------------------------

    def on_fetch(self, partition: Partition, follower: BrokerId) -> None:
        """The follower's progress was noted just now."""
        progress = partition.followers.get(follower)
        if progress is None or self._must_rest(partition):
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

    def _must_rest(self, partition: Partition) -> bool:
        if self.changes is None or partition.proposal is not None:
            return True
        return self._now_ms() < self._not_before_ms.get(partition.tp, 0)

    def _is_alive(self, partition: Partition, follower: BrokerId) -> bool:
        """In the life that has fetched: a later one may have lost what this one had (KIP-903)."""
        node = self._metadata.brokers.get(follower)
        fetched_as = partition.followers[follower].broker_epoch
        return node is not None and fetched_as in (NO_BROKER_EPOCH, node.epoch)

    # -- leaving ---------------------------------------------------------------------------

    def _on_update(self, update: UpdateMetadataRequest) -> None:
        """A broker that stops follows until it has handed over, and looks as if it kept up for long
        after it is gone: what is acknowledged would wait for it."""
        if update.brokers is None:
            return
        for partition in list(self._led.values()):
            gone = [
                each
                for each in partition.followers
                if each not in partition.state.in_sync and not self._is_alive(partition, each)
            ]
            if gone:
                partition.forget_ends(gone, self._now_ms())
                self._on_changed(partition)

    def _set_timer(self) -> None:
        if self._led and self._timer is None:
            pause_ms = max(MIN_CHECK_MS, self._limits().max_ms // 2)
            self._timer = self._timers.add(self._now_ms() + pause_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        limits, now_ms = self._limits(), self._now_ms()
        for partition in list(self._led.values()):
            partition.update_catching_up(limits, now_ms)
            if not self._must_rest(partition):
                self._drop_laggards(partition, limits, now_ms)
            self._on_changed(partition)
        self._set_timer()

    def _drop_laggards(self, partition: Partition, limits: LagLimits, now_ms: int) -> None:
        wanted = without_laggards(
            partition.state,
            partition.followers,
            leader_end_offset=partition.log_end_offset,
            limits=limits,
            now_ms=now_ms,
        )
        if wanted != partition.state.in_sync:
            self._propose(partition, wanted)

    # -- asking ----------------------------------------------------------------------------

    def _propose(self, partition: Partition, wanted: Members) -> None:
        self._ask(partition, partition.propose(wanted))

    def _ask(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        if partition.proposal is proposal and self.changes is not None:
            self.changes.propose(proposal, partial(self._on_answer, partition, proposal))

    def _on_answer(
        self, partition: Partition, proposal: AlterPartitionProposal, answer: AlterPartitionResult
    ) -> None:
        if partition.proposal is not proposal:
            return  # an order came first, and says all there is to know
        code, stored = answer
        if stored is not None and partition.try_adopt(stored):
            self._on_changed(partition)
        elif code in _REFUSED:
            self._not_before_ms[partition.tp] = self._now_ms() + REFUSED_MS
            partition.withdraw()
            self._on_changed(partition)
        elif code not in _OUTDATED:
            again = partial(self._ask, partition, proposal)
            self._timers.add(self._now_ms() + RETRY_MS, again)
