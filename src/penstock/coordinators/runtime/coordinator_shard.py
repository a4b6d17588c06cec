"""One led partition of a coordinator's topic: its state and the one path of its commands.

A command decides on the state; its records are appended and replayed at once; replies leave when
they are committed. The coordinator defines the commands. Owned by the event loop; only loading
awaits. Invariant: the state is what a replay of the log gives, plus volatile parts that a reload
forgets.
"""

import asyncio
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple

from penstock.coordinators.runtime.dependencies import (
    NOT_WRITTEN,
    CoordinatorLog,
    CoordinatorTimers,
    Report,
)
from penstock.coordinators.runtime.error_codes import to_client_error
from penstock.coordinators.runtime.loader import LoadStopped, Reader, load
from penstock.coordinators.runtime.pending_replies import Failed, PendingReplies, PendingWrite
from penstock.coordinators.runtime.record_batches import TooLarge
from penstock.coordinators.runtime.result import (
    LATER,
    NOBODY,
    Command,
    CoordinatorNote,
    CoordinatorResult,
    RecordType,
    ReplyType,
    SetTimer,
    State,
    Waiter,
)
from penstock.coordinators.runtime.shard_timers import ShardTimers
from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.model.errors import ErrorCode, Refusal

NAMES_PER_SWEEP_STEP = 200  # looked at in one iteration of the event loop


