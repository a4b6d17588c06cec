"""Planted bugs: each removes one rule of replication that some system once lacked.

A simulation that does not find them would not find others.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from penstock.client.data_calls import FetchFrom
from penstock.controller import reassignment, state_loader
from penstock.controller.state import ClusterState
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.metadata_store.election import ElectionResult
from penstock.metadata_store.interface import Operation
from penstock.model.cluster import BrokerId, ControllerRequest, PartitionState
from penstock.model.ids import NO_LEADER_EPOCH, Offset
from penstock.replication import follower_state as follower_state
from penstock.replication import isr as in_sync
from penstock.replication import partition as partition_module
from penstock.replication.delayed_produce import DelayedProduce
from penstock.replication.follower_progress import FollowerProgress
from penstock.replication.follower_state import FollowerState
from penstock.replication.partition import Partition
from penstock.replication.replica_manager import FollowerFetch, ReplicaManager
from penstock.server import replica_check
from penstock.storage.leader_epoch_cache import OffsetAndEpoch
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulation import incarnation

Planted = Callable[[], Any]  # returns a context manager that plants the bug


@contextmanager
def truncate_to_high_watermark() -> Iterator[None]:
    """KAFKA-1211: a follower truncates to its high watermark without consulting the leader."""
    add, ask = FollowerState._add, follower_state.fetch_from

    def cut(self: FollowerState, partition: Partition) -> None:
        add(self, partition)
        partition.log.truncate_to(partition.high_watermark, self._wall_ms())

    def ask_blindly(partition: Partition, max_bytes: int) -> FetchFrom:
        return ask(partition, max_bytes)._replace(last_fetched_epoch=NO_LEADER_EPOCH)

    with (
        patch.object(FollowerState, "_add", cut),
        patch.object(follower_state, "fetch_from", ask_blindly),
    ):
        yield


@contextmanager
def truncate_by_offset_alone() -> Iterator[None]:
    """KIP-101 without KIP-279: the leader's epoch is ignored, and the follower truncates only
    once."""
    ask = follower_state.fetch_from
    cut: set[tuple[Partition, int]] = set()

    def truncate(self: FollowerState, followed: Any, diverging: OffsetAndEpoch) -> None:
        partition = followed.partition
        offset = min(diverging.end_offset, partition.log_end_offset)
        cut.add((partition, partition.leader_epoch))
        self._truncate_to(followed, offset)

    def ask_once(partition: Partition, max_bytes: int) -> FetchFrom:
        request = ask(partition, max_bytes)
        if (partition, partition.leader_epoch) in cut:
            return request._replace(last_fetched_epoch=NO_LEADER_EPOCH)
        return request

    with (
        patch.object(FollowerState, "_truncate", truncate),
        patch.object(follower_state, "fetch_from", ask_once),
    ):
        yield


@contextmanager
def join_at_high_watermark() -> Iterator[None]:
    """KAFKA-7128."""

    def may_join(
        progress: FollowerProgress, *, high_watermark: Offset, epoch_start_offset: Offset
    ) -> bool:
        return progress.end_offset >= high_watermark

    with patch.object(in_sync, "may_join", may_join):
        yield


@contextmanager
def acknowledge_before_replication() -> Iterator[None]:
    """A write is acknowledged when only the leader has it."""
    with patch.object(DelayedProduce, "is_satisfied", lambda self: True):
        yield


@contextmanager
def no_controller_epoch_check() -> Iterator[None]:
    """KAFKA-6082: a deposed controller still writes."""

    def unfenced(self: ElectionResult, operations: Sequence[Operation]) -> list[Operation]:
        return list(operations)

    with patch.object(ElectionResult, "fence", unfenced):
        yield


@contextmanager
def high_watermark_from_any_fetch() -> Iterator[None]:
    """A fetch advances the follower's end offset whatever its epoch, even if the logs diverge."""

    def update(self: ReplicaManager, partition: Partition, fetch: FollowerFetch) -> None:
        partition.check_leader()
        end = min(fetch.offset, partition.log_end_offset)
        self.update_follower_end_offset(partition, fetch.follower, end, fetch.broker_epoch)

    with patch.object(ReplicaManager, "update_follower_fetch_state", update):
        yield


@contextmanager
def ignore_pending_proposal() -> Iterator[None]:
    """Without KIP-497: a pending proposal, which may be stored already, is ignored."""

    def stored_alone(
        stored: tuple[BrokerId, ...], proposed: tuple[BrokerId, ...] | None
    ) -> tuple[BrokerId, ...]:
        return (
            stored if proposed is None else tuple(broker for broker in stored if broker in proposed)
        )

    with patch.object(partition_module, "maximal", stored_alone):
        yield


