"""One led partition of `__consumer_offsets`: its groups and offsets, and the order of its commands.

A command decides on the state, its records go to the log and are replayed, its answers leave when
they are committed. Owned by the event loop; nothing here awaits but loading. Invariant: the state
is what a replay of the log would give, but for what is soft, which a reload forgets.
"""

import asyncio
import traceback
from collections.abc import Callable, Sequence, Set
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from penstock.groups.answers import Answers, Failed, Write
from penstock.groups.batches import TooLarge, build_batches
from penstock.groups.config import GroupConfig
from penstock.groups.error_codes import answer_code
from penstock.groups.loading import LoadStopped, load
from penstock.groups.outcome import LATER, CancelTimer, Outcome, SetTimer, TimerKey, Waiter
from penstock.groups.ports import NOT_WRITTEN, OffsetsLog, Timers, Topics
from penstock.groups.records import GroupRecord
from penstock.groups.state import ShardState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import NO_PRODUCER_ID
from penstock.model.values import dataclass
from penstock.protocol.compression import Codec
from penstock.waiting.timing_wheel import Timer

Answer = TypeVar("Answer")

# Decides; gets who waits for the answer and the wall clock's time.
Command = Callable[[ShardState, Waiter, int], Outcome[Answer]]

NOBODY = Waiter(0)  # waits for what a timer does
GROUPS_A_SWEEP = 200  # looked through for expired offsets in one turn of the loop


