"""One led partition of `__consumer_offsets`: its groups and offsets, and the order of its commands.

A command decides on the state, its records go to the log and are replayed, its answers leave when
they are committed. Owned by the event loop; nothing here awaits but loading. Invariant: the state
is what a replay of the log would give, but for what is soft, which a reload forgets.
"""

import asyncio
import traceback
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.record_batches import Entry, OffsetsLoader, build_batches
from penstock.coordinators.group.records import GroupRecord
from penstock.coordinators.group.result import LATER, CancelTimer, GroupResult, SetTimer, TimerKey
from penstock.coordinators.group.state import GroupShardState
from penstock.coordinators.runtime.coordinator_shard import CoordinatorShard, Status
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers, Report
from penstock.coordinators.runtime.error_codes import answer_code
from penstock.coordinators.runtime.pending_replies import Failed, Waiter
from penstock.coordinators.runtime.record_batches import TooLarge, WrittenBy
from penstock.model.errors import ErrorCode
from penstock.model.markers import TransactionMarker
from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch
from penstock.purgatory.timing_wheel import Timer

Answer = TypeVar("Answer")

# Decides; gets who waits for the answer and the wall clock's time.
Command = Callable[[GroupShardState, Waiter, int], GroupResult[Answer]]

NOBODY = Waiter(0)  # waits for what a timer does
GROUPS_A_SWEEP = 200  # looked through for expired offsets in one turn of the loop


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDependencies:
    """What every shard of a broker shares."""

    log: CoordinatorLog
    topics: Topics
    timers: CoordinatorTimers
    wall_ms: Callable[[], int]
    config: Callable[[], GroupConfig]
    report: Callable[[str], None]
    load_again: Callable[["GroupShard"], None]


