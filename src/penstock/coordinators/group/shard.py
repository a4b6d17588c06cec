"""One led partition of `__consumer_offsets`: its groups and committed offsets.

`CoordinatorShard` runs the commands; this adds encoding, timers of groups, offset expiry and the
markers of transactions. Owned by the event loop.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Any, cast

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.member_bytes import MemberBudget
from penstock.coordinators.group.record_batches import Entry, OffsetsLoader, build_batches
from penstock.coordinators.group.records import GroupRecord
from penstock.coordinators.group.state import GroupShardState
from penstock.coordinators.group.timer_key import TimerKey
from penstock.coordinators.runtime.coordinator_shard import (
    CoordinatorShard,
    ShardDependencies,
    Sweep,
)
from penstock.coordinators.runtime.dependencies import Report
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.coordinators.runtime.result import CoordinatorResult, Waiter
from penstock.model.errors import ErrorCode
from penstock.model.markers import TransactionMarker
from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDependencies(ShardDependencies):
    """Shared by all shards of the coordinator."""

    topics: Topics
    config: Callable[[], GroupConfig]
    budget: MemberBudget


class GroupShard(CoordinatorShard[GroupShardState, GroupRecord]):
    def __init__(self, partition: int, dependencies: GroupDependencies) -> None:
        self._dependencies = dependencies
        self._deleted_topics: set[str] = set()  # while the shard was loading
        self._expiry_sweep = Sweep(
            "expire offsets",
            lambda: dependencies.config().offsets_retention_check_interval_ms,
            lambda: self.state.group_names(),
            lambda names, now_ms: self.state.expire(names, now_ms),
        )
        super().__init__(partition, dependencies)

    def groups_with_timers(self) -> set[str]:
        return {key.group for key in self._timers.active_keys() if isinstance(key, TimerKey)}

    def end_transaction(self, marker: TransactionMarker) -> "asyncio.Future[ErrorCode | Failed]":
        """Written when this returns; NONE when it is committed. Replaying the marker commits or
        drops the transaction's offsets."""
        return self.run(lambda *_: CoordinatorResult(reply=ErrorCode.NONE, end_marker=marker))

    def abandon_join(self, group: str, waiter: Waiter) -> None:
        """The connection of this request has closed. Waiters are the shard's own."""
        if self.is_active:
            self._execute(
                lambda state, _, now_ms: state.abandon_join(group, waiter, now_ms),
                is_volatile=True,
            )

    def abandon_pending(self, group: str, member: str) -> None:
        """Like `abandon_join`, for a member that was only given an id."""
        if self.is_active:
            self._execute(
                lambda state, _, now_ms: state.abandon_pending(group, member, now_ms),
                is_volatile=True,
            )

    def delete_of_topics(self, topics: Set[str]) -> None:
        """Delete them now, or after loading."""
        if self.is_active:
            deleted = frozenset(topics)
            self._execute(lambda state, _, now_ms: state.delete_of_topics(deleted))
        else:
            self._deleted_topics |= topics

    # -- writing ---------------------------------------------------------------------------

    def _build_batches(self, result: CoordinatorResult[Any, GroupRecord]) -> Sequence[bytearray]:
        dependencies, marker = self._dependencies, result.end_marker
        if marker is not None:
            batch = build_end_marker_batch(
                commit=marker.commit,
                coordinator_epoch=marker.coordinator_epoch,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                timestamp_ms=dependencies.wall_ms(),
            )
            return (batch,)
        return build_batches(
            result.records,
            now_ms=dependencies.wall_ms(),
            max_bytes=dependencies.log.max_batch_bytes(self.partition),
            codec=Codec(dependencies.config().offsets_topic_compression_codec),
            written_by=result.written_by,
        )

    def _replay(self, result: CoordinatorResult[Any, GroupRecord], base_offset: int) -> int:
        if result.end_marker is not None:
            marker = result.end_marker
            self.state.end_transaction(marker.producer_id, commit=marker.commit)
            return base_offset + 1
        producer_id = result.written_by.producer_id
        for offset, record in enumerate(result.records, base_offset):
            self.state.replay(record, offset=offset, producer_id=producer_id)
        return base_offset + len(result.records)

    def _write_timeout_ms(self) -> int:
        return self._dependencies.config().offsets_commit_timeout_ms

    # -- timers, loading, ending -----------------------------------------------------------

    def _on_timer(self, key: Hashable) -> None:
        timer_key = cast("TimerKey", key)
        self._execute(lambda state, _, now_ms: state.on_timer(timer_key, now_ms), is_volatile=True)

    def _new_state(self) -> GroupShardState:
        dependencies = self._dependencies
        return GroupShardState(
            topics=dependencies.topics, config=dependencies.config, budget=dependencies.budget
        )

    def _forget_volatile(self) -> None:
        self.state.release_memory()

    def _new_reader(self, report: Report) -> OffsetsLoader:
        return OffsetsLoader(report)

    def _load_entry(self, entry: Entry) -> None:
        self.state.load(entry)

    def _chunk_bytes(self) -> int:
        return self._dependencies.config().offsets_load_buffer_bytes

    def _on_active(self) -> None:
        self._sweep_later(self._expiry_sweep)
        self._execute(lambda state, _, now_ms: state.on_loaded(now_ms), is_volatile=True)
        deleted, self._deleted_topics = self._deleted_topics, set()
        if deleted and self.is_active:
            self.delete_of_topics(deleted)

    def __str__(self) -> str:
        return f"__consumer_offsets-{self.partition}"