class Status(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    GONE = "gone"  # led by another broker, or by a later shard of this one


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every shard of a broker shares."""

    log: OffsetsLog
    topics: Topics
    timers: Timers
    wall_ms: Callable[[], int]
    config: Callable[[], GroupConfig]
    report: Callable[[str], None]
    load_again: Callable[["Shard"], None]


class Shard:
    def __init__(self, partition: int, around: Surroundings) -> None:
        self.partition = partition
        self.status = Status.LOADING
        self.term = around.log.find_term(partition)  # of leading, which this shard is good for
        self._around = around
        self._answers = Answers(asyncio.get_running_loop().create_future)
        self._timers: dict[str, dict[TimerKey, Timer[Callable[[], None]]]] = {}  # by group
        self._sweep: Timer[Callable[[], None]] | None = None
        self._gone_topics: set[str] = set()  # deleted while it was loaded
        self._written_end = 0  # everything of ours in the log is below
        self.state = self._new_state()

    def _new_state(self) -> ShardState:
        return ShardState(topics=self._around.topics, config=self._around.config)

    @property
    def is_led(self) -> bool:
        """Whether it is still the same time of leading: another broker may have written since."""
        term = self._around.log.find_term(self.partition)
        return term is not None and term is self.term

    @property
    def waiting(self) -> int:
        return self._answers.waiting

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

    def _carry_out(self, outcome: Outcome[Any], waiter: Waiter) -> ErrorCode:
        """NONE, or why nothing of it was written."""
        if outcome.records:
            code = self._write(outcome.records)
            if code is not ErrorCode.NONE:
                return code
        for change in outcome.timers:
            self._change_timer(change)
        if outcome.answer is not LATER or outcome.replies:
            self._keep_order()
        if outcome.answer is not LATER:
            self._answers.answer(waiter, outcome.answer)
        for reply in outcome.replies:
            self._answers.answer(reply.to, reply.answer)
        return ErrorCode.NONE

    def _give_up(
        self, outcome: Outcome[Any], waiter: Waiter, code: ErrorCode, *, is_soft: bool
    ) -> None:
        if is_soft:
            self.reload(code)
            return
        self._answers.fail(waiter, code)
        for reply in outcome.replies:
            self._answers.fail(reply.to, code)

    # -- writing ---------------------------------------------------------------------------

    def _write(self, records: Sequence[GroupRecord]) -> ErrorCode:
        around, log = self._around, self._around.log
        if not self.is_led:
            return ErrorCode.NOT_COORDINATOR
        try:
            batches = build_batches(
                records,
                now_ms=around.wall_ms(),
                max_bytes=log.max_batch_bytes(self.partition),
                codec=Codec(around.config().offsets_topic_compression_codec),
            )
        except TooLarge as error:
            around.report(f"{self}: {error}")
            return answer_code(ErrorCode.MESSAGE_TOO_LARGE)
        write = self._answers.begin()
        base_offset, code = log.append(
            self.partition,
            batches,
            timeout_ms=around.config().offsets_commit_timeout_ms,
            done=partial(self._on_written, write),
        )
        if base_offset == NOT_WRITTEN:
            assert code is not None
            self._answers.withdraw(write)
            return answer_code(code)
        self._replay(records, base_offset)
        if code is not None:
            self._on_written(write, code)
        return ErrorCode.NONE

    def _replay(self, records: Sequence[GroupRecord], base_offset: int) -> None:
        for offset, record in enumerate(records, base_offset):
            self.state.replay(record, offset=offset, producer_id=NO_PRODUCER_ID)
        self._written_end = base_offset + len(records)

    def _on_written(self, write: Write, code: ErrorCode) -> None:
        self._answers.end(write, answer_code(code))

    def _keep_order(self) -> None:
        """An answer shows what is written: it waits where a write of before has not got through
        and nobody waits for it any more."""
        ends = self._around.log.ends
        if self._answers.is_writing or not self._written_end or not self.is_led:
            return
        if ends(self.partition).committed >= self._written_end:
            return
        write = self._answers.begin()
        self._around.log.when_committed(
            self.partition,
            self._written_end,
            timeout_ms=self._around.config().offsets_commit_timeout_ms,
            done=partial(self._on_written, write),
        )

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

    def _is_active(self) -> bool:
        return self.status is Status.ACTIVE

    # -- loading and ending ----------------------------------------------------------------

    async def load(self) -> None:
        """Active when it returns, or gone where it is not led any more."""
        ends = self._around.log.ends(self.partition)
        if ends.start < ends.end:
            try:
                self._written_end = await load(
                    self.partition,
                    self.state,
                    log=self._around.log,
                    chunk_bytes=self._around.config().offsets_load_buffer_bytes,
                    is_wanted=lambda: self.status is Status.LOADING and self.is_led,
                    report=lambda line: self._around.report(f"{self}: {line}"),
                )
            except (LoadStopped, Refusal) as stop:
                if isinstance(stop, Refusal):
                    self._around.report(f"{self} cannot be loaded: {stop}")
                self.end(ErrorCode.NOT_COORDINATOR)
                return
        self.activate()

    def activate(self) -> None:
        assert self.status is Status.LOADING
        self.status = Status.ACTIVE
        self._sweep_later()
        self._decide(lambda state, _, now_ms: state.on_loaded(now_ms), NOBODY, is_soft=True)
        gone, self._gone_topics = self._gone_topics, set()
        if gone and self._is_active():
            self.delete_of_topics(gone)

    def delete_of_topics(self, topics: Set[str]) -> None:
        """Now, or when it is loaded."""
        if self._is_active():
            gone = frozenset(topics)
            self._decide(lambda state, _, now: state.delete_of_topics(gone), NOBODY, is_soft=False)
        else:
            self._gone_topics |= topics

    def reload(self, code: ErrorCode) -> None:
        """Forget what is soft. Whoever waits is told the code, and may come again."""
        if self.status is Status.GONE:
            return
        self._cancel_timers()
        self.state = self._new_state()
        self.status = Status.LOADING
        self._answers.fail_all(code)
        self._around.load_again(self)

    def end(self, code: ErrorCode) -> None:
        """For good."""
        self.status = Status.GONE
        self._cancel_timers()
        self._answers.fail_all(code)

    def __str__(self) -> str:
        return f"__consumer_offsets-{self.partition}"
