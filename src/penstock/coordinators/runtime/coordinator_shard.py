"""One led partition of a coordinator's topic: its state, its writes in order, its life.

A command's records go to the log and are replayed at once; answers leave when they are committed.
What commands there are is the coordinator's. Owned by the event loop; nothing awaits but loading.
Invariant: the state is what a replay of the log would give, but for what a reload may forget.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from penstock.coordinators.runtime.dependencies import NOT_WRITTEN, CoordinatorLog, Report
from penstock.coordinators.runtime.error_codes import answer_code
from penstock.coordinators.runtime.loader import LoadStopped, Reader, load
from penstock.coordinators.runtime.pending_replies import PendingReplies, PendingWrite
from penstock.model.errors import ErrorCode, Refusal

State = TypeVar("State")


class Status(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    GONE = "gone"  # led by another broker, or by a later shard of this one


class ShardDependencies(Protocol):
    """What every shard of a coordinator shares, as far as it is the same for all."""

    @property
    def log(self) -> CoordinatorLog: ...

    @property
    def report(self) -> Report: ...

    @property
    def load_again(self) -> Callable[[Any], None]: ...


class CoordinatorShard(ABC, Generic[State]):
    def __init__(self, partition: int, around: ShardDependencies) -> None:
        self.partition = partition
        self.status = Status.LOADING
        self.term = around.log.find_leadership(
            partition
        )  # of leading, which this shard is good for
        self.leader_epoch = -1  # of that time of leading, as far as it was told
        self._shared = around
        self._answers = PendingReplies(asyncio.get_running_loop().create_future)
        self._written_end = 0  # everything of ours in the log is below
        self.state = self._new_state()

    # -- what a coordinator adds -----------------------------------------------------------

    @abstractmethod
    def _new_state(self) -> State: ...

    @abstractmethod
    def _new_reader(self, report: Report) -> Reader[Any]: ...

    @abstractmethod
    def _take(self, entry: Any) -> None:
        """Into the state, what the reader made of the log."""

    @abstractmethod
    def _begin(self) -> None:
        """It has just become active."""

    @abstractmethod
    def _forget(self) -> None:
        """Timers and the like: it is active no more."""

    @abstractmethod
    def _chunk_bytes(self) -> int:
        """Read at a time when it is loaded."""

    # -- looking ---------------------------------------------------------------------------

    @property
    def is_led(self) -> bool:
        """Whether it is still the same time of leading: another broker may have written since."""
        term = self._shared.log.find_leadership(self.partition)
        return term is not None and term is self.term

    @property
    def waiting(self) -> int:
        return self._answers.waiting

    def _is_active(self) -> bool:
        return self.status is Status.ACTIVE

    # -- writing ---------------------------------------------------------------------------

    def _append(
        self, batches: Sequence[bytearray], replay: Callable[[int], int], *, timeout_ms: int
    ) -> ErrorCode:
        """NONE, or why nothing of it was written. `replay` gets the first offset, and gives the
        one behind the last."""
        if not self.is_led:
            return ErrorCode.NOT_COORDINATOR
        write = self._answers.begin()
        base_offset, code = self._shared.log.append(
            self.partition, batches, timeout_ms=timeout_ms, done=partial(self._on_written, write)
        )
        if base_offset == NOT_WRITTEN:
            assert code is not None
            self._answers.withdraw(write)
            return answer_code(code)
        self._written_end = replay(base_offset)
        if code is not None:
            self._on_written(write, code)
        return ErrorCode.NONE

    def _on_written(self, write: PendingWrite, code: ErrorCode) -> None:
        self._answers.end(write, answer_code(code))

    def _keep_order(self, *, timeout_ms: int) -> None:
        """An answer shows what is written: it waits where a write of before has not got through
        and nobody waits for it any more."""
        log = self._shared.log
        if self._answers.is_writing or not self._written_end or not self.is_led:
            return
        if log.ends(self.partition).committed >= self._written_end:
            return
        write = self._answers.begin()
        log.when_committed(
            self.partition,
            self._written_end,
            timeout_ms=timeout_ms,
            done=partial(self._on_written, write),
        )

    # -- loading and ending ----------------------------------------------------------------

    async def load(self) -> None:
        """Active when it returns, or gone where it is not led any more."""
        ends = self._shared.log.ends(self.partition)
        if ends.start < ends.end:
            try:
                self._written_end = await load(
                    self.partition,
                    self._take,
                    log=self._shared.log,
                    new_reader=self._new_reader,
                    chunk_bytes=self._chunk_bytes(),
                    is_wanted=lambda: self.status is Status.LOADING and self.is_led,
                    report=lambda line: self._shared.report(f"{self}: {line}"),
                )
            except (LoadStopped, Refusal) as stop:
                if isinstance(stop, Refusal):
                    self._shared.report(f"{self} cannot be loaded: {stop}")
                self.end(ErrorCode.NOT_COORDINATOR)
                return
        self.activate()

    def activate(self) -> None:
        assert self.status is Status.LOADING
        self.status = Status.ACTIVE
        self._begin()

    def reload(self, code: ErrorCode) -> None:
        """Forget what is soft. Whoever waits is told the code, and may come again."""
        if self.status is Status.GONE:
            return
        self._forget()
        self.state = self._new_state()
        self.status = Status.LOADING
        self._answers.fail_all(code)
        self._shared.load_again(self)

    def end(self, code: ErrorCode) -> None:
        """For good."""
        self.status = Status.GONE
        self._forget()
        self._answers.fail_all(code)