class Status(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    GONE = "gone"  # led by another broker, or by a later shard of this one


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDependencies:
    """Shared by all shards of a coordinator."""

    log: CoordinatorLog
    timers: CoordinatorTimers
    wall_ms: Callable[[], int]
    logger: EventLogger
    notes: RateLimitedLogger  # of events that clients cause
    load_again: Callable[[Any], None]  # after a pause, if the shard is still the current one
    on_unexpected_error: Callable[[Any, str], None]  # the failure policy: counts, stops the broker


class Sweep(NamedTuple):
    """A periodic pass over names of the state, a few per iteration of the event loop."""

    purpose: str
    interval_ms: Callable[[], int]
    names: Callable[[], list[str]]
    decide: Callable[[list[str], int], CoordinatorResult[None, Any]]


class CoordinatorShard(ABC, Generic[State, RecordType]):
    def __init__(self, partition: int, dependencies: ShardDependencies) -> None:
        self.partition = partition
        self.status = Status.LOADING
        self.leadership = dependencies.log.find_leadership(partition)  # this shard's only one
        self.leader_epoch = -1  # the latest of that leadership
        self.errors_in_a_row = 0  # unexpected ones, since a client's command last succeeded
        self._shared = dependencies
        self._replies = PendingReplies(asyncio.get_running_loop().create_future)
        self._timers = ShardTimers(dependencies.timers)
        self._written_end = 0  # all our records lie below this offset
        self.state = self._new_state()

    # -- what a coordinator adds -----------------------------------------------------------

    @abstractmethod
    def _new_state(self) -> State: ...

    @abstractmethod
    def _new_reader(self, report: Report) -> Reader[Any]: ...

    @abstractmethod
    def _load_entry(self, entry: Any) -> None:
        """Replays one entry of the reader."""

    @abstractmethod
    def _build_batches(self, result: CoordinatorResult[Any, RecordType]) -> Sequence[bytearray]:
        """TooLarge: a record does not fit."""

    @abstractmethod
    def _replay(self, result: CoordinatorResult[Any, RecordType], base_offset: int) -> int:
        """Replay the records into the state; returns the offset after the last one."""

    @abstractmethod
    def _on_active(self) -> None:
        """The shard has just been loaded."""

    @abstractmethod
    def _chunk_bytes(self) -> int:
        """How much to read at a time while loading."""

    @abstractmethod
    def _write_timeout_ms(self) -> int: ...

    def _on_timer(self, key: Hashable) -> None:
        """A timer that a result has set fires."""
        raise AssertionError(f"{self} sets no timers")

    def _on_write_done(self, code: ErrorCode) -> None:
        """An append is committed, or its outcome is unknown."""

    def _forget_volatile(self) -> None:
        """The shard reloads or ends: drop what lives outside the state."""

    # -- queries ---------------------------------------------------------------------------

    @property
    def is_led(self) -> bool:
        """Whether the leadership is the same; after another, its broker may have written."""
        leadership = self._shared.log.find_leadership(self.partition)
        return leadership is not None and leadership is self.leadership

    @property
    def waiting(self) -> int:
        return self._replies.waiting

    @property
    def is_active(self) -> bool:
        return self.status is Status.ACTIVE

    # -- commands: decide, write, replay, reply --------------------------------------------

    def run(
        self, command: Command[State, ReplyType, RecordType], *, is_volatile: bool = False
    ) -> "asyncio.Future[ReplyType | Failed]":
        """`is_volatile`: the command may change volatile state, so if its write fails the shard
        reloads from the log."""
        assert self.is_active, f"shard {self} is {self.status.value}"
        waiter, future = self._replies.open()
        self._execute(command, waiter, is_volatile=is_volatile)
        return future

    def _execute(
        self,
        command: Command[State, Any, RecordType],
        waiter: Waiter = NOBODY,
        *,
        is_volatile: bool = False,
    ) -> ErrorCode:
        """NONE, or why nothing was written."""
        try:
            result = command(self.state, waiter, self._shared.wall_ms())
            code = self._write(result)
            if code is ErrorCode.NONE:
                self._set_timers(result)
                self._reply(result, waiter)
                if result.notes:
                    self._log_notes(result.notes)
        except Exception:
            # The state may be half changed; the log is not.
            self._fail()
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if code is not ErrorCode.NONE:
            self._refuse(result, waiter, code, is_volatile=is_volatile)
        elif waiter != NOBODY:
            self.errors_in_a_row = 0
        return code

    def _write(self, result: CoordinatorResult[Any, RecordType]) -> ErrorCode:
        """NONE, or why nothing was written."""
        if not result.records and result.end_marker is None:
            return ErrorCode.NONE
        if not self.is_led:  # a timer may fire before the loss of leadership is known here
            return ErrorCode.NOT_COORDINATOR
        try:
            batches = self._build_batches(result)
        except TooLarge as error:
            self._shared.notes.warning("record_too_large", str(self), f"{self}: {error}")
            return to_client_error(ErrorCode.MESSAGE_TOO_LARGE)
        write = self._replies.begin()
        base_offset, code = self._shared.log.append(
            self.partition,
            batches,
            timeout_ms=self._write_timeout_ms(),
            done=partial(self._on_written, write),
        )
        if base_offset == NOT_WRITTEN:
            assert code is not None
            self._replies.withdraw(write)
            return to_client_error(code)
        self._written_end = self._replay(result, base_offset)
        if code is not None:
            self._on_written(write, code)
        return ErrorCode.NONE

    def _on_written(self, write: PendingWrite, code: ErrorCode) -> None:
        self._replies.end(write, to_client_error(code))
        self._on_write_done(code)

    def _log_notes(self, notes: Sequence[CoordinatorNote]) -> None:
        for event, name, message, fields in notes:
            self._shared.notes.info(event, name, message, partition=self.partition, **fields)

    def _set_timers(self, result: CoordinatorResult[Any, RecordType]) -> None:
        for change in result.timers:
            if isinstance(change, SetTimer):
                call = partial(self._on_timer, change.key)
                self._timers.set(change.key, change.delay_ms, call)
            else:
                self._timers.cancel(change.key)

    def _reply(self, result: CoordinatorResult[Any, RecordType], waiter: Waiter) -> None:
        has_reply = waiter != NOBODY and result.reply is not LATER
        if has_reply or result.deferred_replies:
            self._wait_for_uncommitted()
        if has_reply:
            self._replies.reply(waiter, result.reply)
        for deferred in result.deferred_replies:
            self._replies.reply(deferred.waiter, deferred.reply)

    def _wait_for_uncommitted(self) -> None:
        """A reply shows replayed state, so it must wait for an earlier write that is still
        uncommitted after its own waiters timed out."""
        log = self._shared.log
        if self._replies.is_writing or not self._written_end or not self.is_led:
            return
        if log.ends(self.partition).committed >= self._written_end:
            return
        write = self._replies.begin()
        log.when_committed(
            self.partition,
            self._written_end,
            timeout_ms=self._write_timeout_ms(),
            done=partial(self._on_written, write),
        )

    def _refuse(
        self,
        result: CoordinatorResult[Any, RecordType],
        waiter: Waiter,
        code: ErrorCode,
        *,
        is_volatile: bool,
    ) -> None:
        if is_volatile:
            self.reload(code)
            return
        self._replies.fail(waiter, code)
        for deferred in result.deferred_replies:
            self._replies.fail(deferred.waiter, code)

    # -- sweeps ----------------------------------------------------------------------------

    def _sweep_later(self, sweep: Sweep) -> None:
        self._timers.set(
            sweep.purpose, sweep.interval_ms(), lambda: self._sweep(sweep, sweep.names())
        )

    def _sweep(self, sweep: Sweep, names: list[str]) -> None:
        """Sweep in steps. A name whose records cannot be written now is retried in the next
        pass."""
        some, rest = names[:NAMES_PER_SWEEP_STEP], names[NAMES_PER_SWEEP_STEP:]
        self._execute(lambda _, __, now_ms: sweep.decide(some, now_ms))
        if not self.is_active:
            return
        if rest:
            self._timers.set(sweep.purpose, 0, partial(self._sweep, sweep, rest))
        else:
            self._sweep_later(sweep)

    # -- loading and ending ----------------------------------------------------------------

    async def load(self) -> None:
        """Ends in ACTIVE; in GONE if the partition is no longer led here; or, after an unexpected
        error, in another attempt."""
        ends = self._shared.log.ends(self.partition)
        started_ms = self._shared.wall_ms()
        try:
            if ends.start < ends.end:
                self._written_end = await load(
                    self.partition,
                    self._load_entry,
                    log=self._shared.log,
                    new_reader=self._new_reader,
                    chunk_bytes=self._chunk_bytes(),
                    is_wanted=lambda: self.status is Status.LOADING and self.is_led,
                    report=self._report_damage,
                )
        except LoadStopped:
            self.end(ErrorCode.NOT_COORDINATOR)
        except Refusal as refusal:
            self._shared.logger.error("shard_not_loaded", f"{self} cannot be loaded: {refusal}")
            self.end(ErrorCode.NOT_COORDINATOR)
        except Exception:
            self._fail()
        else:
            self._shared.logger.info(
                "coordinator_loaded",
                f"{self} is loaded",
                partition=self.partition,
                leader_epoch=self.leader_epoch,
                records=ends.end - ends.start,
                duration_ms=self._shared.wall_ms() - started_ms,
            )
            self.activate()

    def _report_damage(self, line: str) -> None:
        self._shared.logger.warning("damaged_record_skipped", f"{self}: {line}")

    def activate(self) -> None:
        assert self.status is Status.LOADING
        self.status = Status.ACTIVE
        try:
            self._on_active()
        except Exception:
            self._fail()

    def _fail(self) -> None:
        """Unexpected error: reload from the log, which is authoritative."""
        self.errors_in_a_row += 1
        self._shared.on_unexpected_error(self, traceback.format_exc())
        self.reload(ErrorCode.UNKNOWN_SERVER_ERROR)

    def reload(self, code: ErrorCode) -> None:
        """Drop volatile state and load again. Waiting requests get the code; clients may retry."""
        if self.status is Status.GONE:
            return
        self._drop_volatile()
        self.state = self._new_state()
        self.status = Status.LOADING
        self._replies.fail_all(code)
        self._shared.load_again(self)

    def end(self, code: ErrorCode) -> None:
        """End the shard for good."""
        self.status = Status.GONE
        self._drop_volatile()
        self._replies.fail_all(code)

    def _drop_volatile(self) -> None:
        self._timers.cancel_all()
        self._forget_volatile()
