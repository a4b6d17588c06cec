"""Interfaces through which a coordinator keeps its state in a topic. No behaviour.

A partition is named by its number alone, because each coordinator has one topic of its own. The
server package implements them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from penstock.model.errors import ErrorCode
from penstock.purgatory.timing_wheel import Timer

NOT_WRITTEN = -1

Done = Callable[[ErrorCode], None]
Call = Callable[[], None]
Report = Callable[[str], None]


class LogEnds(NamedTuple):
    start: int  # log start offset
    committed: int  # high watermark
    end: int  # log end offset


class LogChunk(NamedTuple):
    batches: bytes  # whole batches
    end_offset: int  # where the next read starts


class Append(NamedTuple):
    """The immediate result of an append. `code` is None if the batches are written and `done` will
    be called; NONE if they are committed already; else why they were refused, or are not known to
    be committed."""

    base_offset: int  # NOT_WRITTEN if it was refused
    code: ErrorCode | None


class CoordinatorLog(Protocol):
    """The topic's partitions on this broker. Only the coroutines block."""

    def partition_count(self) -> int | None:
        """None while the topic does not exist."""

    async def ensure_topic(self) -> ErrorCode:
        """Creates the topic if needed; NONE when this broker's metadata has it."""

    def find_leadership(self, partition: int) -> object | None:
        """An object that identifies the current leadership; None while another broker leads."""

    def ends(self, partition: int) -> LogEnds:
        """The offsets of the log; all 0 if this broker does not have it."""

    def max_batch_bytes(self, partition: int) -> int: ...

    async def read(self, partition: int, start: int, max_bytes: int) -> LogChunk:
        """Read from `start` on, at most `max_bytes` or one batch. May raise Refusal."""

    def append(
        self, partition: int, batches: Sequence[bytearray], *, timeout_ms: int, done: Done
    ) -> Append:
        """Append in one write. If the returned code is None, `done` is called later, once."""

    def when_committed(self, partition: int, offset: int, *, timeout_ms: int, done: Done) -> None:
        """Calls `done`, perhaps at once: NONE when all below `offset` is committed, or why not."""


class CoordinatorTimers(Protocol):
    """`purgatory.LoopTimers`, or a clock that tests advance."""

    def add_after(self, delay_ms: int, value: Call, /) -> Timer[Call]: ...

    def cancel(self, timer: Timer[Call], /) -> bool: ...