class GroupShard(CoordinatorShard[GroupShardState]):
    def __init__(self, partition: int, around: GroupDependencies) -> None:
        self._around = around
        self._timers: dict[str, dict[TimerKey, Timer[Callable[[], None]]]] = {}  # by group
        self._sweep: Timer[Callable[[], None]] | None = None
        self._gone_topics: set[str] = set()  # deleted while it was loaded
        super().__init__(partition, around)

    def groups_with_timers(self) -> set[str]:
        return set(self._timers)

    # -- commands --------------------------------------------------------------------------

    def run(
        self, command: Command[Answer], *, group: str | None = None, is_soft: bool
    ) -> "asyncio.Future[Answer | Failed]":
        """Its answer. `is_soft`: it may change what only memory knows of the group."""
        assert self.status is Status.ACTIVE, f"shard {self.partition} is {self.status.value}"
        waiter, future = self._answers.open()
        self._decide(command, waiter, group=group, is_soft=is_soft)
        return future

    def _decide(
        self, command: Command[Any], waiter: Waiter, *, group: str | None = None, is_soft: bool
    ) -> None:
        try:
            outcome = command(self.state, waiter, self._around.wall_ms())
            code = self._carry_out(outcome, waiter)
        except Exception:
            # What it has left half done is not to be trusted; the log is.
            self._around.report(
                f"a command to the groups of {self} failed in a way that was not foreseen; they "
                f"are loaded anew\n{traceback.format_exc()}"
            )
            self.reload(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if code is not ErrorCode.NONE:
            self._give_up(outcome, waiter, code, is_soft=is_soft)
        elif group is not None:
            self.state.drop_if_vacant(group)

    def _carry_out(self, outcome: GroupResult[Any], waiter: Waiter) -> ErrorCode:
        """NONE, or why nothing of it was written."""
        if outcome.records:
            code = self._write(outcome.records, outcome.written_by)
            if code is not ErrorCode.NONE:
                return code
        for change in outcome.timers:
            self._change_timer(change)
        if outcome.answer is not LATER or outcome.replies:
            self._keep_order(timeout_ms=self._commit_timeout_ms())
        if outcome.answer is not LATER:
            self._answers.answer(waiter, outcome.answer)
        for reply in outcome.replies:
            self._answers.answer(reply.to, reply.answer)
        return ErrorCode.NONE

    def _give_up(
        self, outcome: GroupResult[Any], waiter: Waiter, code: ErrorCode, *, is_soft: bool
    ) -> None:
        if is_soft:
            self.reload(code)
            return
        self._answers.fail(waiter, code)
        for reply in outcome.replies:
            self._answers.fail(reply.to, code)

    # -- writing ---------------------------------------------------------------------------

    def _write(self, records: Sequence[GroupRecord], written_by: WrittenBy) -> ErrorCode:
        around = self._around
        if not self.is_led:
            return ErrorCode.NOT_COORDINATOR
        try:
            batches = build_batches(
                records,
                now_ms=around.wall_ms(),
                max_bytes=around.log.max_batch_bytes(self.partition),
                codec=Codec(around.config().offsets_topic_compression_codec),
                written_by=written_by,
            )
        except TooLarge as error:
            around.report(f"{self}: {error}")
            return answer_code(ErrorCode.MESSAGE_TOO_LARGE)
        return self._append(
            batches,
            partial(self._replay, records, written_by.producer_id),
            timeout_ms=self._commit_timeout_ms(),
        )

    def _replay(self, records: Sequence[GroupRecord], producer_id: int, base_offset: int) -> int:
        for offset, record in enumerate(records, base_offset):
            self.state.replay(record, offset=offset, producer_id=producer_id)
        return base_offset + len(records)

    def end_transaction(self, marker: TransactionMarker) -> "asyncio.Future[ErrorCode | Failed]":
        """Written now; NONE when it is committed. The offsets of the transaction count or go."""
        assert self.status is Status.ACTIVE, f"shard {self.partition} is {self.status.value}"
        waiter, future = self._answers.open()
        batch = build_end_marker_batch(
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._around.wall_ms(),
        )
        code = self._append(
            [batch], partial(self._replay_end, marker), timeout_ms=self._commit_timeout_ms()
        )
        if code is ErrorCode.NONE:
            self._keep_order(timeout_ms=self._commit_timeout_ms())
            self._answers.answer(waiter, ErrorCode.NONE)
        else:
            self._answers.fail(waiter, code)
        return future

    def _replay_end(self, marker: TransactionMarker, offset: int) -> int:
        self.state.end_transaction(marker.producer_id, commit=marker.commit)
        return offset + 1

    def _commit_timeout_ms(self) -> int:
        return self._around.config().offsets_commit_timeout_ms

    # -- timers ----------------------------------------------------------------------------

    def _change_timer(self, change: SetTimer | CancelTimer) -> None:
        of_group = self._timers.setdefault(change.key.group, {})
        known = of_group.pop(change.key, None)
        if known is not None:
            self._around.timers.cancel(known)
        if isinstance(change, SetTimer):
            due = partial(self._on_timer, change.key)
            of_group[change.key] = self._around.timers.add_after(change.delay_ms, due)
        elif not of_group:
            del self._timers[change.key.group]

    def _on_timer(self, key: TimerKey) -> None:
        del self._timers[key.group][key]
        if not self._timers[key.group]:
            del self._timers[key.group]
        self._decide(
            lambda state, _, now_ms: state.on_timer(key, now_ms),
            NOBODY,
            group=key.group,
            is_soft=True,
        )

    def _cancel_timers(self) -> None:
        for of_group in self._timers.values():
            for timer in of_group.values():
                self._around.timers.cancel(timer)
        self._timers.clear()
        if self._sweep is not None:
            self._around.timers.cancel(self._sweep)
            self._sweep = None

    # -- expiry ----------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        delay_ms = self._around.config().offsets_retention_check_interval_ms
        self._sweep = self._around.timers.add_after(delay_ms, self._begin_sweep)

    def _begin_sweep(self) -> None:
        self._go_on_sweeping(self.state.group_names())

    def _go_on_sweeping(self, groups: list[str]) -> None:
        """Some groups a turn. What cannot be written now is looked at again next time."""
        some, rest = groups[:GROUPS_A_SWEEP], groups[GROUPS_A_SWEEP:]
        self._decide(lambda state, _, now_ms: state.expire(some, now_ms), NOBODY, is_soft=False)
        if not self._is_active():
            return
        if rest:
            self._sweep = self._around.timers.add_after(0, partial(self._go_on_sweeping, rest))
        else:
            self._sweep_later()

    # -- its life --------------------------------------------------------------------------

    def _new_state(self) -> GroupShardState:
        return GroupShardState(topics=self._around.topics, config=self._around.config)

    def _new_reader(self, report: Report) -> OffsetsLoader:
        return OffsetsLoader(report)

    def _take(self, entry: Entry) -> None:
        self.state.take(entry)

    def _chunk_bytes(self) -> int:
        return self._around.config().offsets_load_buffer_bytes

    def _begin(self) -> None:
        self._sweep_later()
        self._decide(lambda state, _, now_ms: state.on_loaded(now_ms), NOBODY, is_soft=True)
        gone, self._gone_topics = self._gone_topics, set()
        if gone and self._is_active():
            self.delete_of_topics(gone)

    def _forget(self) -> None:
        self._cancel_timers()

    def delete_of_topics(self, topics: Set[str]) -> None:
        """Now, or when it is loaded."""
        if self._is_active():
            gone = frozenset(topics)
            self._decide(lambda state, _, now: state.delete_of_topics(gone), NOBODY, is_soft=False)
        else:
            self._gone_topics |= topics

    def __str__(self) -> str:
        return f"__consumer_offsets-{self.partition}"