@contextmanager
def fetch_before_flush() -> Iterator[None]:
    """A follower of a synchronous topic fetches again before its records are flushed."""
    keep_durable = ReplicaManager.keep_durable

    def keep(self: ReplicaManager, partition: Partition) -> None:
        if partition.leadership is not None:
            keep_durable(self, partition)

    with patch.object(ReplicaManager, "keep_durable", keep):
        yield


@contextmanager
def apply_late_duplicates() -> Iterator[None]:
    """A controller request is applied whenever it arrives, even after newer ones."""

    handle = ControllerRequestHandler.handle

    def handle_any(self: ControllerRequestHandler, sent: ControllerRequest) -> None:
        self._last = self._last._replace(number=0)
        handle(self, sent)

    with patch.object(ControllerRequestHandler, "handle", handle_any):
        yield


@contextmanager
def lead_again_in_the_same_epoch() -> Iterator[None]:
    """A leader that restarted without an active controller stays leader in the same epoch."""
    with patch.object(state_loader, "find_restarted", lambda stored: {}):
        yield


@contextmanager
def elect_despite_reports() -> Iterator[None]:
    """A replica that reported that it lost its log leads as if it had all records."""
    with patch.object(ClusterState, "incomplete_replicas", lambda self, tp: {}):
        yield


@contextmanager
def trust_any_disk() -> Iterator[None]:
    """A broker with an older copy of its disk does not compare its incarnation with the registered
    one."""
    with patch.object(incarnation, "find_outdated", lambda numbers, *, latest: []):
        yield


@contextmanager
def trust_short_logs() -> Iterator[None]:
    """A log that ends below its checkpointed high watermark counts as complete."""
    with patch.object(SegmentedEngine, "short", lambda self: {}):
        yield


@contextmanager
def forget_reports_at_restart() -> Iterator[None]:
    """A broker that restarts before the controller has decided forgets its earlier report of lost
    data."""
    merge = replica_check.merge_reports

    def merge_nothing(earlier: Any, *others: Any) -> Any:
        return merge({}, *others)

    with patch.object(incarnation, "merge_reports", merge_nothing):
        yield


@contextmanager
def finish_before_caught_up() -> Iterator[None]:
    """A reassignment finishes as soon as it has begun: old replicas leave before new ones are in
    sync."""
    with patch.object(reassignment, "_is_caught_up", lambda partition: partition.leader >= 0):
        yield


@contextmanager
def drop_overtaken_replicas() -> Iterator[None]:
    """A LeaderAndIsr request that an AlterPartition response has overtaken is dropped, with the
    new replica that it brings."""
    with patch.object(Partition, "try_take_replicas", lambda self, late, now_ms: False):
        yield


@contextmanager
def forget_proposals() -> Iterator[None]:
    """A LeaderAndIsr request with the leader's own partition epoch takes back the proposal that is
    in flight, although the controller may have stored it."""

    def takes_nothing(self: Partition, late: PartitionState, now_ms: int) -> bool:
        if late.partition_epoch == self.state.partition_epoch and late != self.state:
            self.lead(late, now_ms)
        return False

    with patch.object(Partition, "try_take_replicas", takes_nothing):
        yield


@contextmanager
def keep_stray_replicas() -> Iterator[None]:
    """A broker that returns keeps the replicas that others have taken over."""
    with patch.object(ControllerRequestHandler, "_find_strays", lambda self: iter(())):
        yield


BALANCED_MUTANTS: dict[Planted, int] = {  # for clusters that balance, each with a seed
    finish_before_caught_up: 0,
    drop_overtaken_replicas: 9,
    forget_proposals: 126,
    keep_stray_replicas: 0,
}

LOST_DATA_MUTANTS: dict[Planted, int] = {  # for runs that lose data, each with a seed that shows it
    elect_despite_reports: 0,
    trust_any_disk: 100,
    trust_short_logs: 13,
    forget_reports_at_restart: 60,
}

MUTANTS: dict[Planted, int] = {  # each with a seed that shows it
    truncate_to_high_watermark: 1,
    truncate_by_offset_alone: 1,
    join_at_high_watermark: 395,
    acknowledge_before_replication: 0,
    no_controller_epoch_check: 12,
    high_watermark_from_any_fetch: 6,
    ignore_pending_proposal: 0,
    fetch_before_flush: 21,
    lead_again_in_the_same_epoch: 475,
    apply_late_duplicates: 58,
}
