"""Planted bugs: each takes one rule of replication away, as systems before us did without it.

A simulation that does not find them would not find others.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from penstock.client.data_calls import FetchFrom
from penstock.controller import state_loader as load
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.metadata_store.election import ElectionResult
from penstock.metadata_store.interface import Operation
from penstock.model.cluster import BrokerId, ControllerRequest
from penstock.model.ids import NO_LEADER_EPOCH, Offset
from penstock.replication import follower_state as following
from penstock.replication import isr as in_sync
from penstock.replication import partition as partition_room
from penstock.replication.delayed_produce import DelayedProduce
from penstock.replication.follower_progress import FollowerProgress
from penstock.replication.follower_state import FollowerState
from penstock.replication.partition import Partition
from penstock.replication.replica_manager import FollowerFetch, ReplicaManager
from penstock.storage.leader_epoch_cache import EpochEndOffset

Planted = Callable[[], Any]  # makes a context in which the bug is there


@contextmanager
def truncate_to_high_watermark() -> Iterator[None]:
    """KAFKA-1211: who follows cuts to what it knows to be committed, and asks no more."""
    take_up, ask = FollowerState._take_up, following.fetch_from

    def cut(self: FollowerState, partition: Partition) -> None:
        take_up(self, partition)
        partition.log.truncate_to(partition.high_watermark, self._wall_ms())

    def ask_blindly(partition: Partition, max_bytes: int) -> FetchFrom:
        return ask(partition, max_bytes)._replace(last_fetched_epoch=NO_LEADER_EPOCH)

    with (
        patch.object(FollowerState, "_take_up", cut),
        patch.object(following, "fetch_from", ask_blindly),
    ):
        yield


@contextmanager
def truncate_by_offset_alone() -> Iterator[None]:
    """KIP-101 without KIP-279: the leader's epoch is not looked at, and nobody asks again."""
    ask = following.fetch_from
    cut: set[tuple[Partition, int]] = set()

    def truncate(self: FollowerState, followed: Any, diverging: EpochEndOffset) -> None:
        partition = followed.partition
        offset = min(diverging.end_offset, partition.log_end_offset)
        cut.add((partition, partition.leader_epoch))
        self._cut(followed, offset)

    def ask_once(partition: Partition, max_bytes: int) -> FetchFrom:
        asked = ask(partition, max_bytes)
        if (partition, partition.leader_epoch) in cut:
            return asked._replace(last_fetched_epoch=NO_LEADER_EPOCH)
        return asked

    with (
        patch.object(FollowerState, "_truncate", truncate),
        patch.object(following, "fetch_from", ask_once),
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
def acknowledge_before_in_sync() -> Iterator[None]:
    """A write is answered when the leader alone has it."""
    with patch.object(DelayedProduce, "is_satisfied", lambda self: True):
        yield


@contextmanager
def no_controller_epoch_check() -> Iterator[None]:
    """KAFKA-6082: a controller that was replaced still writes."""

    def unfenced(self: ElectionResult, operations: Sequence[Operation]) -> list[Operation]:
        return list(operations)

    with patch.object(ElectionResult, "fence", unfenced):
        yield


@contextmanager
def high_watermark_from_any_fetch() -> Iterator[None]:
    """A fetch counts whatever its epoch, and whether the logs agree below it."""

    def update(self: ReplicaManager, partition: Partition, fetch: FollowerFetch) -> None:
        partition.check_leader()
        end = min(fetch.offset, partition.log_end_offset)
        self.update_follower_end_offset(partition, fetch.follower, end, fetch.broker_epoch)

    with patch.object(ReplicaManager, "update_follower_fetch_state", update):
        yield


@contextmanager
def commit_over_the_stored_set() -> Iterator[None]:
    """Without KIP-497: a proposal that may be stored already does not count until it is known."""

    def stored_alone(
        stored: tuple[BrokerId, ...], proposed: tuple[BrokerId, ...] | None
    ) -> tuple[BrokerId, ...]:
        return (
            stored if proposed is None else tuple(broker for broker in stored if broker in proposed)
        )

    with patch.object(partition_room, "maximal", stored_alone):
        yield


@contextmanager
def vouch_before_the_flush() -> Iterator[None]:
    """A follower of a synchronous topic asks on while what it got is in memory only."""
    keep_durable = ReplicaManager.keep_durable

    def keep(self: ReplicaManager, partition: Partition) -> None:
        if partition.leadership is not None:
            keep_durable(self, partition)

    with patch.object(ReplicaManager, "keep_durable", keep):
        yield


@contextmanager
def take_late_copies() -> Iterator[None]:
    """A request is applied whenever it arrives, even after newer ones."""

    handle = ControllerRequestHandler.handle

    def handle_any(self: ControllerRequestHandler, sent: ControllerRequest) -> None:
        self._last = self._last._replace(number=0)
        handle(self, sent)

    with patch.object(ControllerRequestHandler, "handle", handle_any):
        yield


@contextmanager
def lead_again_in_the_same_epoch() -> Iterator[None]:
    """A leader that came back while there was no controller goes on, without what it has lost."""
    with patch.object(load, "find_restarted", lambda stored: {}):
        yield


MUTANTS: dict[Planted, int] = {  # with a seed that shows it
    truncate_to_high_watermark: 1,
    truncate_by_offset_alone: 1,
    join_at_high_watermark: 395,
    acknowledge_before_in_sync: 0,
    no_controller_epoch_check: 12,
    high_watermark_from_any_fetch: 6,
    commit_over_the_stored_set: 0,
    vouch_before_the_flush: 21,
    lead_again_in_the_same_epoch: 475,
    take_late_copies: 58,
}
